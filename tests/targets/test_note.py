"""Targets that launch nothing."""

from __future__ import annotations

from datetime import timedelta

from tests.targets.stage import begin, outcome_of
from timewright.core.run import Failed, Released, Succeeded
from timewright.core.target import Handoff, Note
from timewright.targets.note import HandoffTarget, NoteTarget


def test_a_note_is_its_own_result() -> None:
    assert outcome_of(NoteTarget(), Note(text="water the plants")) == Succeeded(result="water the plants")


def test_a_handoff_is_given_back_without_costing_an_attempt() -> None:
    outcome = outcome_of(HandoffTarget(), Handoff(payload={"a": 1}))
    assert outcome == Released(reason="waits to be leased from outside")


def test_a_target_of_another_kind_fails_for_good() -> None:
    assert outcome_of(NoteTarget(), Handoff()) == Failed(error="a Handoff is not a note", final=True)
    assert outcome_of(HandoffTarget(), Note(text="x")) == Failed(error="a Note is not a handoff", final=True)


def test_stopping_what_has_answered_changes_nothing() -> None:
    for target, what in ((NoteTarget(), Note(text="x")), (HandoffTarget(), Handoff())):
        work, ear = begin(target, what)
        work.stop("by hand")
        target.close(grace=timedelta(0))
        assert len(ear.heard) == 1
