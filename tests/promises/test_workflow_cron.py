"""The workflow cron document, section by section, on both stores, with its faults repaired."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.workflows.conftest import (
    another,
    bare,
    clock,
    database,
    harness,
    kind,
    postgres_place,
    postgres_template,
    postgres_url,
)
from tests.workflows.workflow_kit import JsonObject, WorkflowHarness, call_step
from timewright.core.moments import parse_instant
from timewright.core.run.run import occurrence_key
from timewright.errors import InvalidInput
from timewright.testing.targets import fail, succeed, vanish

__all__ = [
    "another",
    "bare",
    "clock",
    "database",
    "harness",
    "kind",
    "postgres_place",
    "postgres_template",
    "postgres_url",
]

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def deploy(harness: WorkflowHarness, **schedule: Any) -> JsonObject:
    """Deploy a workflow of one step with one schedule, in the fields of the document."""
    written = {"user_id": "u1", "cron_expr": "* * * * *", "timezone": "UTC", **schedule}
    harness.put(call_step("work"), name="etl", schedules=[{"schedule_id": "etl-cron", **written}])
    return look(harness)


def look(harness: WorkflowHarness) -> JsonObject:
    return harness.ask("schedule get", schedule="etl-cron")


def rows(harness: WorkflowHarness) -> list[JsonObject]:
    """The runs of the schedule, by planned instant."""
    found = harness.ask("run list", schedule="etl-cron", limit=1000)["runs"]
    return sorted(found, key=lambda row: row["planned_at"])


def told(harness: WorkflowHarness) -> list[str]:
    return [row["reason"] or row["state"] for row in rows(harness)]


def launches(harness: WorkflowHarness) -> list[datetime]:
    """The planned instants of the launches."""
    return [launch.planned_at for launch in harness.target.launched if launch.schedule_id]


class TestPurpose:
    """§1 and §2: purpose and scope."""

    def test_schedules_are_registered_changed_and_paused_as_workflows_are_deployed(
        self, harness: WorkflowHarness
    ) -> None:
        first = deploy(harness)
        harness.ask("schedule pause", schedule="etl-cron")
        again = deploy(harness, cron_expr="*/5 * * * *")
        assert again["schedule"]["id"] == first["schedule"]["id"]
        assert again["schedule"]["trigger"]["expression"] == "*/5 * * * *"
        # The document's upsert always clears the pause; here an operator's pause stays.
        assert again["progress"]["state"] == "paused"

    def test_schedule_based_triggers_of_a_dag_become_its_schedules(self, harness: WorkflowHarness) -> None:
        trigger = {"type": "schedule_based", "cron_expr": "0 6 * * *", "timezone": "Europe/Berlin"}
        harness.put(call_step("work"), name="etl", triggers=[{**trigger, "schedule_id": "etl-cron"}])
        assert look(harness)["progress"]["next_at"] == "2026-03-11T05:00:00Z"
        with pytest.raises(InvalidInput) as refusal:
            harness.put(call_step("work"), name="etl", triggers=[{"type": "webhook"}])
        assert "'webhook' is not a schedule" in str(refusal.value)

    def test_it_wakes_on_time_also_when_the_clocks_change(self, harness: WorkflowHarness) -> None:
        harness.bench.clock.step(datetime(2026, 3, 27, 12, tzinfo=UTC))
        deploy(harness, cron_expr="30 2 * * *", timezone="Europe/Berlin")
        harness.advance(days=3)
        spelled = [row["planned_at"] for row in rows(harness)]
        # On the 29th, 02:30 does not exist: the clocks jump from 02:00 to 03:00.
        assert spelled == ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]

    def test_a_run_is_launched_with_the_workflow_the_version_the_user_the_time_and_the_key(
        self, harness: WorkflowHarness
    ) -> None:
        schedule = deploy(harness)["schedule"]
        harness.advance(minutes=1)
        launch = harness.target.launched[0]
        target: Any = launch.target
        assert (target.workflow, target.version, target.user) == ("etl", 1, "u1")
        assert launch.planned_at == datetime(2026, 3, 10, 12, 1, tzinfo=UTC)
        assert launch.key == occurrence_key(schedule["id"], launch.planned_at)

    def test_next_times_and_recent_runs_can_be_seen(self, harness: WorkflowHarness) -> None:
        deploy(harness)
        harness.advance(minutes=3)
        seen = [one["planned_at"][11:16] for one in look(harness)["next"]]
        assert seen == ["12:04", "12:05", "12:06", "12:07", "12:08"]
        recent = harness.ask("run list", schedule="etl-cron", limit=2)["runs"]
        assert [row["planned_at"][11:16] for row in recent] == ["12:03", "12:02"]


class TestData:
    """§3: the data of schedules and runs."""

    def test_omitted_fields_have_the_documented_defaults(self, harness: WorkflowHarness) -> None:
        detail = deploy(harness)
        kept = detail["schedule"]
        assert (kept["overlap"], kept["catch_up"], kept["jitter"]) == ("skip", "none", "0s")
        assert (kept["start_at"], kept["end_at"]) == (None, None)
        assert detail["progress"]["state"] == "active"

    @pytest.mark.parametrize(("cron", "first"), [("*/5 * * * *", "12:05:00"), ("30 */5 * * * *", "12:00:30")])
    def test_five_fields_or_six(self, harness: WorkflowHarness, cron: str, first: str) -> None:
        assert deploy(harness, cron_expr=cron)["progress"]["next_at"][11:19] == first

    def test_the_next_time_is_kept_in_utc_whatever_the_zone(self, harness: WorkflowHarness) -> None:
        detail = deploy(harness, cron_expr="0 9 * * *", timezone="America/New_York")
        assert detail["progress"]["next_at"] == "2026-03-10T13:00:00Z"

    def test_the_key_of_a_run_is_the_hash_of_the_schedule_and_the_planned_second(
        self, harness: WorkflowHarness
    ) -> None:
        schedule = deploy(harness)["schedule"]
        harness.advance(minutes=1)
        (row,) = rows(harness)
        epoch = int(parse_instant(row["planned_at"]).timestamp())
        spelled = hashlib.sha256(f"{schedule['id']}:{epoch}".encode()).hexdigest()
        assert harness.ask("run get", run=row["id"])["key"] == spelled

    def test_each_status_of_the_document_has_its_state(self, harness: WorkflowHarness) -> None:
        deploy(harness)
        harness.script(work=[fail(after=timedelta(minutes=5)), fail()])
        harness.advance(minutes=1)
        assert told(harness) == ["leased"]  # STARTED; ENQUEUED is the moment before
        harness.advance(minutes=1)
        assert told(harness) == ["leased", "overlap"]  # SKIPPED, and why
        harness.advance(minutes=10)
        assert set(told(harness)) >= {"overlap", "exhausted"}  # FAILED, and why
        harness.script(work=succeed())
        harness.advance(minutes=3)
        assert told(harness)[-1] == "succeeded"  # SUCCESS


class TestInterface:
    """§4: the calls."""

    def test_an_upsert_gives_the_id_and_the_next_time(self, harness: WorkflowHarness) -> None:
        deployed = harness.put(
            call_step("work"), name="etl", schedules=[{"cron_expr": "0 * * * *", "timezone": "UTC"}]
        )
        detail = harness.ask("schedule get", schedule=deployed["schedules"]["etl"])
        assert re.fullmatch(r"sch_\w{26}", detail["schedule"]["id"])
        assert detail["progress"]["next_at"] == "2026-03-10T13:00:00Z"

    def test_a_pause_holds_and_its_end_lets_go(self, harness: WorkflowHarness) -> None:
        deploy(harness)
        harness.ask("schedule pause", schedule="etl-cron")
        harness.advance(minutes=5, seconds=30)
        assert launches(harness) == []
        harness.ask("schedule resume", schedule="etl-cron")
        harness.advance(minutes=1)
        assert len(launches(harness)) == 1

    def test_a_deleted_schedule_never_fires_again_and_keeps_its_history(
        self, harness: WorkflowHarness
    ) -> None:
        deploy(harness)
        harness.advance(minutes=2)
        harness.ask("schedule delete", schedule="etl-cron")
        harness.advance(minutes=5)
        assert len(launches(harness)) == len(rows(harness)) == 2

    def test_a_schedule_shows_its_next_five_times(self, harness: WorkflowHarness) -> None:
        assert len(deploy(harness)["next"]) == 5


class TestTick:
    """§5 and §12: what one pass does."""

    def test_nothing_fires_before_its_time_however_far_the_worker_looks_ahead(
        self, harness: WorkflowHarness
    ) -> None:
        deploy(harness)
        harness.advance(seconds=59.9)
        assert rows(harness) == []
        harness.advance(seconds=0.1)
        assert launches(harness) == [datetime(2026, 3, 10, 12, 1, tzinfo=UTC)]

    def test_start_and_end_bound_the_schedule_and_both_count(self, harness: WorkflowHarness) -> None:
        # The document's "strictly after the start" loses a tick that lies exactly on it.
        deploy(harness, start_at="2026-03-10T12:02:00Z", end_at="2026-03-10T12:04:00Z")
        harness.advance(minutes=10)
        assert [row["planned_at"][14:16] for row in rows(harness)] == ["02", "03", "04"]

    def test_a_tick_that_is_there_is_not_started_again(
        self, harness: WorkflowHarness, another: Callable[[str], WorkflowHarness]
    ) -> None:
        deploy(harness)
        workers = [harness, another("second"), another("third")]
        for _ in range(5):
            harness.bench.clock.advance(MINUTE)
            for worker in workers:
                worker.bench.tick()
        planned = Counter(at for worker in workers for at in launches(worker))
        assert len(planned) == 5
        assert set(planned.values()) == {1}
        assert told(harness) == ["succeeded"] * 5


class TestPolicies:
    """§6: overlap, catch-up and jitter."""

    def test_allow_fires_always(self, harness: WorkflowHarness) -> None:
        deploy(harness, overlap_policy="allow")
        harness.script(work=succeed(after=150 * SECOND))
        harness.advance(minutes=3)
        assert told(harness) == ["leased"] * 3

    def test_skip_drops_and_records_a_tick_while_the_last_is_unfinished(
        self, harness: WorkflowHarness
    ) -> None:
        deploy(harness, overlap_policy="skip")
        harness.script(work=succeed(after=90 * SECOND))
        harness.advance(minutes=4, seconds=40)
        assert told(harness) == ["succeeded", "overlap", "succeeded", "overlap"]

    def test_queue_defers_in_order_and_loses_nothing(self, harness: WorkflowHarness) -> None:
        # The document stops emitting and moves past what it did not emit; here each tick has its row.
        deploy(harness, overlap_policy="queue", end_at="2026-03-10T12:05:00Z")
        harness.script(work=succeed(after=150 * SECOND))
        harness.advance(minutes=5)
        assert told(harness) == ["succeeded", "leased", "held", "held", "held"]
        harness.advance(hours=1)
        assert told(harness) == ["succeeded"] * 5
        assert launches(harness) == sorted(launches(harness))

    def test_none_ignores_occurrences_missed_during_an_outage(self, harness: WorkflowHarness) -> None:
        deploy(harness, cron_expr="0 * * * *", catchup_policy="none")
        harness.sleep(hours=5, minutes=30)
        harness.advance(minutes=31)
        assert told(harness) == ["missed"] * 5 + ["succeeded"]

    def test_none_still_runs_an_occurrence_due_now(self, harness: WorkflowHarness) -> None:
        # The document keeps only times at or after now, so a tick is lost if the worker wakes slightly late.
        deploy(harness, catchup_policy="none")
        harness.sleep(seconds=60.001)
        harness.bench.tick()
        assert told(harness) == ["succeeded"]

    def test_fire_immediately_emits_every_missed_tick_also_one_at_a_time(
        self, harness: WorkflowHarness
    ) -> None:
        # In the document the first of them makes all the others SKIPPED.
        deploy(harness, cron_expr="0 * * * *", catchup_policy="fire_immediately", overlap_policy="skip")
        harness.sleep(hours=5, minutes=30)
        harness.advance(minutes=1)
        assert told(harness) == ["succeeded"] * 5
        assert launches(harness) == [parse_instant(row["planned_at"]) for row in rows(harness)]

    def test_more_missed_ticks_than_one_pass_takes_are_carried_and_none_is_dropped(
        self, harness: WorkflowHarness
    ) -> None:
        deploy(
            harness, catchup_policy="fire_immediately", overlap_policy="allow", end_at="2026-03-10T14:30:00Z"
        )
        harness.sleep(hours=6)
        harness.advance(minutes=1)
        assert look(harness)["schedule"]["catch_up_limit"] == 100
        assert Counter(told(harness)) == {"succeeded": 150}

    def test_spread_distributes_missed_ticks_over_the_window_and_keeps_their_identity(
        self, harness: WorkflowHarness
    ) -> None:
        deploy(harness, cron_expr="0 * * * *", catchup_policy="spread", overlap_policy="allow")
        harness.sleep(hours=3, minutes=30)
        harness.bench.tick()
        now = harness.now
        offsets = [(parse_instant(row["fire_at"]) - now) / SECOND for row in rows(harness)]
        assert offsets == [15.0, 30.0, 45.0]
        assert [row["planned_at"][11:16] for row in rows(harness)] == ["13:00", "14:00", "15:00"]
        harness.advance(minutes=1)
        assert told(harness) == ["succeeded"] * 3

    def test_jitter_spreads_starts_is_never_early_and_replays(self, harness: WorkflowHarness) -> None:
        deploy(harness, jitter_ms=20_000, overlap_policy="allow")
        harness.advance(minutes=20)
        moved = [
            (parse_instant(r["fire_at"]) - parse_instant(r["planned_at"])) / SECOND for r in rows(harness)
        ]
        assert all(0 <= by < 20 for by in moved)
        assert len(set(moved)) > 10
        started = [(parse_instant(r["started_at"]) - parse_instant(r["fire_at"])) for r in rows(harness)[:-1]]
        assert all(by >= timedelta(0) for by in started)


class TestFailure:
    """§7: what is promised on failures."""

    def test_a_launch_is_tried_a_few_times_and_then_the_tick_has_failed(
        self, harness: WorkflowHarness
    ) -> None:
        deploy(harness, cron_expr="1 12 * * *")
        harness.ask("workflow delete", workflow="etl")
        harness.ask("schedule create", name="lost", cron="2 12 * * *", preset="workflow", workflow="etl")
        harness.advance(minutes=2, seconds=30)
        (row,) = harness.ask("run list", schedule="lost")["runs"]
        assert (row["state"], row["attempts"], row["error"]) == ("failed", 3, "no workflow etl")
        ends = [attempt["ended_at"][17:19] for attempt in harness.ask("run get", run=row["id"])["attempts"]]
        assert ends == ["00", "01", "02"]

    def test_the_row_is_there_before_the_start_so_a_crash_between_doubles_nothing(
        self, harness: WorkflowHarness, another: Callable[[str], WorkflowHarness]
    ) -> None:
        deploy(harness, cron_expr="1 12 * * *")
        harness.script(work=vanish())
        harness.advance(minutes=1)
        (row,) = rows(harness)
        key = harness.ask("run get", run=row["id"])["key"]
        heir = another("heir")
        heir.bench.clock.advance(10 * MINUTE)
        heir.advance(minutes=1)
        assert [row["id"] for row in rows(heir)] == [row["id"]]
        assert told(heir) == ["succeeded"]
        assert heir.ask("run get", run=row["id"])["key"] == key
        done = [launch for launch in heir.target.launched if launch.payload.get("step") == "work"]
        assert [launch.fence for launch in done] == [2]

    def test_a_jittered_start_outlives_the_worker_that_planned_it(
        self, harness: WorkflowHarness, another: Callable[[str], WorkflowHarness]
    ) -> None:
        # The document keeps it in a timer of the process, after moving the cursor past it.
        deploy(harness, cron_expr="1 12 * * *", jitter_ms=50_000)
        harness.bench.clock.advance(MINUTE)
        harness.bench.tick()
        (row,) = rows(harness)
        assert row["fire_at"] > row["planned_at"]
        assert row["state"] == "ready"
        heir = another("heir")
        heir.advance(minutes=1)
        assert told(heir) == ["succeeded"]
        assert len(launches(heir)) == 1

    def test_a_worker_that_restarts_goes_on_from_the_store(
        self, harness: WorkflowHarness, another: Callable[[str], WorkflowHarness]
    ) -> None:
        deploy(harness, cron_expr="0 * * * *", catchup_policy="fire_immediately")
        harness.advance(hours=1)
        heir = another("heir")
        heir.sleep(hours=2, minutes=30)
        heir.advance(minutes=1)
        assert told(heir) == ["succeeded"] * 3
        assert len(launches(harness)) + len(launches(heir)) == 3

    def test_keys_of_ticks_within_one_second_differ(self) -> None:
        at = datetime(2026, 3, 10, 12, tzinfo=UTC)
        assert occurrence_key("s", at) != occurrence_key("s", at + timedelta(milliseconds=500))

    def test_feedback_is_optional_and_silence_does_not_block_the_schedule(
        self, harness: WorkflowHarness
    ) -> None:
        # In the document a schedule whose executor never calls back fires once and never again.
        outside = {"url": "https://engine.example/start"}
        cron = {"name": "etl-cron", "cron_expr": "*/10 * * * *", "timezone": "UTC"}
        harness.put(call_step("work"), name="etl", executor=outside, schedules=[cron])
        harness.advance(minutes=35)
        assert told(harness) == ["succeeded"] * 3
        assert harness.result(rows(harness)[0]["id"]) == {"launched": True, "reported": False}

    def test_feedback_sets_the_status(self, harness: WorkflowHarness) -> None:
        outside = {"url": "https://engine.example/start"}
        cron = {"name": "etl-cron", "cron_expr": "1 12 * * *", "timezone": "UTC"}
        harness.put(call_step("work"), name="etl", executor=outside, schedules=[cron])
        harness.advance(minutes=1)
        (row,) = rows(harness)
        for word, state in (("STARTED", "leased"), ("FAILED", "failed")):
            answer = harness.ask("run report", run=row["id"], fence=row["fence"], outcome=word)
            assert answer["run"]["state"] == state


class TestDeployment:
    """§8: one worker, or many."""

    def test_no_leader_is_needed_and_two_that_scan_at_once_start_nothing_twice(
        self, harness: WorkflowHarness, another: Callable[[str], WorkflowHarness]
    ) -> None:
        deploy(harness, cron_expr="*/10 * * * * *", overlap_policy="allow")
        other = another("other")
        for n in range(12):
            harness.bench.clock.advance(10 * SECOND)
            first, second = (harness, other) if n % 2 else (other, harness)
            first.bench.tick()
            second.bench.tick()
        both = Counter([*launches(harness), *launches(other)])
        assert len(both) == 12
        assert set(both.values()) == {1}
        assert launches(harness)
        assert launches(other)


class TestSecurity:
    """§10: what is checked before it is stored."""

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("cron_expr", "61 * * * *"),
            ("cron_expr", "0 0 31 2 *"),
            ("timezone", "Nowhere/Land"),
            ("timezone", "../etc"),
        ],
    )
    def test_an_invalid_cron_or_zone_is_refused_and_stores_nothing(
        self, harness: WorkflowHarness, field: str, value: str
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            deploy(harness, **{field: value})
        assert (refusal.value.field or "").startswith("schedules[0].")
        assert harness.ask("workflow list")["workflows"] == []

    def test_a_storm_of_missed_ticks_is_bounded(self, harness: WorkflowHarness) -> None:
        deploy(harness, cron_expr="* * * * * *", catchup_policy="none")
        harness.sleep(hours=3)
        harness.advance(seconds=10)
        assert sum(row["dropped"] or 1 for row in rows(harness)) == 3 * 3600 + 10
        assert len(rows(harness)) < 1000
