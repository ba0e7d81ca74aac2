"""Protocols with one thing wrong in them: a simulation that lets one of these live proves nothing."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from timewright.core import admission, lifecycle
from timewright.core.catch_up import Flight
from timewright.core.leasing import Gate
from timewright.core.policies import CatchUp, Delivery
from timewright.core.run import Lost, Released
from timewright.engine import launch
from timewright.engine.eve import Vigil
from timewright.engine.tick import Tick
from timewright.ledger import admission_pass, admit, by_hand, endings, replan, settle, standings
from timewright.ledger.admission_pass import AdmissionPass
from timewright.stores.lease_verbs import LeaseVerbs
from timewright.testing.world.linked_mutants import LINKED
from timewright.testing.world.mutating import Mutant, Patches, both, ours, sql, without_index

NO_FENCE = (r"runs\.fence = (\S+)", r"\1 IS NOT NULL")
_ONCE = r"ON CONFLICT \([^)]*\) WHERE lane <> id DO NOTHING"
no_key = both(
    without_index("runs_occurrence"),
    *(sql(name, _ONCE, "") for name in ("insert_runs", "insert_advanced", "insert_started")),
)


def _split(*, cursor_first: bool) -> Patches:
    """Admission in two transactions, with a crash possible in between."""
    plain = admit._write

    def write(store: Any, work: Any) -> Any:
        later: list[Any] = []

        def first(tx: Any) -> Any:
            later.clear()
            name = "add_runs" if cursor_first else "stand"

            def postpone(rows: Any) -> Any:
                later.append(rows)
                return {run.id for run in rows} if cursor_first else None

            class Half:
                def __getattr__(self, verb: str) -> Any:
                    return postpone if verb == name else getattr(tx, verb)

            return work(Half())

        answer = plain(store, first)
        for rows in later:
            store.write(lambda tx, rows=rows: tx.add_runs(rows) if cursor_first else tx.stand(rows))
        return answer

    # All go the long way, which has a verb for each half.
    return [(admit, "_write", write), (AdmissionPass, "advance", lambda *_: False)]


def _counted_first() -> Patches:
    """Ceilings that were counted in a transaction before."""
    plain = LeaseVerbs.hold_gates
    seen: dict[str, Gate] = {}

    def hold_gates(self: LeaseVerbs, gates: Any) -> dict[str, Gate]:
        found = plain(self, gates)
        before = {name: seen.get(name, gate) for name, gate in found.items()}
        seen.update(found)
        return before

    return [(LeaseVerbs, "hold_gates", hold_gates)]


def _gates_forgotten_at_admission() -> Patches:
    plain = ours(admission_pass, "starts_at_once")

    def starts(schedule: Any) -> Any:
        return plain(replace(schedule, queue=None, limits=()))

    # All go the long way, which keeps the ceilings of a run that starts at once.
    return [(admission_pass, "starts_at_once", starts), (AdmissionPass, "advance", lambda *_: False)]


def _verdict(**changes: Any) -> Patches:
    plain = lifecycle._verdict

    def verdict(outcome: Any, **terms: Any) -> Any:
        return plain(outcome, **{**terms, **changes})

    return [(lifecycle, "_verdict", verdict)]


def _uncharged() -> Patches:
    plain = lifecycle._is_charged
    return [
        (
            lifecycle,
            "_is_charged",
            lambda run, outcome, delivery: not isinstance(outcome, Lost) and plain(run, outcome, delivery),
        )
    ]


def _refunded() -> Patches:
    plain = ours(settle, "settle")

    def refunding(run: Any, outcome: Any, **terms: Any) -> Any:
        return plain(run, Released(reason="crash") if isinstance(outcome, Lost) else outcome, **terms)

    return [(settle, "settle", refunding), (lifecycle, "REFUND_CAP", 10_000)]


def _local(room: str) -> Patches:
    """A room that reads the clock of its own host instead of the store's."""
    plain = getattr(Tick, room)

    def local(self: Any, *, now: datetime, **given: Any) -> Any:
        return plain(self, now=self.store._actor.clock.now(), **given)

    return [(Tick, room, local)]


def _random_jitter() -> Patches:
    plain, count = ours(admission, "jittered"), itertools.count()

    def jittered(planned_at: datetime, **terms: Any) -> Any:
        return plain(planned_at, **{**terms, "seed": f"{terms['seed']} {next(count)}"})

    return [(admission, "jittered", jittered)]


def _rewound() -> Patches:
    plain = standings.revised

    def revised(*arguments: Any, **terms: Any) -> Any:
        standing = plain(*arguments, **terms)
        return replace(standing, cursor=standing.cursor - timedelta(hours=1))

    return [(replan, "revised", revised)]


def _overlap_ignored() -> Patches:
    plain = ours(admission, "overlapped")

    def overlapped(schedule: Any, chosen: Any, *, flight: Any) -> Any:
        return plain(schedule, chosen, flight=Flight())

    return [(admission, "overlapped", overlapped)]


def _choose(**changes: Any) -> Patches:
    plain = ours(admission, "choose")

    def choose(schedule: Any, *arguments: Any, **terms: Any) -> Any:
        return plain(replace(schedule, **changes), *arguments, **terms)

    return [(admission, "choose", choose)]


def _silent() -> Patches:
    """What is missed leaves no row."""
    plain = ours(admission, "choose")

    def choose(*arguments: Any, **terms: Any) -> Any:
        return replace(plain(*arguments, **terms), skipped=())

    return [(admission, "choose", choose)]


def _caught_up_all_the_same() -> Patches:
    plain = ours(admission, "choose")

    def choose(schedule: Any, *arguments: Any, **terms: Any) -> Any:
        if schedule.catch_up is CatchUp.NONE:
            schedule = replace(schedule, catch_up=CatchUp.ALL)
        return plain(schedule, *arguments, **terms)

    return [(admission, "choose", choose)]


def _elsewhere() -> Patches:
    plain = admission_pass.run_of

    def run_of(*arguments: Any, **terms: Any) -> Any:
        return replace(plain(*arguments, **terms), namespace="default")

    return [(admission_pass, "run_of", run_of)]


def _immortal_hints() -> Patches:
    plain = standings._with_wish

    def with_wish(hints: Any, wish: Any, *, now: datetime) -> Any:
        if hasattr(wish, "expires_at"):
            wish = replace(wish, expires_at=now + timedelta(days=30))
        return plain(hints, wish, now=now)

    return [(standings, "_with_wish", with_wish)]


AGAIN = sql("insert_attempts", "INSERT INTO", "INSERT OR REPLACE INTO")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="the unique key is dropped, and the cursor is split",
        owners=("I1", "I4", "I8"),
        patches=lambda: _split(cursor_first=False),
        change=no_key,
    ),
    Mutant(
        name="the unique key is dropped",
        change=no_key,
        redundant="the row of the schedule is locked from the look to the write, so nobody decides twice",
    ),
    Mutant(
        name="the cursor is split, runs first",
        owners=("I7", "I8"),
        patches=lambda: _split(cursor_first=False),
    ),
    Mutant(
        name="the cursor is split, cursor first", owners=("I3",), patches=lambda: _split(cursor_first=True)
    ),
    Mutant(name="the ceiling is counted first", owners=("I14",), patches=_counted_first),
    Mutant(
        name="the ceiling is forgotten at admission", owners=("I14",), patches=_gates_forgotten_at_admission
    ),
    Mutant(
        name="places are never freed",
        owners=("I15",),
        change=sql("delete_holds", r"WHERE ", "WHERE 1 = 0 AND "),
    ),
    Mutant(
        name="no fence at settle",
        change=sql("settle_runs", *NO_FENCE),
        redundant="an attempt is kept once for each fence, so a second end of a lease undoes its transaction",
    ),
    Mutant(
        name="no fence at settle, and none in the attempts",
        owners=("I11", "I13"),
        change=both(sql("settle_runs", *NO_FENCE), AGAIN),
    ),
    Mutant(
        name="settled whatever its state",
        owners=("I9", "I11", "I13"),
        change=both(sql("settle_runs", r"runs\.state \|\| '' = 'leased'", "runs.state <> ''"), AGAIN),
    ),
    Mutant(
        name="the fence is reused",
        owners=("I10", "I11"),
        change=sql("lease_runs", r"fence = runs\.fence \+ 1", "fence = runs.fence"),
    ),
    Mutant(name="no fence at renewal", owners=("I11",), change=sql("renew_leases", *NO_FENCE)),
    Mutant(
        name="leased whatever its state",
        change=both(
            sql("lease_runs", r"runs\.state \|\| '' = 'ready'", "runs.state <> ''"),
            sql("ready_runs", r"state = 'ready'", "state IN ('ready', 'parked', 'failed')"),
        ),
        redundant="the plan of leases takes only runs that are ready, whatever the statements would allow",
    ),
    Mutant(name="no charge on expiry", owners=("I18",), patches=_uncharged),
    Mutant(name="a crash is refunded", owners=("I18",), patches=_refunded),
    Mutant(name="the budget is ignored", owners=("I18", "I19"), patches=lambda: _verdict(attempts=0)),
    Mutant(
        name="kept on the eve of its instant",
        owners=("I5",),
        patches=lambda: [(Vigil, "__call__", lambda _: None)],
    ),
    Mutant(name="the planner reads its own clock", owners=("I5",), patches=lambda: _local("admit")),
    Mutant(name="the reaper reads its own clock", owners=("I16",), patches=lambda: _local("reclaim")),
    Mutant(name="the lessor reads its own clock", owners=("I5",), patches=lambda: _local("lease")),
    Mutant(
        name="emitted while paused",
        owners=("I23",),
        patches=lambda: [(replan, "paused", lambda due, *a, **k: due.standing)],
    ),
    Mutant(name="the cursor goes back at an edit", owners=("I8",), patches=_rewound),
    Mutant(name="jitter by chance", owners=("I5", "I20"), patches=_random_jitter),
    Mutant(
        name="what is unfinished is pruned",
        owners=("I31",),
        change=both(
            sql("prunable", r"state IN \([^)]*\)", "state <> 'leased'"),
            sql("delete_runs", r"state IN \([^)]*\)", "state <> 'leased'"),
        ),
    ),
    Mutant(
        name="held runs are forgotten",
        owners=("I27",),
        patches=lambda: [(endings, "let_go", lambda *a, **k: []), (settle, "let_go", lambda *a, **k: [])],
    ),
    Mutant(
        name="overlap is ignored",
        owners=("I21",),
        patches=_overlap_ignored,
        change=without_index("runs_one_in_flight"),
    ),
    Mutant(
        name="retries without backoff",
        owners=("I20",),
        patches=lambda: [(lifecycle, "_retry_at", lambda run, outcome, **t: t["now"])],
    ),
    Mutant(
        name="at_most_once is let again",
        owners=("I19", "I26"),
        patches=lambda: _verdict(delivery=Delivery.AT_LEAST_ONCE),
    ),
    Mutant(name="catch-up without a cap", owners=("I22",), patches=lambda: _choose(catch_up_limit=10_000)),
    Mutant(name="catch-up without a window", owners=("I22",), patches=lambda: _choose(catch_up_window=None)),
    Mutant(name="catch_up none is caught up", owners=("I22",), patches=_caught_up_all_the_same),
    Mutant(name="what is missed leaves no row", owners=("I3",), patches=_silent),
    Mutant(name="runs of another namespace", owners=("I32",), patches=_elsewhere),
    Mutant(
        name="a client key is not remembered",
        owners=("I39",),
        patches=lambda: [(by_hand, "_known", lambda tx, schedule_id, key: None)],
    ),
    Mutant(name="hints without an end", owners=("I25",), patches=_immortal_hints),
    Mutant(
        name="woken before its time",
        change=sql("awaken", r"fire_at <= \S+", "fire_at <= 9223372036854775807"),
        redundant="the plan of leases looks at the instant of a run itself, whether it sleeps or not",
    ),
    Mutant(
        name="lost leases are not stopped",
        patches=lambda: [(launch.Launcher, "forget", lambda self, run_id, fence: None)],
        redundant="the watch ends the work when its lease was not renewed, and the fence refuses its answer",
    ),
    *LINKED,
)

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
