"""Rules over answers: what counts as success, failure, nothing new, or not yet."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from timewright import Context, Later
from timewright.core.run.run import RunState, StateChange, Succeeded
from timewright.core.schedule.schedule import ScheduleState
from timewright.errors import InvalidInput
from timewright.ledger.records.schedule_states import STATE_CHANGED
from timewright.testing.bench import Bench
from timewright.testing.targets import ScriptedOutcome, succeed
from timewright.wiring import new_registry


class Program:
    """A program with one function that answers with the next of some values, and one that does the work."""

    def __init__(self, *answers: Any, **schedule: Any) -> None:
        self.answers = list(answers)
        self.done: list[Any] = []
        self.registry = new_registry()
        self.registry.register("look")(self.look)
        self.registry.register("work")(self.work)
        self.declared: tuple[dict[str, Any], ...] = (
            {"name": "job", "every": "10s", "call": "look", **schedule},
        )

    def look(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def work(self) -> str:
        self.done.append(1)
        return "done"


def live(program: Program, seconds: int = 60) -> Bench:
    bench = Bench()
    bench.adopt(program)
    bench.advance(seconds=seconds)
    found = bench.call("verify")
    assert found["holds"], [one for one in found["promises"] if one["broken"]]
    return bench


def outcomes(bench: Bench) -> list[str]:
    return [f"{run.state.value} {run.reason or run.outcome_label}".strip() for run in bench.runs("job")]


def test_succeed_if_decides_instead_of_the_target() -> None:
    bench = live(Program({"rows": 3}, {"rows": 0}, succeed_if="result.rows > 0"), 20)
    assert outcomes(bench) == ["succeeded", "failed exhausted"]
    assert bench.attempts("job")[-1].error == "succeed_if does not hold: result.rows > 0"


@pytest.mark.parametrize(
    ("empty", "expected"),
    [("succeed", "succeeded"), ("fail", "failed exhausted"), ("quiet", "skipped quiet")],
)
def test_an_empty_answer_counts_as_the_schedule_says(empty: str, expected: str) -> None:
    bench = live(Program([], empty=empty), 10)
    assert outcomes(bench) == [expected]
    assert empty != "fail" or bench.attempts("job")[-1].error == "the answer is empty (empty: fail)"


def test_exit_codes_are_numbers_or_text() -> None:
    made = Bench().call(
        "schedule create", name="x", every="1m", call="look", exit_codes={3: "quiet", "75": "later"}
    )
    assert made["schedule"]["exit_codes"] == {"3": "quiet", "75": "later"}


def test_the_first_rule_that_holds_decides() -> None:
    rules = [
        {"if": "result.kind == 'old'", "then": "quiet"},
        {"if": "result.kind != 'new'", "then": "failure"},
    ]
    program = Program({"kind": "old"}, {"kind": "bad"}, {"kind": "new"}, rules=rules)
    assert outcomes(live(program, 30)) == ["skipped quiet", "failed exhausted", "succeeded"]


def test_a_rule_may_turn_a_failure_into_a_success() -> None:
    program = Program(ValueError("no news"), rules=[{"if": "'no news' in error", "then": "success"}])
    assert outcomes(live(program, 10)) == ["succeeded"]


def test_later_defers_the_run_without_an_attempt() -> None:
    program = Program("busy", "done", rules=[{"if": "result == 'busy'", "then": "later"}], every="1h")
    bench = live(program, 3660)
    (run,) = bench.runs("job")
    assert (run.state, run.attempts, run.fence) == (RunState.SUCCEEDED, 0, 2)


def test_a_watch_succeeds_only_when_the_value_has_changed() -> None:
    versions = [{"v": n} for n in (1, 1, 1, 2, 2, 3, 3)]
    bench = live(Program(*versions, watch={"changed": "result.v"}), 70)
    assert outcomes(bench) == ["skipped quiet", "succeeded", "skipped quiet", "succeeded", "skipped quiet"]
    assert [run.dropped for run in bench.runs("job")] == [3, 0, 1, 0, 1]


def test_watches_that_were_created_at_any_time_share_whole_seconds_and_none_looks_too_early() -> None:
    bench = Bench()
    bench.adopt(Program({"version": 1}, manual=True, every=None))
    firsts = []
    for number in range(40):
        bench.advance(seconds=0.137)
        fields = {"every": "10s", "call": "look", "watch": {"changed": "result.version"}}
        created = bench.call("schedule create", name=f"watch-{number}", **fields)
        firsts.append(datetime.fromisoformat(created["progress"]["next_at"]))
        assert timedelta(seconds=10) <= firsts[-1] - bench.now < timedelta(seconds=11)
    assert len(set(firsts)) <= 7, "about one for each second in which they were created"


def test_a_quiet_stretch_is_one_row_however_long_it_is() -> None:
    bench = live(Program({"v": 1}, watch={"changed": "result.v"}), 3600)
    (row,) = bench.runs("job")
    assert (row.state, row.reason, row.dropped) == (RunState.SKIPPED, "quiet", 360)
    explained = bench.call("run explain", run=row.id)
    assert explained["because"] == ["it looked, and result.v had not changed; that uses no attempt"]
    assert len(bench.attempts("job")) == 1


def test_a_failure_inside_a_quiet_stretch_ends_it_and_keeps_what_was_seen() -> None:
    answers = [{"v": 1}, {"v": 1}, ValueError("down"), {"v": 1}, {"v": 2}]
    bench = live(Program(*answers, watch={"changed": "result.v"}), 50)
    assert outcomes(bench) == ["skipped quiet", "failed exhausted", "skipped quiet", "succeeded"]


def test_a_watch_with_once_ends_its_schedule() -> None:
    bench = live(Program({"v": 1}, {"v": 2}, {"v": 3}, watch={"changed": "result.v", "once": True}), 60)
    assert outcomes(bench) == ["skipped quiet", "succeeded"]
    assert bench.progress("job").state is ScheduleState.FINISHED


def test_the_work_starts_only_when_its_check_says_so() -> None:
    program = Program(
        *({"v": n} for n in (1, 1, 2, 2, 3)),
        call="work",
        check={"call": "look"},
        watch={"changed": "result.v"},
    )
    bench = live(program, 50)
    assert outcomes(bench) == ["skipped quiet", "succeeded", "skipped quiet", "succeeded"]
    assert len(program.done) == 2
    assert bench.attempts("job")[-1].result == "done"


def test_a_failing_check_fails_the_run_and_the_work_does_not_start() -> None:
    program = Program(ValueError("no"), call="work", check={"call": "look"})
    bench = live(program, 10)
    assert outcomes(bench) == ["failed exhausted"]
    assert bench.attempts("job")[0].error == "check: ValueError: no"
    assert program.done == []


def test_a_change_whose_work_failed_is_seen_again() -> None:
    program = Program({"v": 1}, {"v": 2}, call="work", check={"call": "look"}, watch={"changed": "result.v"})
    tries = iter([ValueError("no"), "done", "done"])

    def work() -> Any:
        answer = next(tries)
        if isinstance(answer, Exception):
            raise answer
        return answer

    program.registry = new_registry()
    program.registry.register("look")(program.look)
    program.registry.register("work")(work)
    assert outcomes(live(program, 40)) == [
        "skipped quiet",
        "failed exhausted",
        "succeeded",
        "skipped quiet",
    ]


def test_an_old_answer_that_arrives_late_is_no_change() -> None:
    bench = Bench()
    bench.schedule("job", "every 10s", watch={"changed": "result.v"}, overlap="allow")
    answers = [succeed({"v": 1}), succeed({"v": 1}, after="15s"), succeed({"v": 2})]
    bench.target.script("job", *answers)
    bench.advance(seconds=60)
    ends = [(one.result["v"], one.outcome_label) for one in bench.attempts("job")]
    assert [one for one in ends if one[1] != "noop"] == [(2, "")]


def test_nothing_follows_a_quiet_run() -> None:
    program = Program({"v": 1}, {"v": 1}, {"v": 2}, watch={"changed": "result.v"})
    bench = Bench()
    bench.adopt(program)
    bench.call("schedule create", name="next", after="job", note="hello")
    bench.advance(seconds=30)
    assert len(bench.runs("next")) == 1


def test_a_quiet_run_ends_a_streak_of_failures() -> None:
    program = Program({"v": 1}, ValueError("x"), ValueError("x"), {"v": 1}, watch={"changed": "result.v"})
    bench = live(program, 40)
    assert bench.progress("job").failures == 0


def test_a_manual_run_that_is_quiet_keeps_its_row() -> None:
    bench = Bench()
    bench.adopt(Program({"v": 1}, watch={"changed": "result.v"}, every="1h"))
    bench.call("schedule run", schedule="job")
    bench.advance(seconds=5)
    assert outcomes(bench) == ["succeeded noop"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"succeed_if": "result.rows >"}, "succeed_if"),
        ({"watch": {"changed": "version"}}, "watch.changed"),
        ({"rules": [{"if": "steps.a == 1", "then": "quiet"}]}, "rules"),
        ({"rules": [{"if": "ok", "then": "maybe"}]}, "rules"),
        ({"check": {"note": "hello"}}, "check"),
        ({"exit_codes": {"x": "quiet"}}, "exit_codes"),
    ],
)
def test_an_unreadable_rule_is_refused_with_its_place(fields: dict[str, Any], field: str) -> None:
    bench = Bench()
    with pytest.raises(InvalidInput) as refused:
        bench.call("schedule create", name="x", every="1m", call="look", **fields)
    assert str(refused.value.field).startswith(field)


def counting(**schedule: Any) -> tuple[Bench, list[Any]]:
    """A schedule whose function counts its own runs in its state, and returns what it was told."""
    told: list[Any] = []
    bench = Bench()
    program = Program(None, call="count", **schedule)

    def count(ctx: Context) -> dict[str, Any]:
        told.append((ctx.previous["result"] if ctx.previous else None, dict(ctx.state)))
        ctx.state["runs"] = ctx.state.get("runs", 0) + 1
        if ctx.state["runs"] == 2 and ctx.attempt == 1:
            raise ValueError("the second one fails first")
        return {"number": ctx.state["runs"]}

    program.registry.register("count")(count)
    bench.adopt(program)
    return bench, told


def test_a_function_keeps_a_state_between_runs_and_knows_the_last_result() -> None:
    bench, told = counting(keep_state=True, retry={"max_attempts": 2})
    bench.advance(seconds=30)
    first, second = {"number": 1}, {"number": 2}
    assert told == [
        (None, {}),
        (first, {"runs": 1}),
        (first, {"runs": 1}),  # the failed attempt left no trace
        (second, {"runs": 2}),
    ]
    assert bench.call("verify")["holds"]


def test_a_state_that_another_run_changed_meanwhile_is_not_overwritten() -> None:
    bench = Bench()
    bench.schedule("job", "every 10s", keep_state=True, overlap="allow")
    acts = [
        ScriptedOutcome(outcome=Succeeded(state=StateChange(value=seconds)), after=timedelta(seconds=seconds))
        for seconds in (15, 1)
    ]
    bench.target.script("job", *acts)
    bench.advance(seconds=26)
    ends = [(one.outcome, one.error) for one in bench.attempts("job")]
    assert ends == [("failed", STATE_CHANGED), ("succeeded", "")]


def test_a_schedule_without_keep_state_has_no_state() -> None:
    bench, told = counting()
    bench.advance(seconds=10)
    assert told == []
    assert "keeps no state" in bench.attempts("job")[0].error


def test_later_runs_the_function_again_at_that_instant() -> None:
    bench = Bench()
    program = Program(None, call="wait", every="1h")
    begun: list[Any] = []

    def wait(ctx: Context) -> Later | None:
        begun.append(bench.now)
        return Later(begun[0] + timedelta(minutes=5)) if len(begun) == 1 else None

    program.registry.register("wait")(wait)
    bench.adopt(program)
    bench.advance(minutes=70)
    (run,) = bench.runs("job")
    assert (run.state, run.attempts) == (RunState.SUCCEEDED, 0)
    assert begun[1] - begun[0] == timedelta(minutes=5)
