"""The note target."""

from __future__ import annotations

from datetime import timedelta

from tests.targets.kit import outcome_of, start_launch
from timewright.core.run.run import Failed, Succeeded
from timewright.core.target import Handoff, Note
from timewright.targets.workflow import NoteTarget


def test_a_note_is_its_own_result() -> None:
    assert outcome_of(NoteTarget(), Note(text="water the plants")) == Succeeded(result="water the plants")


def test_a_target_of_another_kind_fails_finally() -> None:
    assert outcome_of(NoteTarget(), Handoff()) == Failed(error="a Handoff is not a note", final=True)


def test_stopping_a_finished_note_does_nothing() -> None:
    target = NoteTarget()
    work, recorder = start_launch(target, Note(text="x"))
    work.stop("by hand")
    target.close(grace=timedelta(0))
    assert len(recorder.outcomes) == 1
