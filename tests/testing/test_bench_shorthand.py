"""A bench takes the same shorthand as a scheduler."""

from __future__ import annotations

from datetime import timedelta

import pytest

from timewright import AsyncScheduler, Context, every
from timewright.core.policies.policies import Overlap
from timewright.errors import InvalidInput, UnknownField
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed


def test_triggers_policies_and_durations_may_be_text() -> None:
    bench = Bench()
    bench.schedule("text", "every 10 minutes")
    bench.schedule("cron", "*/20 * * * *")
    bench.schedule("length", timedelta(minutes=30))
    bench.advance("1h")
    assert [len(bench.runs(name)) for name in ("text", "cron", "length")] == [6, 3, 2]


def test_a_policy_given_as_text_works_like_its_value() -> None:
    bench = Bench()
    bench.schedule("word", every("1m"), overlap="allow", time_limit="5m")
    bench.schedule("value", every("1m"), overlap=Overlap.ALLOW)
    bench.schedule("tried", every("10m"), retry=2)
    for name in ("word", "value"):
        bench.target.script(name, succeed(after=timedelta(seconds=100)))
    bench.target.script("tried", fail("no"))
    bench.advance("15m")
    states = [[run.state for run in bench.runs(name)] for name in ("word", "value")]
    assert states[0] == states[1]
    assert "skipped" not in states[0]
    assert [run.attempts for run in bench.runs("tried")] == [2]


def test_unknown_text_is_refused() -> None:
    bench = Bench()
    with pytest.raises(InvalidInput):
        bench.schedule("a", "octopus")
    with pytest.raises(InvalidInput):
        bench.schedule("a", every("1m"), overlap="maybe")
    with pytest.raises(UnknownField):
        bench.schedule("a", every("1m"), overlapp="skip")


def test_an_async_app_is_adopted_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    app = AsyncScheduler(tmp_path_factory.mktemp("app") / "app.db")
    seen: list[str] = []

    @app.schedule(every("1h"))
    async def poll(ctx: Context) -> None:
        seen.append(ctx.schedule_name)

    bench = Bench()
    bench.adopt(app)
    bench.advance("2h")
    app.scheduler.stop()
    assert seen == ["poll", "poll"]
