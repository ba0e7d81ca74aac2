"""Why: every instant of a schedule can be asked about, those that ran, those that did not, those to come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.house import House
from timewright.core.moments import MINUTE
from timewright.errors import NotFound
from timewright.operations import operations
from timewright.operations.examples import FAILED_RUN, LEASED_RUN, PARKED_RUN
from timewright.ports import Prune
from timewright.testing.targets import fail, hang, succeed


@pytest.fixture
def empty() -> House:
    return House()


def explain(house: House, schedule: str, at: str = "", **fields: Any) -> Any:
    if at:
        fields["at"] = f"2026-03-{at}Z"
    return house.ask("schedule explain", fields, schedule=schedule)


def story(told: Any) -> str:
    return " | ".join([told["summary"], *told["because"]])


def test_one_that_ran_says_why_it_was_planned_how_late_it_was_and_how_long_it_took(house: House) -> None:
    told = explain(house, "nightly-report", "10T03:00:00")
    assert (told["fate"], told["source"]) == ("succeeded", "baseline-cron")
    assert "its trigger says so" in story(told)
    assert "started 0s after its planned time and took 0s" in story(told)
    assert told["run"]["planned_at"] == "2026-03-10T03:00:00Z"
    assert len(told["attempts"]) == 1


def test_one_that_overlapped_names_the_run_that_was_in_its_way_and_a_way_out(empty: House) -> None:
    empty.ask(
        "schedule create", name="slow", every="10m", call="slow", lease={"length": "2h", "time_limit": "1h"}
    )
    empty.bench.target.script("slow", succeed(after=15 * MINUTE), succeed())
    empty.advance(minutes=25)
    told = explain(empty, "slow", "10T12:20:00")
    assert (told["fate"], told["reason"]) == ("skipped", "overlap")
    first = empty.ask("run list", schedule="slow")["runs"][-1]
    assert first["id"] in story(told)
    assert "under way until 2026-03-10T12:25:00Z" in story(told)
    assert told["policy"]["overlap"] == "skip"
    assert told["remedies"][0]["command"] == "timewright schedule update slow --overlap queue"


def test_one_that_was_missed_says_when_someone_looked_and_which_policy_let_it_go(empty: House) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll", catch_up="none")
    empty.sleep(minutes=31)
    empty.bench.tick()
    told = explain(empty, "poll", "10T12:20:00")
    assert (told["fate"], told["reason"]) == ("skipped", "missed")
    assert "nobody looked until 2026-03-10T12:31:00Z, 11m after its time" in story(told)
    assert told["policy"] == {"catch_up": "none", "catch_up_window": "1d", "grace": "1m"}
    late = explain(empty, "poll", "10T12:30:00")
    assert late["fate"] == "succeeded"


def test_one_too_old_to_be_caught_up_says_so(empty: House) -> None:
    empty.ask("schedule create", name="poll", every="6h", call="poll", catch_up="all")
    empty.sleep(days=3)
    empty.bench.tick()
    told = explain(empty, "poll", "10T18:00:00")
    assert "nothing older than catch_up_window, 1d, is caught up" in story(told)


def test_many_that_were_dropped_are_told_as_one(empty: House) -> None:
    empty.ask("schedule create", name="poll", every="1s", call="poll", catch_up="none")
    empty.sleep(hours=1)
    empty.bench.tick()
    told = explain(empty, "poll", "10T12:30:00")
    assert told["fate"] == "skipped"
    assert told["run"]["dropped"] > 1000
    assert "occurrences from 2026-03-10T12:00:01Z to" in told["summary"]
    assert told["at"] == "2026-03-10T12:30:00Z"


def test_one_inside_a_pause_says_who_paused_and_why(house: House) -> None:
    house.ask("schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="deploy")
    house.advance(minutes=40)
    told = explain(house, "orders-poll", "10T12:18:00")
    assert (told["fate"], told["reason"]) == ("skipped", "paused")
    assert "paused by ada at 2026-03-10T12:00:00Z: deploy" in story(told)
    assert told["remedies"][0]["operation"] == "schedule backfill"


def test_one_inside_a_pause_to_come_will_be_skipped(house: House) -> None:
    house.ask("schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z")
    told = explain(house, "orders-poll", "10T12:18:00")
    assert (told["fate"], told["reason"]) == ("paused", "paused")
    assert "will be skipped: paused" in told["summary"]
    assert explain(house, "orders-poll", "10T12:38:00")["fate"] == "planned"


def test_one_that_someone_left_out_says_who(house: House) -> None:
    house.ask("schedule skip", schedule="nightly-report", reason="the server moves")
    told = explain(house, "nightly-report", "11T03:00:00")
    assert (told["fate"], told["reason"]) == ("skipped", "by_hand")
    assert "by ada at 2026-03-10T12:00:00Z: the server moves" in story(told)


def test_one_that_a_calendar_excludes_names_the_calendar_before_and_after(house: House) -> None:
    house.ask("calendar put", name="market", dates=["2026-03-12"])
    house.ask("schedule update", schedule="nightly-report", calendar={"except": ["market"]})
    ahead = explain(house, "nightly-report", "12T03:00:00")
    assert (ahead["fate"], ahead["reason"]) == ("excluded", "excluded")
    house.advance(days=3)
    behind = explain(house, "nightly-report", "12T03:00:00")
    assert (behind["fate"], behind["reason"]) == ("skipped", "excluded")
    assert "calendar market excludes this instant" in story(ahead)
    assert "calendar market excludes this instant" in story(behind)


def test_the_next_one_says_why_it_is_next_and_what_lost(house: House) -> None:
    told = explain(house, "nightly-report")
    assert (told["fate"], told["at"]) == ("planned", "2026-03-11T03:00:00Z")
    assert told["remedies"][0]["command"] == "timewright schedule skip nightly-report"
    house.ask("hint once", schedule="orders-poll", at="2026-03-10T12:01:00Z", reason="a batch")
    hinted = explain(house, "orders-poll")
    assert (hinted["fate"], hinted["source"]) == ("planned", "ai-oneshot")
    assert "over 2026-03-10T12:03:00Z (baseline-interval): a one-shot hint is earlier" in story(hinted)


def test_a_later_one_is_foreseen_from_the_trigger(house: House) -> None:
    told = house.ask("schedule explain", schedule="nightly-report", at="2031-06-01T03:00:00Z")
    assert told["fate"] == "planned"
    assert told["local"] == "2031-06-01T03:00:00+00:00"


def test_an_instant_nobody_planned_names_its_neighbours(house: House) -> None:
    for at in ("10T04:00:00", "12T04:00:00"):
        told = explain(house, "nightly-report", at)
        assert told["fate"] == "not_planned"
        assert "its trigger has no such instant" in story(told)
        assert (told["previous_at"][11:], told["next_at"][11:]) == ("03:00:00Z", "03:00:00Z")


def test_an_instant_before_the_schedule_was_made_says_so_and_can_be_backfilled(house: House) -> None:
    told = house.ask("schedule explain", schedule="nightly-report", at="2026-02-20T03:00:00Z")
    assert told["fate"] == "not_planned"
    assert "was made at 2026-03-01T00:00:00Z" in story(told)
    assert told["remedies"][0]["operation"] == "schedule backfill"


def test_an_instant_outside_its_life_says_which_end(empty: House) -> None:
    empty.ask("schedule create", name="trial", every="1h", note="x", end_at="2026-03-11T00:00:00Z")
    told = explain(empty, "trial", "12T00:00:00")
    assert "ends at 2026-03-11T00:00:00Z" in story(told)
    assert told["policy"]["end_at"] == "2026-03-11T00:00:00Z"


def test_an_instant_beyond_the_last_run_is_over(empty: House) -> None:
    empty.ask("schedule create", name="thrice", every="1h", note="x", max_runs=3)
    assert explain(empty, "thrice", "10T15:00:00")["fate"] == "planned"
    assert explain(empty, "thrice", "10T16:00:00")["fate"] == "over"


def test_one_that_is_due_while_no_engine_looks_is_undecided(house: House) -> None:
    house.sleep(minutes=5)
    told = explain(house, "orders-poll", "10T12:03:00")
    assert told["fate"] == "undecided"
    assert "came due 2m ago and no engine has looked since" in story(told)


def test_a_schedule_that_hints_move_decides_one_time_after_another(house: House) -> None:
    house.ask("hint interval", schedule="orders-poll", interval="1m")
    assert explain(house, "orders-poll", "10T12:30:00")["fate"] == "undecided"
    house.advance(minutes=10)
    assert explain(house, "orders-poll", "10T12:03:00")["fate"] == "succeeded"


def test_an_instant_that_a_hint_displaced_is_told_from_one_that_is_lost(house: House) -> None:
    house.ask("hint interval", schedule="orders-poll", interval="4m")
    house.ask("hint once", schedule="orders-poll", at="2026-03-10T12:02:00Z")
    house.advance(minutes=10)
    told = explain(house, "orders-poll", "10T12:03:00")
    assert told["fate"] == "displaced"
    assert told["run"] is None


@pytest.mark.parametrize(
    ("name", "draft", "fate", "words"),
    [
        ("by hand", {"manual": True}, "over", "runs only when asked"),
        ("paused-export", None, "paused", "by ada at 2026-03-10T11:58:00Z: group exports: the disk is full"),
    ],
)
def test_a_schedule_with_nothing_ahead_says_why(
    house: House, name: str, draft: dict[str, Any] | None, fate: str, words: str
) -> None:
    if draft is not None:
        house.ask("schedule create", draft, name=name, note="x")
    told = explain(house, name)
    assert (told["fate"], told["at"]) == (fate, None)
    assert words in story(told)


def test_a_parked_schedule_says_why_it_stopped_and_how_to_go_on(empty: House) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll", preset="desktop", disable_after=2)
    empty.bench.target.script("poll", fail("no disk"))
    empty.advance(hours=2)
    told = explain(empty, "poll")
    assert told["fate"] == "parked"
    assert "disabled after 2 failures in a row" in story(told)
    assert told["remedies"][0]["command"] == "timewright schedule resume poll"
    behind = explain(empty, "poll", "10T13:00:00")
    assert behind["fate"] == "parked"
    ahead = explain(empty, "poll", "10T20:00:00")
    assert "will not run: it stopped by itself" in ahead["summary"]


def test_a_finished_and_an_archived_schedule_say_that_nothing_follows(empty: House) -> None:
    empty.ask("schedule create", name="once", once="2026-03-10T13:00:00Z", note="x")
    empty.advance(hours=2)
    assert "it is finished" in explain(empty, "once")["summary"]
    empty.ask("schedule archive", schedule="once")
    assert "it is archived" in explain(empty, "once")["summary"]


def test_the_last_one_is_told_of_whatever_it_was(house: House) -> None:
    assert explain(house, "nightly-report", last=True)["run"]["id"] == FAILED_RUN
    never = explain(house, "orders-poll", last=True)
    assert never["because"][0] == "it has never run"


def test_one_under_way_says_who_holds_it_and_until_when(house: House) -> None:
    told = house.ask("run explain", run=LEASED_RUN)
    assert told["fate"] == "leased"
    assert (
        "worker-1 has worked on it since 2026-03-10T11:58:00Z, and holds it until 2026-03-10T12:03:00Z"
        in story(told)
    )
    house.sleep(minutes=10)
    assert "that lease is over" in story(house.ask("run explain", run=LEASED_RUN))
    house.ask("run cancel", run=LEASED_RUN, reason="wrong list")
    assert "asked to stop at 2026-03-10T12:10:00Z: wrong list" in story(
        house.ask("run explain", run=LEASED_RUN)
    )


def test_a_parked_entry_says_what_it_died_of_and_the_way_out(house: House) -> None:
    told = house.ask("run explain", run=PARKED_RUN)
    assert (told["fate"], told["schedule"]) == ("parked", "")
    assert "1 of 3 attempts were used; mailbox is full" in story(told)
    assert told["remedies"][0]["operation"] == "run reset"


def test_a_failed_run_says_what_it_died_of(house: House) -> None:
    told = house.ask("run explain", run=FAILED_RUN)
    assert "502 Bad Gateway" in story(told)
    assert told["policy"]["retry"]["max_attempts"] == 3


def test_a_cancelled_run_says_who_did_it(house: House) -> None:
    made = house.ask("schedule run", schedule="nightly-report")["run"]["id"]
    house.ask("run cancel", run=made, reason="wrong day")
    assert "cancelled by ada at 2026-03-10T12:00:00Z: wrong day" in story(house.ask("run explain", run=made))


def test_one_that_waits_says_for_what(house: House) -> None:
    house.ask("queue policy set", queue="mail", max_concurrent=1)
    (entry,) = [one["id"] for one in house.ask("queue show", queue="mail", state="ready")["entries"]]
    assert "admits 1 and has 1 under way" in story(house.ask("run explain", run=entry))
    house.ask("queue complete", run=LEASED_RUN, fence=1)
    assert "someone who leases from queue mail" in story(house.ask("run explain", run=entry))
    made = house.ask("schedule run", schedule="nightly-report")["run"]["id"]
    assert "for an engine; is one running?" in story(house.ask("run explain", run=made))


def test_one_that_waits_for_its_backoff_says_until_when(empty: House) -> None:
    empty.ask("schedule create", name="poll", every="1h", call="poll", backoff="10m")
    empty.bench.target.script("poll", fail("no route"))
    empty.advance(hours=1)
    told = explain(empty, "poll", "10T13:00:00")
    assert told["fate"] == "ready"
    assert "may start at 2026-03-10T13:10:00Z: backoff after a failed attempt" in story(told)


def test_one_that_is_held_names_what_it_waits_for(empty: House) -> None:
    empty.ask(
        "schedule create",
        name="slow",
        every="10m",
        call="slow",
        overlap="queue",
        lease={"length": "2h", "time_limit": "1h"},
    )
    empty.bench.target.script("slow", hang())
    empty.advance(minutes=20)
    told = explain(empty, "slow", "10T12:20:00")
    assert told["fate"] == "held"
    assert "(leased)" in story(told)


def test_one_that_was_replaced_or_came_too_late_names_its_policy(empty: House) -> None:
    empty.ask(
        "schedule create",
        name="newest",
        every="10m",
        call="x",
        overlap="replace",
        lease={"length": "2h", "time_limit": "1h"},
    )
    empty.bench.target.script("newest", hang(), succeed())
    empty.advance(minutes=25)
    assert "a newer occurrence replaced it" in story(explain(empty, "newest", "10T12:10:00"))
    empty.ask("schedule create", name="prompt", every="1h", call="x", deadline="10s", grace="1h")
    empty.sleep(hours=1, seconds=30)
    empty.bench.tick()
    told = explain(empty, "prompt", "10T13:25:00")
    assert told["reason"] == "deadline"
    assert told["policy"] == {"deadline": "10s"}


def test_every_remedy_is_an_operation_that_can_be_asked(house: House) -> None:
    house.sleep(days=2)
    house.bench.tick()
    told = [explain(house, "nightly-report", "11T03:00:00"), explain(house, "orders-poll", "10T12:03:00")]
    told += [house.ask("run explain", run=run) for run in (FAILED_RUN, PARKED_RUN)]
    remedies = [one for each in told for one in each["remedies"]]
    assert len(remedies) >= 6
    for one in remedies:
        operation = operations[one["operation"]]
        operation(
            house.context, one["request"] if operation.reads_only else {**one["request"], "dry_run": True}
        )


def test_a_row_is_told_under_the_words_it_was_admitted_under(empty: House) -> None:
    empty.ask("schedule create", name="poll", every="10m", call="poll", catch_up="none")
    empty.sleep(minutes=31)
    empty.bench.tick()
    empty.ask("schedule update", schedule="poll", catch_up="all", name="polled")
    told = explain(empty, "polled", "10T12:20:00")
    assert told["policy"]["catch_up"] == "none"
    assert told["schedule"] == "polled"


def test_an_instant_before_an_edit_is_read_with_the_words_of_then(house: House) -> None:
    house.ask("schedule update", schedule="nightly-report", cron="0 5 * * *")
    assert explain(house, "nightly-report", "09T05:00:00")["fate"] == "not_planned"
    assert explain(house, "nightly-report", "12T05:00:00")["fate"] == "planned"
    assert explain(house, "nightly-report", "12T03:00:00")["fate"] == "not_planned"


def test_what_history_no_longer_keeps_is_forgotten(house: House) -> None:
    house.bench.clock.advance(timedelta(days=60))
    house.bench.tick()
    house.store.write(lambda tx: tx.prune(Prune(older_than=house.now - timedelta(days=30))))
    told = explain(house, "nightly-report", "05T03:00:00")
    assert told["fate"] == "forgotten"
    assert "history is kept for 30d" in story(told)


def test_a_run_or_schedule_nobody_knows_is_not_explained(house: House) -> None:
    with pytest.raises(NotFound):
        house.ask("schedule explain", schedule="nightly")


def test_a_schedule_that_is_paused_for_now_says_until_when_and_what_comes_first_after_it(
    house: House,
) -> None:
    house.ask("schedule pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="deploy")
    told = explain(house, "orders-poll")
    assert (told["fate"], told["at"]) == ("paused", "2026-03-10T12:30:00Z")
    assert "paused by ada at 2026-03-10T12:00:00Z: deploy" in story(told)
    assert told["next_at"] == "2026-03-10T12:33:00Z"
    assert told["remedies"][0]["operation"] == "schedule resume"


def test_a_pause_that_a_hint_asked_for_is_lifted_by_clearing_it(house: House) -> None:
    house.ask("hint pause", schedule="orders-poll", until="2026-03-10T12:30:00Z", reason="maintenance")
    told = explain(house, "orders-poll")
    assert told["fate"] == "paused"
    assert "maintenance" in story(told)
    house.ask("hint clear", schedule="orders-poll")
    assert told["remedies"][0]["operation"] == "hint clear"
    house.bench.tick()
    assert explain(house, "orders-poll")["fate"] == "planned"


def test_a_delay_after_a_run_has_no_neighbours_that_anyone_could_know(empty: House) -> None:
    empty.ask("schedule create", name="after", trigger={"after": "10m"}, call="x")
    told = explain(empty, "after", "10T12:30:00")
    assert (told["fate"], told["previous_at"], told["next_at"]) == ("undecided", None, None)
    assert explain(empty, "after")["at"] == "2026-03-10T12:10:00Z"
