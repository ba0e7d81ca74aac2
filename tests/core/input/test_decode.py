"""Decoding and encoding: many accepted forms, one canonical form, and helpful errors."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.input import model_strategies as values
from timewright.core.calendars import Calendar, CalendarRule
from timewright.core.input.aliases import CHOICE_ALIASES, FIELD_ALIASES, snake_case
from timewright.core.input.decode import (
    decode,
    decode_changes,
    decode_policy,
    decode_schedule,
    describe_phrase,
)
from timewright.core.input.encoding import encode
from timewright.core.input.queue_file import decode_queue_file
from timewright.core.input.scalars import MAX_DEPTH
from timewright.core.input.struct_decoder import type_info
from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.policies.backoff import Constant, Exponential, Ladder, Steady, Stretch
from timewright.core.policies.policies import (
    CatchUp,
    Clamp,
    Delivery,
    Exhausted,
    Floor,
    FloorAction,
    LeaseTerms,
    Overlap,
    QueuePolicy,
    Retry,
)
from timewright.core.recurrence.triggers import After, AnyOf, AnyTrigger, Cron, Every, Manual, Once
from timewright.core.run.run import Cancelled, Failed, Outcome, Run, RunState, Succeeded, TimedOut
from timewright.core.schedule.hints import Hints
from timewright.core.schedule.schedule import Schedule, ScheduleProgress, ScheduleState
from timewright.core.target import AnyTarget, Call, Handoff, Http, Note, Publish, Shell, Workflow
from timewright.errors import (
    InvalidCron,
    InvalidDuration,
    InvalidInput,
    InvalidInstant,
    InvalidZone,
    TimewrightError,
    UnknownField,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def read(raw: Any, **more: Any) -> Schedule:
    return decode_schedule(raw, id="sch_1", now=NOON, **more)


def made(**fields: Any) -> Schedule:
    return read({"name": "report", "every": "1h", "note": "hello", **fields})


def refusal(call: Any, *args: Any, **more: Any) -> TimewrightError:
    with pytest.raises(TimewrightError) as caught:
        call(*args, **more)
    assert caught.value.field
    assert caught.value.rule
    assert caught.value.fix
    return caught.value


# Triggers


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("0 9 * * 1-5", Cron("0 9 * * 1-5")),
        ("@daily", Cron("@daily")),
        ("@every 90s", Every(90 * SECOND)),
        ("every 5m", Every(5 * MINUTE)),
        ("  Every 1h30m ", Every(90 * MINUTE)),
        ("after 10m", After(10 * MINUTE)),
        ({"cron": "0 9 * * *", "zone": "Europe/Berlin"}, Cron("0 9 * * *", "Europe/Berlin")),
        ({"cron": "@every 90s"}, Every(90 * SECOND)),
        ({"cron_expr": "0 9 * * *", "timezone": "Asia/Tokyo"}, Cron("0 9 * * *", "Asia/Tokyo")),
        ({"cronExpression": "0 9 * * *", "tz": "UTC", "dst": "match"}, Cron("0 9 * * *", dst="match")),
        ({"every": "5m", "anchor": "2026-03-10T12:00:00Z"}, Every(5 * MINUTE, NOON)),
        ({"every_ms": 60_000, "anchor_ms": 1_773_144_000_000}, Every(MINUTE, NOON)),
        ({"intervalMs": 60_000}, Every(MINUTE)),
        ({"every": timedelta(minutes=2)}, Every(2 * MINUTE)),
        ({"after": "PT10M"}, After(10 * MINUTE)),
        ({"once": "2026-03-10T12:00:00Z"}, Once(NOON)),
        ({"at": "2026-03-10T13:00:00+01:00"}, Once(NOON)),
        ({"once": 1_773_144_000_000}, Once(NOON)),
        ({"at_ms": 1_773_144_000_000}, Once(NOON)),
        ({"manual": True}, Manual()),
        ({"kind": "cron", "expression": "0 9 * * *"}, Cron("0 9 * * *")),
        ({"kind": "CRON", "cron": "0 9 * * *", "interval_ms": None}, Cron("0 9 * * *")),
        ({"kind": "INTERVAL", "interval_ms": 5000}, Every(5 * SECOND)),
        ({"kind": "MANUAL"}, Manual()),
        ({"kind": "every", "every": "30m"}, Every(30 * MINUTE)),
        ({"kind": "once", "once": 1_773_144_000_000}, Once(NOON)),
        ({"kind": "after", "delay": "1m"}, After(MINUTE)),
        ({"every": "1m", "manual": False}, Every(MINUTE)),
        ([{"cron": "0 9 * * *"}, "every 6h"], AnyOf((Cron("0 9 * * *"), Every(6 * HOUR)))),
        ([{"every": "6h"}], Every(6 * HOUR)),
        ({"kind": "any_of", "triggers": [{"every": "6h"}]}, AnyOf((Every(6 * HOUR),))),
        (Every(MINUTE), Every(MINUTE)),
    ],
)
def test_short_forms_of_triggers_are_expanded(raw: Any, expected: AnyTrigger) -> None:
    assert decode(raw, AnyTrigger) == expected


@pytest.mark.parametrize(
    ("raw", "kind", "field"),
    [
        ({"cron": "* * * * *", "every": "5m"}, InvalidInput, "trigger"),
        ({"baselineCron": "* * * * *", "baselineIntervalMs": 60_000}, InvalidInput, "trigger"),
        ({}, InvalidInput, "trigger"),
        ({"manual": False}, InvalidInput, "trigger"),
        (5, InvalidInput, "trigger"),
        ([], InvalidInput, "trigger.triggers"),
        ({"kind": "webhook"}, InvalidInput, "trigger.kind"),
        ({"kind": 5}, InvalidInput, "trigger.kind"),
        ({"kind": "cron"}, InvalidInput, "trigger.expression"),
        ({"kind": "cron", "cron": "* * * * *", "interval_ms": 5}, UnknownField, "trigger.interval_ms"),
        ({"every": "5m", "zone": "UTC"}, UnknownField, "trigger.zone"),
        ({"cron": "@every 90s", "zone": "UTC"}, UnknownField, "trigger.zone"),
        ({"every": 300}, InvalidDuration, "trigger.interval"),
        ({"every": True}, InvalidDuration, "trigger.interval"),
        ({"every_ms": 1.5}, InvalidDuration, "trigger.interval_ms"),
        ({"once": "tomorrow"}, InvalidInstant, "trigger.at"),
        ({"once": datetime(2026, 1, 1)}, InvalidInstant, "trigger.at"),
        ({"once": float("nan")}, InvalidInstant, "trigger.at_ms"),
        ({"cron": "61 * * * *"}, InvalidCron, "trigger.cron.minute"),
        ({"cron": 5}, InvalidInput, "trigger.expression"),
        ({"cron": "* * * * *", "zone": "Mars"}, InvalidZone, "trigger.zone"),
        ([{"every": "5m"}, {"after": "5m"}], InvalidInput, "trigger.triggers[1].kind"),
        ([{"every": "5m"}, {"manual": True}], InvalidInput, "trigger.triggers[1].kind"),
    ],
)
def test_an_ambiguous_trigger_is_refused_with_its_path(raw: Any, kind: type, field: str) -> None:
    error = refusal(decode, raw, AnyTrigger, field="trigger")
    assert (type(error), error.field) == (kind, field)


# Targets


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"http": {"method": "post", "url": "https://x.test/"}}, Http(url="https://x.test/", method="POST")),
        ({"http": "POST https://x.test/"}, Http(url="https://x.test/", method="POST")),
        ({"http": "https://x.test/", "timeout_ms": 5000}, Http(url="https://x.test/", timeout=5 * SECOND)),
        ("PUT https://x.test/a b", Http(url="https://x.test/a b", method="PUT")),
        ({"url": "https://x.test/", "bodyJson": {"a": [1]}}, Http(url="https://x.test/", body={"a": [1]})),
        ({"call": "reports.nightly"}, Call(name="reports.nightly")),
        ({"call": {"name": "f", "args": {"x": 1}}}, Call(name="f", args={"x": 1})),
        ({"handler": "f"}, Call(name="f")),
        ("reports.nightly", Call(name="reports.nightly")),
        ({"shell": ["ls", "-l"]}, Shell(command=("ls", "-l"))),
        ({"shell": {"command": ["ls"], "env": {"A": "b"}}}, Shell(command=("ls",), env={"A": "b"})),
        ({"command": ["ls"]}, Shell(command=("ls",))),
        ({"note": "stand up"}, Note(text="stand up")),
        ({"workflow": "etl", "version": 2}, Workflow(workflow="etl", version=2)),
        ({"workflow_id": "etl", "user_id": "u1"}, Workflow(workflow="etl", user="u1")),
        ({"handoff": True}, Handoff()),
        ({"handoff": {"payload": {"a": 1}}}, Handoff(payload={"a": 1})),
        ({"publish": {"to": "celery", "task": "send"}}, Publish(to="celery", name="send")),
        ({"kind": "NOTE", "text": "x"}, Note(text="x")),
        (Note(text="x"), Note(text="x")),
    ],
)
def test_short_forms_of_targets_are_expanded(raw: Any, expected: AnyTarget) -> None:
    assert decode(raw, AnyTarget) == expected


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({}, "target"),
        (5, "target"),
        ({"http": "https://x.test", "note": "x"}, "target"),
        ({"shell": "rm -rf /"}, "target.shell"),
        ({"shell": []}, "target.command"),
        ({"kind": "fax"}, "target.kind"),
        ({"http": {"url": "https://x.test", "methd": "GET"}}, "target.methd"),
        ({"http": {"url": "https://x.test", "method": "FETCH"}}, "target.method"),
        ({"http": {"url": "https://x.test", "timeout": "1h"}}, "target.timeout"),
        ({"http": {"url": "https://x.test", "headers": {"a": 1}}}, "target.headers.a"),
        ({"http": {}}, "target.url"),
        ({"note": ""}, "target.text"),
        ({"call": {"name": "f", "args": {"x": float("inf")}}}, "target.args.x"),
        ({"call": {"name": "f", "args": {"x": date(2026, 1, 1)}}}, "target.args.x"),
        ({"call": {"name": "f", "args": {1: "x"}}}, "target.args"),
        ({"call": {"name": "f", "args": {"x": 2**70}}}, "target.args.x"),
    ],
)
def test_an_ambiguous_target_is_refused_with_its_path(raw: Any, field: str) -> None:
    assert refusal(decode, raw, AnyTarget, field="target").field == field


# Policies


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"base": "2s"}, Exponential(base=2 * SECOND)),
        ({"factor": 3}, Exponential(factor=3.0)),
        ({"base_ms": 500, "cap_ms": 1000}, Exponential(base=SECOND / 2, cap=SECOND)),
        ({"kind": "constant", "delay": "2s"}, Constant(wait=2 * SECOND)),
        ({"wait": "2s"}, Constant(wait=2 * SECOND)),
        ("2s", Constant(wait=2 * SECOND)),
        ("ladder", Ladder()),
        (["1s", "2s"], Ladder(steps=(SECOND, 2 * SECOND))),
        ({"ladder": ["1s"]}, Ladder(steps=(SECOND,))),
        ({"exponential": {"cap": "5m"}, "jitter": 0.5}, Exponential(cap=5 * MINUTE, jitter=0.5)),
    ],
)
def test_short_forms_of_backoffs_are_expanded(raw: Any, expected: Any) -> None:
    assert decode({"backoff": raw}, Retry).backoff == expected


def test_a_number_of_attempts_and_a_lease_may_stand_beside_their_other_fields() -> None:
    retried = made(retry=3, backoff="5m").retry
    assert (retried.max_attempts, retried.backoff) == (3, Constant(wait=5 * MINUTE))
    assert made(backoff="5m", retry=3).retry == retried
    lease = made(lease="2m", time_limit="1h").lease
    assert (lease.length, lease.time_limit) == (2 * MINUTE, HOUR)
    assert refusal(made, retry=3, max_attempts=4).field == "retry.max_attempts"
    assert refusal(made, retry=[3], backoff="5m").field == "retry"


def test_a_base_above_the_cap_is_refused_wherever_it_is_written() -> None:
    long = {"base": "5m"}
    for field, call in (
        ("retry.backoff.base", lambda: made(retry={"max_attempts": 5, "backoff": long})),
        ("retry.backoff.base", lambda: made(backoff_base="5m")),
        ("retry.backoff.base", lambda: made(retry={"backoff": Exponential(base=5 * MINUTE)})),
        ("retry.backoff.base", lambda: decode_changes({"backoff": long}, of=made(), now=NOON)),
        ("policy.backoff.base", lambda: decode_policy({"backoff": long})),
        ("retry.backoff.base", lambda: made(backoff={"base": "5m", "cap": "2m"})),
    ):
        error = refusal(call)
        assert (error.field, error.value) == (field, "'5m'")
        assert error.fix == "cap: 1h beside the base, or backoff: 5m for the same delay each time"
    assert "the cap, 1m" in error.message or "the cap, 2m" in error.message
    routine = made(preset="routine", backoff=long).retry.backoff
    assert isinstance(routine, Exponential)
    assert routine.cap == DAY


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("none", Steady()),
        ("STRETCH", Stretch()),
        ({"stretch": 3}, Stretch(3)),
        ({"kind": "stretch", "doublings": 4}, Stretch(4)),
        (["1s"], Ladder(steps=(SECOND,))),
        ({"steps": ["1s"]}, Ladder(steps=(SECOND,))),
    ],
)
def test_short_forms_of_cadences_are_expanded(raw: Any, expected: Any) -> None:
    assert made(cadence=raw).cadence == expected


@pytest.mark.parametrize(
    ("field", "word", "expected"),
    [
        ("overlap", "FORBID", Overlap.SKIP),
        ("concurrencyPolicy", "REPLACE", Overlap.REPLACE),
        ("overlap_policy", "queue", Overlap.QUEUE),
        ("overlap", "allow_multiple", Overlap.ALLOW),
        ("overlap", "coalesce_if_active", Overlap.SKIP),
        ("overlap", "skip-if-active", Overlap.SKIP),
        ("catch_up", "SKIP", CatchUp.NONE),
        ("catchUpPolicy", "LAST", CatchUp.LAST),
        ("catchup_policy", "fire_immediately", CatchUp.ALL),
        ("catch_up", "run_all_missed", CatchUp.ALL),
        ("catch_up", "skip_missed", CatchUp.NONE),
        ("catch_up", "run_once", CatchUp.LAST),
        ("catch_up", "Spread", CatchUp.SPREAD),
        ("priority", "critical", 0),
        ("priority", "HIGH", 50),
        ("priority", "MEDIUM", 100),
        ("priority", "Low", 200),
        ("priority", 7, 7),
    ],
)
def test_aliases_of_enum_values_are_accepted(field: str, word: Any, expected: Any) -> None:
    name = {"concurrencyPolicy": "overlap", "overlap_policy": "overlap"}.get(field, field)
    name = {"catchUpPolicy": "catch_up", "catchup_policy": "catch_up"}.get(name, name)
    assert getattr(made(**{field: word}), name) == expected


def test_every_value_alias_maps_to_an_enum_member() -> None:
    for choices, words in CHOICE_ALIASES.items():
        assert set(words.values()) <= {choice.value for choice in choices}
        assert not set(words) & {
            choice.value for choice in choices if words.get(choice.value) != choice.value
        } or (choices is CatchUp)


def test_every_field_alias_maps_to_an_existing_field() -> None:
    for cls, names in FIELD_ALIASES.items():
        known = {field.name for field in type_info(cls).fields}  # type: ignore[attr-defined]
        assert {path[0] for path in names.values()} <= known, cls
        assert all(word == snake_case(word) for word in names)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("SUCCESS", Succeeded()),
        ({"status": "SUCCESS", "result": {"rows": 3}}, Succeeded(result={"rows": 3})),
        ("useful", Succeeded(outcome_label="useful")),
        ({"outcome": "noop"}, Succeeded(outcome_label="noop")),
        ("FAILED", Failed(error="failed")),
        ({"kind": "failed", "error": "503", "final": True}, Failed(error="503", final=True)),
        ("timeout", TimedOut()),
        ({"status": "CANCELED"}, Cancelled()),
    ],
)
def test_an_outcome_may_be_a_word(raw: Any, expected: Outcome) -> None:
    assert decode(raw, Outcome) == expected


def test_an_invalid_outcome_is_refused() -> None:
    for raw in ("great", 5, {"status": 5}, {}):
        assert refusal(decode, raw, Outcome, field="outcome").field == "outcome"


def test_aliases_set_nested_fields() -> None:
    schedule = made(
        maxRetries=5,
        retryDelayMs=250,
        backoffCapMs=9000,
        timeoutMs=90_000,
        leaseTtlMs=60_000,
        minIntervalMs=1000,
        maxIntervalMs=2000,
        jitter_ms=500,
        maxRuns=9,
    )
    assert schedule.retry == Retry(max_attempts=5, backoff=Exponential(base=SECOND / 4, cap=9 * SECOND))
    assert schedule.lease == LeaseTerms(length=MINUTE, time_limit=90 * SECOND)
    assert schedule.clamp == Clamp(min=SECOND, max=2 * SECOND)
    assert (schedule.jitter, schedule.max_runs) == (SECOND / 2, 9)


def test_an_alias_and_its_object_can_be_combined_unless_both_set_one_field() -> None:
    assert made(retry={"exhausted": "park"}, maxRetries=2).retry == Retry(
        max_attempts=2, exhausted=Exhausted.PARK
    )
    assert made(retry=4).retry.max_attempts == 4
    assert made(lease="1m").lease.length == MINUTE
    assert refusal(made, retry={"maxAttempts": 1}, maxRetries=2).field == "retry.max_attempts"
    assert refusal(made, retry=1, maxRetries=2).field == "retry.max_attempts"
    error = refusal(made, trigger="0 9 * * *", every="1h")
    assert error.message == "trigger '0 9 * * *' cannot be combined with every: '1h'"
    assert error.fix == "trigger: {…, every: '1h'}, or remove one of them"
    assert refusal(made, jitter="1s", jitter_ms=500).field == "jitter"


def test_an_unknown_field_is_refused_with_the_most_similar_one() -> None:
    error = refusal(made, overlp="skip")
    assert (type(error), error.field, error.fix) == (UnknownField, "overlp", "did you mean overlap?")
    assert refusal(made, retry={"max_atempts": 3}).fix == "did you mean max_attempts?"
    assert refusal(made, qqqqqqqq=1).fix == "leave it out"
    assert refusal(made, priority_ms=5).field == "priority_ms"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_runs": 0}, "max_runs"),
        ({"max_runs": True}, "max_runs"),
        ({"max_runs": 1.0}, "max_runs"),
        ({"max_runs": "3"}, "max_runs"),
        ({"catch_up_limit": 10_001}, "catch_up_limit"),
        ({"adaptive": "yes"}, "adaptive"),
        ({"adaptive": 1}, "adaptive"),
        ({"description": 5}, "description"),
        ({"description": "x" * 10_001}, "description"),
        ({"description": "a\0b"}, "description"),
        ({"description": "a\ud800"}, "description"),
        ({"description": None}, "description"),
        ({"tags": "a"}, "tags"),
        ({"tags": ["a", 5]}, "tags[1]"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"a": {"b": [float("nan")]}}}, "metadata.a.b[0]"),
        ({"metadata": {"a": object()}}, "metadata.a"),
        ({"overlap": "never"}, "overlap"),
        ({"overlap": 5}, "overlap"),
        ({"preset": "turbo"}, "preset"),
        ({"priority": "urgent"}, "priority"),
        ({"priority": 1001}, "priority"),
        ({"priority": -1}, "priority"),
        ({"grace": -5}, "grace"),
        ({"grace": timedelta(seconds=-5)}, "grace"),
        ({"grace": "-5s"}, "grace"),
        ({"start_at": date(2026, 4, 1)}, "start_at"),
        ({"start_at": datetime(2026, 4, 1)}, "start_at"),
        ({"retry": {"backoff": {"factor": 0.5}}}, "retry.backoff.factor"),
        ({"retry": {"backoff": {"jitter": 2}}}, "retry.backoff.jitter"),
        ({"retry": {"backoff": {"steps": []}}}, "retry.backoff.steps"),
        ({"retry": {"backoff": 5}}, "retry.backoff"),
        ({"cadence": "often"}, "cadence"),
        ({"lease": {"length": "0s"}}, "lease.length"),
        ({"clamp": {"min": "5m", "max": "1m"}}, "clamp.min"),
        ({"calendar": {"only": ["a"], "except": ["a"]}}, "calendar.except"),
        ({"calendar": {"roll": "sideways"}}, "calendar.roll"),
        ({"limits": {"api": 5}}, "limits"),
        ({"created_at": "2026-01-01T00:00:00Z"}, "created_at"),
        ({"revision": 3}, "revision"),
        ({"id": "sch_other"}, "id"),
    ],
)
def test_a_wrong_value_is_refused_with_the_path_to_it(fields: dict[str, Any], field: str) -> None:
    assert refusal(made, **fields).field == field


def test_a_number_for_a_duration_is_refused_with_a_unit() -> None:
    assert refusal(made, grace=90).fix == "90s"
    assert refusal(made, max_runs="3").fix == "3 without quotes"


def test_a_field_name_that_is_not_text_is_refused() -> None:
    for raw in ({5: 1}, {None: 1}, {"x" * 300: 1}):
        assert refusal(decode, raw, QueuePolicy, field="policy").field


# Whole schedules


def test_a_schedule_needs_a_name_a_trigger_and_a_target() -> None:
    whole = {"name": "report", "every": "1h", "note": "hello"}
    for missing, field in (("name", "name"), ("every", "trigger"), ("note", "target")):
        error = refusal(read, {key: value for key, value in whole.items() if key != missing})
        assert error.field == field
    not_mappings: tuple[Any, ...] = (None, [], "report", 5)
    for raw in not_mappings:
        assert refusal(read, raw).field == "input"


def test_an_interval_is_anchored_at_creation_unless_it_says_otherwise() -> None:
    assert made().trigger == Every(HOUR, NOON)
    anchored = made(every="1h", anchor="2026-03-01T00:00:00Z").trigger
    assert anchored == Every(HOUR, datetime(2026, 3, 1, tzinfo=UTC))
    error = refusal(made, anchor="1980-01-01T00:00:00Z")
    assert error.field == "trigger.anchor"


def test_an_interval_below_the_floor_is_refused_or_raised_as_set() -> None:
    assert refusal(made, every="0.5s").field == "trigger.every"
    raising = Floor(interval=MINUTE, action=FloorAction.RAISE)
    raw = {"name": "report", "note": "hello"}
    assert read({**raw, "every": "5s"}, floor=raising).trigger == Every(MINUTE, NOON)
    assert read({**raw, "after": "5s"}, floor=raising).trigger == After(MINUTE)
    several = read({**raw, "trigger": ["every 5s", "every 1h"]}, floor=raising).trigger
    assert several == AnyOf((Every(MINUTE, NOON), Every(HOUR, NOON)))
    assert refusal(read, {**raw, "after": "0s"}).field == "trigger.after"
    assert refusal(read, {**raw, "trigger": ["every 0.1s", "every 1h"]}).field == "trigger.every"


def test_the_minimum_interval_of_a_preset_applies_before_the_configured_one() -> None:
    raw = {"name": "report", "note": "hello", "preset": "desktop", "every": "5s"}
    assert read(raw).trigger == Every(10 * SECOND, NOON)
    assert refusal(read, raw, floor=Floor(interval=MINUTE)).field == "trigger.every"


def test_a_hashed_expression_is_spread_by_the_schedules_id() -> None:
    raw = {"name": "report", "note": "hello", "cron": "H H * * *"}
    first, second = (decode_schedule(raw, id=key, now=NOON).trigger for key in ("sch_1", "sch_2"))
    assert isinstance(first, Cron)
    assert isinstance(second, Cron)
    assert (first.key, second.key) == ("sch_1", "sch_2")
    assert read({**raw, "key": "mine"}).trigger == Cron("H H * * *", key="mine")
    assert read({**raw, "cron": "0 9 * * THU"}).trigger == Cron("0 9 * * THU")
    several = read({"name": "r", "note": "x", "trigger": ["H 9 * * *", "every 1h"]}).trigger
    assert several == AnyOf((Cron("H 9 * * *", key="sch_1"), Every(HOUR, NOON)))


def test_a_request_may_take_its_timeout_and_a_little_more() -> None:
    def limit(**fields: Any) -> timedelta | None:
        return read({"name": "r", "every": "1h", **fields}).lease.time_limit

    assert limit(http="https://x.test/") == 40 * SECOND
    assert limit(http={"url": "https://x.test/", "timeout": "20m"}) == 20 * MINUTE + 10 * SECOND
    assert limit(url="https://x.test/", timeoutMs=600_000) == 610 * SECOND
    assert limit(url="https://x.test/", timeoutMs=600_000, maxExecutionTimeMs=5000) == 5 * SECOND
    assert limit(http={"url": "https://x.test/", "timeout": "20m"}, lease={"timeLimit": "1m"}) == MINUTE
    assert limit(note="x", timeoutMs=5000) == 5 * SECOND


def test_names_are_normalized() -> None:
    schedule = made(name="cafe\u0301", group="e\u0301", tags=["e\u0301"], queue="e\u0301", limits=["e\u0301"])
    assert (schedule.name, schedule.group, schedule.queue) == ("café", "é", "é")
    assert (schedule.tags, schedule.limits) == (("é",), ("é",))
    assert refusal(made, tags=["ok", "a\nb"]).field == "tags[1]"
    assert refusal(made, namespace="x" * 65).field == "namespace"


def test_a_preset_overrides_defaults_and_given_fields_override_the_preset() -> None:
    defaults = {"overlap": Overlap.QUEUE, "jitter": SECOND, "retry": Retry(max_attempts=9)}
    raw = {"name": "r", "every": "1h", "note": "x"}
    assert read(raw, defaults=defaults).overlap is Overlap.QUEUE
    preset = read({**raw, "preset": "workflow"}, defaults=defaults)
    assert (preset.overlap, preset.jitter, preset.retry.max_attempts) == (Overlap.SKIP, SECOND, 3)
    written = read({**raw, "preset": "workflow", "overlap": "allow", "maxRetries": 7}, defaults=defaults)
    assert (written.overlap, written.retry) == (Overlap.ALLOW, Retry(max_attempts=7, backoff=Constant()))


def test_a_preset_keeps_its_kind_of_backoff_when_only_the_delay_is_written() -> None:
    raw = {"name": "r", "every": "1h", "note": "x", "preset": "workflow"}
    assert read({**raw, "retryDelayMs": 250}).retry.backoff == Constant(wait=SECOND / 4)
    assert read({**raw, "backoff": {"base": "2s"}}).retry.backoff == Exponential(base=2 * SECOND)


def test_a_schedule_that_could_never_run_is_refused_and_the_past_needs_catch_up() -> None:
    raw = {"name": "r", "note": "x", "at": "2026-03-10T11:00:00Z"}
    assert refusal(read, raw).field == "trigger.at"
    assert read({**raw, "catch_up": "last"}).trigger == Once(NOON - HOUR)
    assert refusal(made, end_at="2026-03-10T11:00:00Z").field == "end_at"
    never = refusal(read, {"name": "r", "note": "x", "cron": "0 0 30 2 *"})
    assert never.field == "trigger.cron: day 30 in month 2 (February has at most 29 days)"
    assert never.display_field == "day 30 in month 2 (February has at most 29 days)"


def test_system_fields_cannot_be_set() -> None:
    schedule = read(
        {"name": "r", "every": "1h", "note": "x", "id": "sch_1"},
        created_by="ann",
        origin="agent",
        namespace="team",
    )
    assert (schedule.created_by, schedule.origin, schedule.namespace) == ("ann", "agent", "team")
    assert (schedule.created_at, schedule.revision) == (NOON, 1)


def test_missing_fields_of_an_edit_keep_their_value() -> None:
    before = made(retry={"max_attempts": 7, "backoff": ["1s", "2s"]}, tags=["a"])
    after = decode({"retry": {"exhausted": "park"}, "overlap": "allow"}, Schedule, base=before)
    assert after == replace(
        before, overlap=Overlap.ALLOW, retry=replace(before.retry, exhausted=Exhausted.PARK)
    )
    assert decode({}, Schedule, base=before) == before


# Limits


def test_data_that_is_too_deep_too_large_or_contains_itself_is_refused_quickly() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    for payload in (deep, loop, ["x"] * 100_001, "x" * 5_000_000):
        assert refusal(made, metadata={"a": payload}).field == "input"
    nested: Any = 1
    for _ in range(MAX_DEPTH - 3):
        nested = [nested]
    assert made(metadata={"a": nested}).metadata == {"a": nested}


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.sampled_from(
        ["5m", "UTC", "skip", "0 9 * * *", "https://x.test/", "cron", "every", "2026-04-01T00:00:00Z"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8)
            | st.sampled_from(
                [
                    "kind",
                    "cron",
                    "every",
                    "url",
                    "base",
                    "steps",
                    "backoff",
                    "delay",
                    "interval_ms",
                    "name",
                    "triggers",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
fields = st.sampled_from(
    [*sorted(FIELD_ALIASES[Schedule]), *Schedule.__struct_fields__, "jitter_ms", "timeoutMs", "x"]
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(given_fields=st.dictionaries(fields, junk, max_size=5))
def test_any_data_is_a_schedule_or_refused_with_all_details(given_fields: dict[str, Any]) -> None:
    try:
        schedule = read({"name": "r", "every": "1h", "note": "x", **given_fields})
    except TimewrightError as error:
        said = (error.field, error.rule, error.fix)
        if not all(said):
            raise AssertionError(said) from error
    else:
        assert decode(json.loads(json.dumps(encode(schedule))), Schedule) == schedule


# Round trips


def survives(value: Any) -> None:
    written = encode(value)
    assert decode(written, type(value)) == value
    assert decode(json.loads(json.dumps(written)), type(value)) == value


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=values.schedules())
def test_a_schedule_survives_being_written_and_read(schedule: Schedule) -> None:
    survives(schedule)


@given(
    value=st.one_of(
        values.policies,
        values.calendars,
        values.retries,
        values.leases,
        values.clamps,
        values.hints,
        values.rules,
    )
)
def test_every_part_survives_being_written_and_read(value: Any) -> None:
    survives(value)


@given(hints=values.hints, cursor=values.moments, failures=st.integers(0, 10**6))
def test_the_progress_of_a_schedule_survives_being_written_and_read(
    hints: Hints, cursor: datetime, failures: int
) -> None:
    survives(
        ScheduleProgress(
            cursor=cursor, hints=hints, failures=failures, state=ScheduleState.PARKED, reason="why"
        )
    )


def test_a_run_survives_being_written_and_read() -> None:
    survives(
        Run(id="r", planned_at=NOON, fire_at=NOON, state=RunState.READY, created_at=NOON, payload={"a": [1]})
    )


def test_output_has_one_canonical_form() -> None:
    written = encode(made(overlap="FORBID", priority="HIGH", catchUpPolicy="SKIP", timeoutMs=90_000))
    assert (written["overlap"], written["priority"], written["catch_up"]) == ("skip", 50, "none")
    assert written["lease"] == {"length": "1m", "time_limit": "1m30s", "grace": "10s"}
    assert written["trigger"] == {"kind": "every", "interval": "1h", "anchor": "2026-03-10T12:00:00Z"}
    assert written["created_at"] == "2026-03-10T12:00:00Z"
    assert written["calendar"] is None
    assert set(written) == set(Schedule.__struct_fields__)
    rule = encode(CalendarRule(except_=("holidays",)))
    assert rule == {"only": [], "except": ["holidays"], "roll": "skip"}


def test_a_calendar_is_read_like_everything_else() -> None:
    raw = {"name": "off", "dates": ["2026-12-25", date(2026, 12, 26)], "weekly": [{"days": [5, 6]}]}
    assert decode(raw, Calendar).dates == (date(2026, 12, 25), date(2026, 12, 26))
    for day in ("2026-02-30", "2026-W01-1", 20261225, datetime(2026, 1, 1), None):
        assert (
            refusal(decode, {"name": "off", "dates": [day]}, Calendar, field="calendar").field
            == "calendar.dates[0]"
        )
    assert made(calendar={"except": "off"}).calendar == CalendarRule(except_=("off",))


def test_phrases_in_several_zones_are_repeated_each_with_its_own() -> None:
    texts = ["day at 9 Asia/Tokyo", "day at 10 Europe/Paris", "day at 11"]
    draft = {"name": "x", "note": "x", "trigger": texts}
    schedule = decode_schedule(draft, id="sch_x", now=NOON, zone="Europe/Berlin")
    assert describe_phrase(draft, schedule, zone="Europe/Berlin").split("; ") == [
        "every day at 09:00, Asia/Tokyo",
        "every day at 10:00, Europe/Paris",
        "every day at 11:00, Europe/Berlin",
    ]


@pytest.mark.parametrize("value", [-1, True, "failure"])
def test_a_list_of_triggers_that_is_no_list_is_refused_inside_a_list(value: object) -> None:
    assert refusal(decode, [{"triggers": value}, "@hourly"], AnyTrigger).field == "triggers[0].kind"


def test_an_enum_member_is_accepted_as_a_value() -> None:
    assert made(delivery=Delivery.AT_MOST_ONCE).delivery is Delivery.AT_MOST_ONCE
    assert made(clamp=Clamp(min=SECOND)).clamp == Clamp(min=SECOND)


# Policy and queue files


def test_a_missing_policy_gives_the_defaults() -> None:
    assert decode_policy(None) == decode_policy({}) == QueuePolicy()
    assert decode_policy({"schemaVersion": 1, "maxConcurrent": 4}).max_running == 4


@pytest.mark.parametrize(
    "raw",
    [
        {"maxConcurrent": 0},
        {"maxConcurrent": "8"},
        {"maxConcurrent": 1.5},
        {"leaseTtlMs": 0},
        {"leaseTtlMs": -1},
        {"backoffFactor": 0.5},
        {"backoffBaseMs": "1s"},
        {"max_parallel": 3},
        {"schemaVersion": 2},
        [],
        "max",
    ],
)
def test_an_invalid_policy_is_refused_as_a_whole(raw: Any) -> None:
    assert (refusal(decode_policy, raw).field or "").startswith("policy")


def test_an_old_queue_file_loads_unchanged() -> None:
    (entry,) = decode_queue_file(
        [{"id": "a", "enqueuedAt": "2025-12-31T00:00:00Z", "repo": "x", "note": {"n": 1}}]
    )
    assert (entry.id, entry.priority, entry.state, entry.attempts) == ("a", 100, RunState.READY, 0)
    assert (entry.lease_until, entry.next_eligible_at, entry.reason) == (None, None, "")
    assert entry.payload == {"repo": "x", "note": {"n": 1}}


def test_a_new_queue_file_keeps_leases_backoff_and_parks() -> None:
    rows = [
        {
            "id": "a",
            "enqueuedAt": "2026-03-10T12:00:00Z",
            "status": "leased",
            "leaseId": "L",
            "leaseExpiresAt": "2026-03-10T13:00:00Z",
        },
        {
            "id": "b",
            "enqueuedAt": "2026-03-10T12:00:00Z",
            "status": "parked",
            "attempts": 3,
            "parkedReason": "3/3",
            "priority": 7,
        },
        {
            "id": "c",
            "enqueuedAt": "2026-03-10T12:00:00Z",
            "status": "drained",
            "nextEligibleAt": "2026-03-10T12:00:01Z",
        },
    ]
    a, b, c = decode_queue_file({"schemaVersion": 1, "entries": rows})
    assert (a.state, a.lease_id, a.lease_until) == (RunState.LEASED, "L", NOON + HOUR)
    assert (b.state, b.attempts, b.reason, b.priority) == (RunState.PARKED, 3, "3/3", 7)
    assert (c.state, c.next_eligible_at) == (RunState.SUCCEEDED, NOON + SECOND)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"schemaVersion": 99, "entries": []}, "queue.schemaVersion"),
        ({"schemaVersion": True, "entries": []}, "queue.schemaVersion"),
        ({"entries": {}}, "queue.entries"),
        ({}, "queue.entries"),
        (None, "queue.entries"),
        ({"entries": [5]}, "queue.entries[0]"),
        ({"entries": [{"id": "a"}]}, "queue.entries[0].enqueued_at"),
        ({"entries": [{"enqueuedAt": "2026-03-10T12:00:00Z"}]}, "queue.entries[0].id"),
        ({"entries": [{"id": "a", "enqueuedAt": "2026-03-10T12:00:00"}]}, "queue.entries[0].enqueued_at"),
        (
            {"entries": [{"id": "a", "enqueuedAt": "2026-03-10T12:00:00Z", "status": "odd"}]},
            "queue.entries[0].state",
        ),
        (
            {"entries": [{"id": "a", "enqueuedAt": "2026-03-10T12:00:00Z", "attempts": -1}]},
            "queue.entries[0].attempts",
        ),
        (
            {"entries": [{"id": "a", "enqueuedAt": "2026-03-10T12:00:00Z", "status": "leased"}]},
            "queue.entries[0].leaseExpiresAt",
        ),
        ({"entries": [{"id": "a", "enqueuedAt": "2026-03-10T12:00:00Z"}] * 2}, "queue.entries[1].id"),
    ],
)
def test_an_invalid_queue_file_is_refused_as_a_whole(raw: Any, field: str) -> None:
    assert refusal(decode_queue_file, raw).field == field


def test_a_day_is_longer_than_an_hour() -> None:
    assert made(catch_up_window="1d").catch_up_window == DAY
    assert made(catch_up_window=None).catch_up_window is None
