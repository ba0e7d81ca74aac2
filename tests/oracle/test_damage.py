"""`verify` raises no alarm after random stories of all presets, and finds every damage to their rows."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable

from tests.oracle.damage import LEFT_OUT, history_of_schedule, trials
from tests.oracle.model import to_time
from tests.oracle.not_required import rule_against
from tests.oracle.stories import make_batch, tell_bench, terms_of
from tests.oracle.summary import PROPERTY
from timewright.ids import TimedIds
from timewright.operations import OperationContext
from timewright.operations.health.verify import read_history
from timewright.verification.checker import check

FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
FIRST, BATCHES, SIZE = 30_000, 500 if FULL else 10, 20
# The share of the damages that are tried; of rows that are left out, all are.
SHARE = 1.0 if FULL else 0.25
# Rows that are required, but whose absence `verify` cannot see: 5 of 2735.
MAX_UNPROVEN, UNPROVEN = 0.005, "neither found nor proven"


def test_verify_raises_no_alarm_after_stories_and_finds_every_damage(
    record_property: Callable[[str, object], None],
) -> None:
    """Each schedule's rows are damaged in many ways, one at a time.

    A row that is left out with everything that a run writes about it is found if the schedule follows its
    trigger. Of the others, each is found, or a rule proves from the other rows that it need not exist. What
    is left is required: an instant of a cadence whose failures were cleared at about that time, or from
    which a schedule was parked, and a hint for one instant that came due during a run.
    """
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + BATCHES):
        batch = make_batch(seed, SIZE)
        bench = tell_bench(batch)
        history = read_history(OperationContext(store=bench.store, ids=TimedIds(), notify=lambda _: None))
        now, ids = to_time(bench.clock.now()), {schedule.name: schedule.id for schedule in history.schedules}
        found = check(history, now=now).violations
        assert [violation.message for violation in found] == [], f"make_batch({seed}, {SIZE})"
        for story in batch.stories:
            terms, rng = terms_of(story.create), random.Random(story.seed)
            is_governed = terms.adaptive or terms.ladder or terms.stretch
            counts.update(("verified stories", f"verified preset {story.create.get('preset', 'none')}"))
            whole = history_of_schedule(history, ids[f"s{story.seed}"])
            for kind, damaged in trials(whole, rng):
                is_left_out = kind.endswith(LEFT_OUT)
                if not is_left_out and rng.random() > SHARE:
                    continue
                is_found = not check(damaged, now=now).holds
                name = (
                    f"rows left out, {'governed' if is_governed else 'plain'}" if is_left_out else "damages"
                )
                counts.update((name, *[f"{name}, found"] * is_found))
                assert is_found or (is_left_out and is_governed), (kind, story.seed)
                if not is_found:
                    left = {run.id for run in damaged.runs}
                    (lost,) = (run for run in whole.runs if run.id not in left)
                    rule = rule_against(damaged, lost, from_now=terms.from_now)
                    counts[f"not required: {rule}" if rule else UNPROVEN] += 1
    record_property(PROPERTY, json.dumps(counts))
    assert counts["rows left out, plain"] >= BATCHES
    assert counts[UNPROVEN] <= MAX_UNPROVEN * counts["rows left out, governed"]
