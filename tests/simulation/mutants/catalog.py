"""Mutants: the protocol with one guard removed. A simulation must detect each of them."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tests.simulation.mutants.dependency_mutants import DEPENDENCY_MUTANTS
from tests.simulation.mutants.mutation import Mutant, Patches, combine, mutate_sql, original, without_index
from timewright.core.alerts import incidents
from timewright.core.policies import limits
from timewright.core.policies.limits import is_grouped_key
from timewright.core.policies.policies import CatchUp, Delivery
from timewright.core.run import admission, due_verdicts, lifecycle
from timewright.core.run.catch_up import InFlightCounts
from timewright.core.run.leasing import LimitUsage
from timewright.core.run.run import Lost, Released, RunState
from timewright.engine import in_flight, launch, tick
from timewright.engine.maintenance import DeadHolderCheck
from timewright.engine.tick import Tick
from timewright.ledger import (
    admission_batch,
    admit,
    lease,
    manual_runs,
    replan,
    run_ends,
    schedule_progress,
    settle,
)
from timewright.ledger.admission_batch import AdmissionBatch
from timewright.ledger.alerts.alert_checks import AlertInput
from timewright.ledger.pauses import PauseLookup
from timewright.ledger.queues import limits as queue_limits
from timewright.ledger.workflow_runs import stepper
from timewright.ledger.workflow_runs.records import HELD_BY_WAIT, load_plan, workflow_context
from timewright.ledger.workflow_runs.stepper import WorkflowStepper
from timewright.ledger.workflow_runs.waits import WaitingStep
from timewright.operations.workflows import waits
from timewright.stores.clock_guard import CommitTimer
from timewright.stores.queries.leases import SqlLeaseQueries

NO_FENCE = (r"runs\.fence = (\S+)", r"\1 IS NOT NULL")
_ONCE = r"ON CONFLICT \([^)]*\) WHERE dedupe_scope <> id DO NOTHING"
no_key = combine(
    without_index("runs_occurrence"),
    *(mutate_sql(name, _ONCE, "") for name in ("insert_runs", "insert_on_time_runs", "insert_leased_runs")),
)


def _split(*, cursor_first: bool) -> Patches:
    """Admission in two transactions, with a possible crash in between."""
    real = admit._write

    def write(store: Any, work: Any, **given: Any) -> Any:
        later: list[Any] = []

        def first(tx: Any) -> Any:
            later.clear()
            name = "add_runs" if cursor_first else "save_progress"

            def postpone(rows: Any) -> Any:
                later.append(rows)
                return {run.id for run in rows} if cursor_first else None

            class Half:
                def __getattr__(self, verb: str) -> Any:
                    return postpone if verb == name else getattr(tx, verb)

            return work(Half())

        answer = real(store, first, **given)
        for rows in later:
            store.write(lambda tx, rows=rows: tx.add_runs(rows) if cursor_first else tx.save_progress(rows))
        return answer

    # Use the general admission path, which has a query for each half.
    return [(admit, "_write", write), (AdmissionBatch, "add_on_time_step", lambda *_: False)]


def _stale_limits() -> Patches:
    """Limits counted in an earlier transaction."""
    real = SqlLeaseQueries.lock_limits
    seen: dict[str, LimitUsage] = {}

    def lock_limits(self: SqlLeaseQueries, keys: Any) -> dict[str, LimitUsage]:
        found = real(self, keys)
        before = {key: seen.get(key, usage) for key, usage in found.items()}
        seen.update(found)
        return before

    return [(SqlLeaseQueries, "lock_limits", lock_limits)]


def _stale_keyed_limits() -> Patches:
    """Leases under a key counted in an earlier transaction."""
    real = SqlLeaseQueries.lock_limits
    seen: dict[str, LimitUsage] = {}

    def lock_limits(self: SqlLeaseQueries, keys: Any) -> dict[str, LimitUsage]:
        found = real(self, keys)
        before = {key: seen.get(key, usage) if is_grouped_key(key) else usage for key, usage in found.items()}
        seen.update(found)
        return before

    return [(SqlLeaseQueries, "lock_limits", lock_limits)]


def _offer_forgotten_at_admission() -> Patches:
    """Due schedules start here, whatever this instance can run."""

    def starts(self: Any, schedule: Any) -> bool:
        return self._free_slots > 0 and admission_batch.can_start_immediately(schedule)

    return [(AdmissionBatch, "_can_start", starts)]


def _offer_forgotten_at_leasing() -> Patches:
    """Ready runs are leased by the first instance that reads them."""
    real = original(tick, "lease_ready")

    def lease(store: Any, **terms: Any) -> Any:
        return real(store, **{**terms, "offer": None})

    return [(tick, "lease_ready", lease)]


def _one_more_of_its_own() -> Patches:
    """`max_running` of a schedule is one more than it says."""
    real = original(queue_limits, "own_limits")

    def own_limits(schedules: Any) -> dict[str, int]:
        return {key: capacity + 1 for key, capacity in real(schedules).items()}

    return [(queue_limits, "own_limits", own_limits)]


def _limits_forgotten_at_admission() -> Patches:
    real = original(admission_batch, "can_start_immediately")

    def starts(schedule: Any) -> Any:
        return real(replace(schedule, queue=None, limits=()))

    # Use the general admission path, which keeps the limits of a run that starts at once.
    return [
        (admission_batch, "can_start_immediately", starts),
        (AdmissionBatch, "add_on_time_step", lambda *_: False),
    ]


def _classify_with(**changes: Any) -> Patches:
    real = lifecycle._classify

    def verdict(outcome: Any, **terms: Any) -> Any:
        return real(outcome, **{**terms, **changes})

    return [(lifecycle, "_classify", verdict)]


def _uncharged() -> Patches:
    """A lost lease costs nothing, neither an attempt nor a loss."""
    real = lifecycle._cost_of

    def cost_of(run: Any, outcome: Any, **terms: Any) -> Any:
        return lifecycle.LeaseCost.NOTHING if isinstance(outcome, Lost) else real(run, outcome, **terms)

    return [(lifecycle, "_cost_of", cost_of)]


def _refunded() -> Patches:
    real = original(settle, "settle_outcome")

    def refunding(run: Any, outcome: Any, **terms: Any) -> Any:
        return real(run, Released(reason="crash") if isinstance(outcome, Lost) else outcome, **terms)

    return [(settle, "settle_outcome", refunding), (lifecycle, "MAX_REFUNDS", 10_000)]


def _no_deadline() -> Patches:
    return [(lease, "_is_past_deadline", lambda *_, **__: False)]


def _host_clock(stage: str) -> Patches:
    """A tick stage that reads its host's clock instead of the store's."""
    real = getattr(Tick, stage)

    def local(self: Any, *work: Any, now: datetime, **given: Any) -> Any:
        return real(self, *work, now=self.store._actor.clock.now(), **given)

    return [(Tick, stage, local)]


def _installation_pause_ignored() -> Patches:
    """Leasing knows only the pauses of smaller scopes."""
    real = original(lease, "find_paused")

    def find(*given: Any) -> Any:
        return [one for one in real(*given) if not one.why.startswith("the installation")]

    return [(lease, "find_paused", find), (PauseLookup, "holds_installation", False)]


def _stale_incidents() -> Patches:
    """Open incidents as another look before this one read them."""
    real = AlertInput.__init__
    seen: dict[Any, Any] = {}

    def read(self: Any, *given: Any, **terms: Any) -> None:
        real(self, *given, **terms)
        found, self.incidents = self.incidents, dict(seen)
        seen.clear()
        seen.update(found)

    return [(AlertInput, "__init__", read)]


def _incidents_unseen() -> Patches:
    """No look knows what is open."""
    real = AlertInput.__init__

    def read(self: Any, *given: Any, **terms: Any) -> None:
        real(self, *given, **terms)
        self.incidents = {}

    return [(AlertInput, "__init__", read)]


def _closed_at_its_beginning(known: Any, *, now: datetime) -> Any:
    """The end of an incident is dated by the beginning of its finding."""
    return incidents.IncidentChange(replace(known, closed_at=known.since - timedelta(seconds=1)), "closed")


def _random_jitter() -> Patches:
    real, count = original(due_verdicts, "apply_jitter"), itertools.count()

    def jittered(planned_at: datetime, **terms: Any) -> Any:
        return real(planned_at, **{**terms, "seed": f"{terms['seed']} {next(count)}"})

    return [(due_verdicts, "apply_jitter", jittered)]


def _cursor_moved_back() -> Patches:
    real = schedule_progress.progress_when_revised

    def revised(*arguments: Any, **terms: Any) -> Any:
        progress = real(*arguments, **terms)
        return replace(progress, cursor=progress.cursor - timedelta(hours=1))

    return [(replan, "progress_when_revised", revised)]


def _overlap_ignored() -> Patches:
    real = original(due_verdicts, "apply_overlap")

    def overlapped(schedule: Any, chosen: Any, *, in_flight: Any) -> Any:
        return real(schedule, chosen, in_flight=InFlightCounts())

    return [(due_verdicts, "apply_overlap", overlapped)]


def _choose(**changes: Any) -> Patches:
    real = original(admission, "choose_occurrences")

    def choose(schedule: Any, *arguments: Any, **terms: Any) -> Any:
        return real(replace(schedule, **changes), *arguments, **terms)

    return [(admission, "choose_occurrences", choose)]


def _without_missed_rows() -> Patches:
    """Missed occurrences leave no row."""
    real = original(admission, "choose_occurrences")

    def choose(*arguments: Any, **terms: Any) -> Any:
        return replace(real(*arguments, **terms), skipped=())

    return [(admission, "choose_occurrences", choose)]


def _catch_up_despite_none() -> Patches:
    real = original(admission, "choose_occurrences")

    def choose(schedule: Any, *arguments: Any, **terms: Any) -> Any:
        if schedule.catch_up is CatchUp.NONE:
            schedule = replace(schedule, catch_up=CatchUp.ALL)
        return real(schedule, *arguments, **terms)

    return [(admission, "choose_occurrences", choose)]


def _other_namespace() -> Patches:
    real = original(admission_batch, "build_schedule_run")

    def run_of(*arguments: Any, **terms: Any) -> Any:
        return replace(real(*arguments, **terms), namespace="default")

    return [(admission_batch, "build_schedule_run", run_of)]


def _hints_without_end() -> Patches:
    real = schedule_progress._add_hint

    def add_hint(hints: Any, hint: Any, *, now: datetime) -> Any:
        if hasattr(hint, "expires_at"):
            hint = replace(hint, expires_at=now + timedelta(days=30))
        return real(hints, hint, now=now)

    return [(schedule_progress, "_add_hint", add_hint)]


def _live_holders_taken_for_dead() -> Patches:
    real = DeadHolderCheck.__init__

    def init(self: Any, *arguments: Any, **given: Any) -> None:
        real(self, *arguments, **{**given, "is_proven_dead": lambda _: True})

    return [(DeadHolderCheck, "__init__", init)]


def _started_before_its_needs() -> Patches:
    """A step starts when the first of its needs has ended."""
    real = WorkflowStepper._count_settled

    def count_settled(self: Any, ends: Any) -> Any:
        due = set(real(self, ends))
        after = {later for name, _ in ends for later in self.plan.successors[name]}
        rows = self._tx.get_steps(self._parent.id, after) if after else {}
        return sorted(due | {name for name, row in rows.items() if not row.state})

    return [
        (WorkflowStepper, "_count_settled", count_settled),
        (stepper, "skip_reason", lambda *_: None),
    ]


def _answered_twice() -> Patches:
    """Whether a step still waits is not asked, and a stale answer is not refused."""
    real_settle = original(waits, "settle_results")

    def find(tx: Any, run: Any) -> Any:
        context = workflow_context(run)
        assert context is not None
        plan = load_plan(tx, run.namespace, context)
        assert plan is not None
        wait = plan.steps[context.step].wait
        assert wait is not None
        at = run.created_at
        run = replace(run, state=RunState.LEASED, holder=HELD_BY_WAIT, leased_at=at, lease_until=at)
        return WaitingStep(run, context, wait)

    def settle_results(*arguments: Any, **given: Any) -> Any:
        return replace(real_settle(*arguments, **given), stale=())

    return [(waits, "find_waiting_step", find), (waits, "settle_results", settle_results)]


REPLACE_ATTEMPTS = mutate_sql("insert_attempts", "INSERT INTO", "INSERT OR REPLACE INTO")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="the unique key is dropped, and the cursor is split",
        broken_invariants=("I1", "I4", "I8"),
        patches=lambda: _split(cursor_first=False),
        change=no_key,
    ),
    Mutant(
        name="the unique key is dropped",
        change=no_key,
        redundant="the schedule's row is locked from the read to the write, so no instant is decided twice",
    ),
    Mutant(
        name="the cursor is split, runs first",
        broken_invariants=("I7", "I8"),
        first_seed=2,
        patches=lambda: _split(cursor_first=False),
    ),
    Mutant(
        name="the cursor is split, cursor first",
        broken_invariants=("I3",),
        first_seed=1,
        patches=lambda: _split(cursor_first=True),
    ),
    Mutant(
        name="the offer is forgotten at admission",
        broken_invariants=("I46",),
        first_seed=10,
        patches=_offer_forgotten_at_admission,
    ),
    Mutant(
        name="the offer is forgotten at leasing",
        broken_invariants=("I46",),
        first_seed=10,
        patches=_offer_forgotten_at_leasing,
    ),
    Mutant(name="the limit is counted first", broken_invariants=("I14",), patches=_stale_limits),
    Mutant(
        name="the leases under a key are counted first",
        broken_invariants=("I14",),
        first_seed=2,
        patches=_stale_keyed_limits,
        size="limits",
    ),
    Mutant(
        name="a rate is not stored",
        broken_invariants=("I60",),
        first_seed=1,
        change=mutate_sql("save_limit_use", r"arrival_at = \?2", "arrival_at = limits.arrival_at"),
        size="limits",
    ),
    Mutant(
        name="the key of a limit is ignored",
        broken_invariants=("I61",),
        patches=lambda: [(limits, "_key_text", lambda _value: "")],
        size="limits",
    ),
    Mutant(
        name="the limit is forgotten at admission",
        broken_invariants=("I14",),
        first_seed=2,
        patches=_limits_forgotten_at_admission,
    ),
    Mutant(
        name="limit holds are never released",
        broken_invariants=("I15",),
        change=mutate_sql("delete_limit_holds", r"WHERE ", "WHERE 1 = 0 AND "),
    ),
    Mutant(
        name="no fence at settle",
        change=mutate_sql("settle_runs", *NO_FENCE),
        redundant="attempts are unique per fence, so a second end of a lease rolls back its transaction",
    ),
    Mutant(
        name="no fence at settle, and none in the attempts",
        broken_invariants=("I11", "I13"),
        change=combine(mutate_sql("settle_runs", *NO_FENCE), REPLACE_ATTEMPTS),
    ),
    Mutant(
        name="settled in any state",
        broken_invariants=("I9", "I11", "I13"),
        change=combine(
            mutate_sql("settle_runs", r"runs\.state \|\| '' = 'leased'", "runs.state <> ''"), REPLACE_ATTEMPTS
        ),
    ),
    Mutant(
        name="the fence is reused",
        broken_invariants=("I10", "I11"),
        change=mutate_sql("lease_runs", r"fence = runs\.fence \+ 1", "fence = runs.fence"),
    ),
    Mutant(
        name="no fence at renewal", broken_invariants=("I11",), change=mutate_sql("renew_leases", *NO_FENCE)
    ),
    Mutant(
        name="renewed though asked to stop",
        broken_invariants=("I17",),
        first_seed=1,
        change=mutate_sql("renew_leases", r"runs.cancel_at IS NULL OR", "1 = 1 OR"),
    ),
    Mutant(
        name="the deadline is ignored when leasing",
        broken_invariants=("I62",),
        first_seed=4,
        patches=_no_deadline,
    ),
    Mutant(
        name="leased in any state",
        change=combine(
            mutate_sql("lease_runs", r"runs\.state \|\| '' = 'ready'", "runs.state <> ''"),
            mutate_sql("ready_runs_of_bucket", r"state = 'ready'", "state IN ('ready', 'parked', 'failed')"),
        ),
        redundant="the lease plan takes only ready runs, whatever the statements allow",
    ),
    Mutant(name="no charge on expiry", broken_invariants=("I18",), patches=_uncharged),
    Mutant(
        name="refunds without a cap",
        broken_invariants=("I18",),
        first_seed=1,
        patches=lambda: [(lifecycle, "MAX_REFUNDS", 10_000)],
        size="returned",
    ),
    Mutant(name="a crash is refunded", broken_invariants=("I18",), patches=_refunded),
    Mutant(
        name="the budget is ignored",
        broken_invariants=("I18", "I19"),
        first_seed=1,
        patches=lambda: _classify_with(attempts=0),
    ),
    Mutant(
        name="committed before its instant",
        broken_invariants=("I5",),
        patches=lambda: [(CommitTimer, "wait", lambda *_, **__: None)],
    ),
    Mutant(
        name="admission reads the host clock", broken_invariants=("I5",), patches=lambda: _host_clock("admit")
    ),
    Mutant(
        name="reclaim reads the host clock",
        broken_invariants=("I16",),
        patches=lambda: _host_clock("reclaim"),
    ),
    Mutant(
        name="leasing reads the host clock", broken_invariants=("I5",), patches=lambda: _host_clock("lease")
    ),
    Mutant(
        name="runs while paused",
        broken_invariants=("I23",),
        patches=lambda: [(replan, "progress_when_paused", lambda due, *a, **k: due.progress)],
    ),
    Mutant(name="the cursor goes back at an edit", broken_invariants=("I8",), patches=_cursor_moved_back),
    Mutant(name="random jitter", broken_invariants=("I5", "I20"), first_seed=1, patches=_random_jitter),
    Mutant(
        name="unfinished runs are pruned",
        broken_invariants=("I31",),
        change=combine(
            mutate_sql("prunable_runs", r"state IN \([^)]*\)", "state <> 'leased'"),
            mutate_sql("delete_runs", r"state IN \([^)]*\)", "state <> 'leased'"),
        ),
    ),
    Mutant(
        name="held runs are forgotten",
        broken_invariants=("I27",),
        patches=lambda: [
            (run_ends, "release_held", lambda *a, **k: []),
            (settle, "release_held", lambda *a, **k: []),
        ],
    ),
    Mutant(
        name="overlap is ignored",
        broken_invariants=("I21",),
        first_seed=1,
        patches=_overlap_ignored,
        change=without_index("runs_one_in_flight"),
    ),
    Mutant(
        name="retries without backoff",
        broken_invariants=("I20",),
        first_seed=1,
        patches=lambda: [(lifecycle, "_retry_at", lambda run, outcome, **t: t["now"])],
    ),
    Mutant(
        name="at_most_once is leased again",
        broken_invariants=("I19", "I26"),
        patches=lambda: _classify_with(delivery=Delivery.AT_LEAST_ONCE),
    ),
    Mutant(
        name="catch-up without a cap",
        broken_invariants=("I22",),
        first_seed=2,
        patches=lambda: _choose(catch_up_limit=10_000),
    ),
    Mutant(
        name="catch-up without a window",
        broken_invariants=("I22",),
        first_seed=2,
        patches=lambda: _choose(catch_up_window=None),
    ),
    Mutant(
        name="catch_up none is caught up",
        broken_invariants=("I22",),
        first_seed=1,
        patches=_catch_up_despite_none,
    ),
    Mutant(
        name="missed occurrences leave no row",
        broken_invariants=("I3",),
        first_seed=1,
        patches=_without_missed_rows,
    ),
    Mutant(name="runs in another namespace", broken_invariants=("I32",), patches=_other_namespace),
    Mutant(
        name="client keys are forgotten",
        broken_invariants=("I39",),
        first_seed=2,
        patches=lambda: [(manual_runs, "_find_by_client_key", lambda tx, schedule_id, key: None)],
    ),
    Mutant(name="hints never expire", broken_invariants=("I25",), first_seed=1, patches=_hints_without_end),
    Mutant(
        name="released before its start time",
        change=mutate_sql("wake_deferred_runs", r"fire_at <= \S+", "fire_at <= 9223372036854775807"),
        redundant="the lease plan checks the start time of a run itself, deferred or not",
    ),
    Mutant(
        name="work of lost leases is not stopped",
        patches=lambda: [(launch.Launcher, "stop_lost", lambda self, run_id, fence: None)],
        redundant="the watch ends work whose lease was not renewed, and the fence refuses its result",
    ),
    Mutant(
        name="a second copy starts beside the first",
        broken_invariants=("I47",),
        first_seed=2,
        patches=lambda: [(in_flight.BlockedRuns, "add", lambda self, one: False)],
    ),
    Mutant(
        name="losses are not limited",
        broken_invariants=("I18", "I19"),
        first_seed=2,
        patches=lambda: _classify_with(losses=0),
    ),
    Mutant(
        name="the own limit of a schedule lets one more run",
        broken_invariants=("I14",),
        first_seed=4,
        patches=_one_more_of_its_own,
        size="limits",
    ),
    Mutant(
        name="a pause is ignored at leasing",
        broken_invariants=("I54",),
        first_seed=1,
        patches=lambda: [(lease, "find_paused", lambda *a, **k: [])],
        size="paused",
    ),
    Mutant(
        name="a pause is ignored at admission",
        broken_invariants=("I54",),
        first_seed=5,
        patches=lambda: [(admit, "set_aside_paused", lambda tx, due, pauses: due)],
        size="paused",
    ),
    Mutant(
        name="a pause of the installation is ignored",
        broken_invariants=("I54",),
        first_seed=1,
        patches=_installation_pause_ignored,
        change=mutate_sql("lease_runs", r"AND NOT EXISTS[\s\S]*'move'\)\)\)", ""),
        size="paused",
    ),
    Mutant(
        name="incidents of an earlier look",
        broken_invariants=("I48",),
        patches=_stale_incidents,
        change=without_index("incidents_open"),
        size="paused",
    ),
    Mutant(
        name="an incident is opened without looking for it",
        broken_invariants=("I48",),
        patches=_incidents_unseen,
        change=without_index("incidents_open"),
        size="paused",
    ),
    Mutant(
        name="an incident closes before it opens",
        broken_invariants=("I48",),
        patches=lambda: [(incidents, "_close", _closed_at_its_beginning)],
        size="paused",
    ),
    Mutant(
        name="a live holder is taken for dead",
        broken_invariants=("I16",),
        first_seed=2,
        patches=_live_holders_taken_for_dead,
    ),
    Mutant(
        name="a step starts after the first of its needs",
        broken_invariants=("I58",),
        first_seed=1,
        patches=_started_before_its_needs,
        size="workflow",
    ),
    Mutant(
        name="an answer is taken twice",
        broken_invariants=("I59",),
        first_seed=1,
        patches=_answered_twice,
        size="workflow",
    ),
    *DEPENDENCY_MUTANTS,
)

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
