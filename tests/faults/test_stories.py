"""The fault stories that take little time, in every run of the suite; all of them: python3 dev.py faults."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from timewright.testing.faults import __main__ as lane
from timewright.testing.faults.story import CannotRun, Held, Scene, Story

ROOT = Path(__file__).resolve().parents[2]
QUICK = [story for story in lane.STORIES if isinstance(story, Story) and story.quick]
HELD = [story for story in lane.STORIES if isinstance(story, Held)]


@pytest.mark.parametrize("story", QUICK, ids=lambda story: story.name)
def test_what_is_expected_of_a_fault_is_what_happens(story: Story, scene: Scene) -> None:
    # Where nobody may mount, the lane says it aloud; such a machine has nothing to answer for.
    may_not_mount = pytest.raises(CannotRun, match="mount") if needs_root(story) else nullcontext()
    with may_not_mount:
        assert story.work(scene)


def needs_root(story: Story) -> bool:
    return story.name == "read-only" and os.geteuid() != 0


@pytest.mark.parametrize("story", HELD, ids=lambda story: story.name)
def test_the_tests_that_hold_a_row_are_there(story: Held) -> None:
    for test in story.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_story_stands_on_the_page_with_its_row() -> None:
    page = (ROOT / "docs" / "test" / "faults.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| ([A-H]\d+(?:, [A-H]\d+)*) \| `([a-z-]+)` \|", page, re.MULTILINE))
    assert shown == {(story.row, story.name) for story in lane.STORIES}


def test_a_story_that_fails_is_told_and_fails_the_lane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(scene: Scene) -> str:
        raise AssertionError("expected rain")

    def cannot(scene: Scene) -> str:
        raise CannotRun("no umbrella here")

    kept: dict[str, Any] = {"row": "Z1", "done": "wait", "expected": "rain"}
    stories = (
        Story(name="dry", work=fails, **kept),
        Story(name="bare", work=cannot, **kept),
        Story(name="wet", work=lambda scene: "rain", **kept),
    )
    monkeypatch.setattr(lane, "STORIES", stories)
    assert lane.main([]) == 1
    said = capsys.readouterr().out
    assert "FAILED: dry (row Z1): AssertionError: expected rain" in said
    assert "NOT RUN: bare (row Z1): no umbrella here" in said
    assert "3 stories in 0 s: 1 ok, 1 FAILED, 1 NOT RUN" in said
    assert lane.main(["--only", "wet"]) == 0
