"""The product lives as the model says, in random stories of all presets; TIMEWRIGHT_FULL=1 tells 200,000."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests.oracle.model import SECOND, Life
from tests.oracle.saved_stories import SAVED
from tests.oracle.stories import (
    Batch,
    Story,
    differences,
    make_batch,
    shrink,
)
from tests.oracle.summary import PROPERTY

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
BATCHES = 10_000 if FULL else 100
PARTS = 10
SIZE = 20


@pytest.mark.parametrize("part", range(PARTS))
def test_random_stories_end_as_the_model_says(
    part: int, record_property: Callable[[str, object], None]
) -> None:
    counts: Counter[str] = Counter()
    for seed in range(part, BATCHES, PARTS):
        batch = make_batch(seed, SIZE)
        found = differences(batch, counts)
        for story_seed in found:
            small = shrink(batch, story_seed)
            pytest.fail(
                f"story {story_seed}: make_batch({seed}, {SIZE})\nshrunk: {small}\n"
                + "\n".join(next(iter(differences(small).values()), found[story_seed]))
            )
    record_property(PROPERTY, json.dumps(counts))
    assert counts["stories"] == len(range(part, BATCHES, PARTS)) * SIZE


@pytest.mark.parametrize("saved", SAVED)
def test_a_story_that_once_differed_ends_as_the_model_says(saved: str) -> None:
    create, script, steps = SAVED[saved]
    create = {"lease": {"length": "1d", "time_limit": "1d", "grace": "0s"}, **create}
    runs = tuple((succeeds, lasts * SECOND) for succeeds, lasts in script)
    story = Story(1, create, runs, tuple(tuple(requests) for requests, _, _ in steps))

    assert differences(Batch(tuple((kind, lasts * SECOND) for _, kind, lasts in steps), (story,))) == {}


FAULTS = {
    "a missed occurrence runs under catch_up none": ("_skip", lambda life, instants, reason: None),
    "a pause suppresses nothing": ("pause", lambda life, until=None, hint=False: None),
    "a run by hand is lost": ("run_by_hand", lambda life: None),
    "hints are ignored": ("hint_interval", lambda life, interval, ttl: None),
    "a skip by hand is ignored": ("skip", lambda life: False),
    "overlap is ignored": ("_enter", lambda life, row: life.rows.append(row)),
    "the cadence is ignored": ("_keep_away", lambda life: None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_difference_of_one_rule_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, replacement = FAULTS[fault]
    monkeypatch.setattr(Life, name, replacement)

    assert any(differences(make_batch(seed, SIZE)) for seed in range(20))
