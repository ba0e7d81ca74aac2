"""The workload of a soak: schedules of every kind, and users and agents who change them all the time.

Every change that decides which occurrences must exist is recorded here as it happens, so that the final
account does not depend on the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from msgspec.structs import replace

from benchmarks.parts.measure import IDS
from timewright.core.policies.backoff import Constant, Stretch
from timewright.core.policies.limits import named_limit_key
from timewright.core.policies.policies import (
    CatchUp,
    Delivery,
    Exhausted,
    LeaseTerms,
    Overlap,
    QueuePolicy,
    Retry,
)
from timewright.core.recurrence.triggers import After, AnyTrigger, Cron, Every, Manual, Once
from timewright.core.run.run import Failed, Released, RunState, Succeeded
from timewright.core.schedule.hints import IntervalHint, OneShotHint, PauseHint
from timewright.core.schedule.schedule import Schedule, ScheduleState, queue_limit_key
from timewright.core.target import AnyTarget, Call, Http, Note, Shell
from timewright.errors import StoreError, TimewrightError
from timewright.ledger.backfills.start import BackfillTerms, start_backfill
from timewright.ledger.lease import lease_ready
from timewright.ledger.manual_runs import enqueue, move_next, run_now, skip_next
from timewright.ledger.queues.policies import set_limit, set_queue_policy
from timewright.ledger.replan import Actor, archive, clear_hints, create, hint, pause, resume, revise
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import cancel, reopen, reset, settle_results
from timewright.ports import RunFilter, Store

ACTOR = Actor(name="soak", reason="soak")
SECOND = timedelta(seconds=1)
LEASE = LeaseTerms(length=4 * SECOND, time_limit=3 * SECOND, grace=SECOND)
LIMITS = {"crm": 2, "mail": 4}
RAISED_LIMIT = 16
QUEUE, ENTRIES = "narrow", "outside"
INTERVALS_S = (1.0, 1.5, 2.0, 3.0)


class TrackedSchedule:
    """A schedule and its triggers, each with the instant from which it was in force."""

    def __init__(self, schedule: Schedule, family: str) -> None:
        self.id = schedule.id
        self.name = schedule.name
        self.family = family
        self.schedule = schedule
        self.epochs: list[tuple[datetime, AnyTrigger]] = [(schedule.created_at, schedule.trigger)]
        self.archived = False


class SoakWorkload:
    """All schedules, and everything that users do to them."""

    def __init__(self, store: Store, *, url: str, seed: int) -> None:
        self.store = store
        self.url = url
        self.random = Random(seed)
        self.tracked: dict[str, TrackedSchedule] = {}
        self.limit_history: dict[str, list[tuple[datetime, int]]] = {}
        self.performed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.store_errors: Counter[str] = Counter()
        self.restarted: set[str] = set()
        self.unexpected_errors: list[str] = []
        self.ended_at: datetime | None = None
        self._names = 0

    # ------------------------------------------------------------------------------------------- the start

    def build(self) -> None:
        """Create the policies, then schedules of each kind."""
        now = self.store.now()
        for name, most in LIMITS.items():
            self._set_limit(name, most)
        for queue, most in ((QUEUE, 3), (ENTRIES, 2)):
            policy = QueuePolicy(max_running=most, lease=4 * SECOND, backoff=Constant(SECOND / 2))
            set_queue_policy(self.store, namespace="default", queue=queue, policy=policy, by=ACTOR, now=now)
            self.limit_history.setdefault(queue_limit_key("default", queue), []).append((now, most))
        self.create_tracked("grid", self._grids(now))
        self.create_tracked("edited", self._edited(now))
        self.create_tracked("free", self._free(now))

    def create_tracked(self, family: str, schedules: list[Schedule]) -> None:
        """Create schedules and track them."""
        create(self.store, schedules, by=ACTOR, now=schedules[0].created_at)
        for schedule in schedules:
            self.tracked[schedule.id] = TrackedSchedule(schedule, family)

    def _schedule(self, trigger: AnyTrigger, target: AnyTarget, now: datetime, **policies: Any) -> Schedule:
        self._names += 1
        if isinstance(trigger, Every):
            trigger = trigger.with_anchor(now)
        return Schedule(
            id=IDS.new("schedule", now=now),
            name=f"soak-{self._names:03d}",
            created_at=now,
            trigger=trigger,
            target=target,
            lease=LEASE,
            queue_limit=5,
            **policies,
        )

    def _targets(self) -> list[tuple[AnyTarget, dict[str, Any]]]:
        """Every kind of target, with a matching policy."""
        again = {"retry": Retry(max_attempts=3, backoff=Constant(SECOND / 2))}
        parks = {"retry": Retry(max_attempts=2, backoff=Constant(SECOND / 2), exhausted=Exhausted.PARK)}
        return [
            (Call(name="quick"), {}),
            (Call(name="slow", args={"seconds": 0.4}), {}),
            (Call(name="slow", args={"seconds": 2.5}), {}),
            (Call(name="slow", args={"seconds": 9.0}), {"retry": Retry(max_attempts=1)}),
            (Call(name="flaky"), again),
            (Call(name="broken"), parks),
            (Call(name="patient"), {"limits": ("mail",)}),
            (Call(name="slow", args={"seconds": 0.6}), {"limits": ("crm",)}),
            (Call(name="flaky", args={"failing": 0.3}), {"limits": ("crm", "mail"), **again}),
            (Call(name="slow", args={"seconds": 0.5}), {"queue": QUEUE}),
            (Call(name="quick"), {"delivery": Delivery.AT_MOST_ONCE, "queue": QUEUE, "limits": ("mail",)}),
            (Http(url=f"{self.url}/ok"), {}),
            (Http(url=f"{self.url}/slow", method="POST", body={"a": 1}), {"limits": ("mail",)}),
            (Http(url=f"{self.url}/bad"), again),
            (Http(url=f"{self.url}/busy"), again),
            (Shell(command=("true",)), {}),
            (Shell(command=("sleep", "0.3")), {}),
            (Shell(command=("false",)), again),
            (Note(text="a reminder"), {}),
        ]

    def _grids(self, now: datetime) -> list[Schedule]:
        """Each overlap policy with some targets, on fixed grids: every instant can be accounted for."""
        found: list[Schedule] = []
        for overlap in Overlap:
            for target, policies in self.random.sample(self._targets(), 10):
                found.append(
                    self._schedule(
                        self._trigger(),
                        target,
                        now,
                        overlap=overlap,
                        catch_up=self.random.choice(list(CatchUp)),
                        grace=self.random.choice([SECOND, 60 * SECOND]),
                        spread_over=5 * SECOND,
                        jitter=self.random.choice([SECOND / 2, 0 * SECOND, 0 * SECOND]),
                        priority=self.random.choice([50, 100, 200]),
                        **policies,
                    )
                )
        isolated = Call(name="isolated")
        found += [
            self._schedule(Every(2 * SECOND), isolated, now, overlap=o) for o in (Overlap.SKIP, Overlap.ALLOW)
        ]
        found.append(self._schedule(Every(SECOND), Call(name="quick"), now, deadline=2 * SECOND))
        return found

    def _trigger(self) -> AnyTrigger:
        if self.random.random() < 0.3:
            return Cron(self.random.choice(["* * * * * *", "*/2 * * * * *", "*/3 * * * * *"]))
        return Every(timedelta(seconds=self.random.choice(INTERVALS_S)))

    def _edited(self, now: datetime) -> list[Schedule]:
        return [
            self._schedule(
                Every(2 * SECOND), target, now, overlap=self.random.choice(list(Overlap)), **policies
            )
            for target, policies in self.random.sample(self._targets(), 8)
        ]

    def _free(self, now: datetime) -> list[Schedule]:
        """Schedules whose instants depend on what happens: counted, not predicted."""
        quick, flaky = Call(name="quick"), Call(name="flaky")
        return [
            *(self._schedule(After(SECOND), target, now) for target in (quick, flaky)),
            *(self._schedule(Every(2 * SECOND), target, now, adaptive=True) for target in (quick, flaky)),
            self._schedule(Every(SECOND), Call(name="broken"), now, cadence=Stretch()),
            self._schedule(Every(SECOND), quick, now, max_runs=20),
            *(self._schedule(Manual(), quick, now, overlap=overlap) for overlap in Overlap),
        ]

    # ----------------------------------------------------------------------------------------- the actions

    def act(self) -> None:
        """Perform one random action of a user or an agent; a refusal counts as an answer."""
        action = self.random.choice(ACTIONS)
        try:
            action(self)
            self.performed[action.__name__.strip("_")] += 1
        except StoreError as error:
            self.store_errors[type(error).__name__] += 1
        except TimewrightError as error:
            self.refused[f"{action.__name__.strip('_')}: {type(error).__name__}"] += 1
        except Exception as error:  # noqa: BLE001 - an unexpected error is a violation
            self.unexpected_errors.append(
                f"{action.__name__.strip('_')} failed: {type(error).__name__}: {error}"
            )

    def _choose(self, *families: str) -> TrackedSchedule:
        living = [
            k for k in self.tracked.values() if not k.archived and (not families or k.family in families)
        ]
        return self.random.choice(living)

    def _edit(self) -> None:
        kept = self._choose("edited")
        trigger = kept.schedule.trigger
        assert isinstance(trigger, Every)
        if self.random.random() < 0.7:
            trigger = Every(timedelta(seconds=self.random.choice(INTERVALS_S)), trigger.anchor)
        after = replace(kept.schedule, trigger=trigger, priority=self.random.choice([50, 100, 200]))
        changed = revise(self.store, after, ids=IDS, by=ACTOR, now=self.store.now())
        kept.schedule = changed.schedule
        # Decided instants stay decided; the new trigger holds after the cursor.
        kept.epochs.append((changed.progress.cursor, trigger))

    def _pause(self) -> None:
        now = self.store.now()
        until = now + timedelta(seconds=self.random.uniform(1, 6)) if self.random.random() < 0.6 else None
        pause(self.store, self._choose().id, ids=IDS, by=ACTOR, now=now, until=until)

    def _resume(self) -> None:
        for kept in self.random.sample(list(self.tracked.values()), 5):
            if not kept.archived and self._state(kept) is ScheduleState.PAUSED:
                resume(self.store, kept.id, ids=IDS, by=ACTOR, now=self.store.now())

    def _hint(self) -> None:
        kept = self.random.choice([k for k in self.tracked.values() if k.schedule.adaptive])
        now = self.store.now()
        wish = self.random.choice(
            [
                IntervalHint(interval=10 * SECOND, expires_at=now + 20 * SECOND, actor="agent"),
                OneShotHint(at=now + SECOND, expires_at=now + 60 * SECOND, actor="agent"),
                PauseHint(until=now + 3 * SECOND, actor="agent"),
            ]
        )
        hint(self.store, kept.id, wish, ids=IDS, by=ACTOR, now=now)

    def _clear_hints(self) -> None:
        kept = self.random.choice([k for k in self.tracked.values() if k.schedule.adaptive])
        clear_hints(self.store, kept.id, ids=IDS, by=ACTOR, now=self.store.now())

    def _run_now(self) -> None:
        force = self.random.random() < 0.2
        run_now(self.store, self._choose().id, ids=IDS, by=ACTOR, now=self.store.now(), force=force)

    def _skip_next(self) -> None:
        skip_next(self.store, self._choose("grid", "edited").id, ids=IDS, by=ACTOR, now=self.store.now())

    def _move_next(self) -> None:
        now = self.store.now()
        move_next(
            self.store, self._choose("grid", "edited").id, to=now + 3 * SECOND, ids=IDS, by=ACTOR, now=now
        )

    def _backfill(self) -> None:
        kept = self.random.choice([k for k in self.tracked.values() if k.family == "grid"])
        now = self.store.now()
        terms = BackfillTerms(since=now - 20 * SECOND, until=now - 15 * SECOND)
        start_backfill(self.store, kept.id, terms, ids=IDS, by=ACTOR, now=now)

    def _cancel(self) -> None:
        state = self.random.choice([RunState.LEASED, RunState.READY, RunState.HELD])
        page = self.store.read(lambda tx: tx.find(RunFilter(state=state, limit=20)))
        if page.rows:
            run = self.random.choice(page.rows)
            cancel(self.store, run.id, actor="soak", reason="soak", now=self.store.now())

    def _restart(self) -> None:
        state, again = self.random.choice([(RunState.PARKED, reset), (RunState.FAILED, reopen)])
        page = self.store.read(lambda tx: tx.find(RunFilter(state=state, limit=20)))
        if page.rows:
            run = self.random.choice(page.rows)
            self.restarted.add(run.id)
            again(self.store, run.id, actor="soak", now=self.store.now())

    def _replace_one(self) -> None:
        """Archive a schedule of a fixed grid, and create another."""
        kept = self._choose("grid")
        now = self.store.now()
        archive(self.store, kept.id, by=ACTOR, now=now)
        kept.archived = True
        target, policies = self.random.choice(self._targets())
        self.create_tracked("grid", [self._schedule(self._trigger(), target, self.store.now(), **policies)])

    def _once(self) -> None:
        now = self.store.now()
        at = now + timedelta(seconds=self.random.uniform(0.5, 3))
        self.create_tracked("once", [self._schedule(Once(at), Call(name="quick"), now)])

    def _change_limit(self) -> None:
        name = self.random.choice(list(LIMITS))
        self._set_limit(name, self.random.randint(1, 5))

    def _set_limit(self, name: str, most: int) -> None:
        set_limit(self.store, namespace="default", name=name, capacity=most, by=ACTOR, now=self.store.now())
        # Recorded after the commit: before it, readers see the old limit.
        self.limit_history.setdefault(named_limit_key("default", name), []).append((self.store.now(), most))

    def _enqueue(self) -> None:
        payloads = list(range(self.random.randint(1, 3)))
        now = self.store.now()
        enqueue(self.store, namespace="default", queue=ENTRIES, payloads=payloads, ids=IDS, by=ACTOR, now=now)

    def _work_outside(self) -> None:
        """An external worker leases from the queue, and completes, releases or abandons the runs."""
        now = self.store.now()
        ask = {"handoff": True, "queue": ("default", ENTRIES)}
        leased = lease_ready(self.store, ids=IDS, holder="outside", capacity=2, now=now, **ask)
        outcomes = [Succeeded(), Failed(error="no"), Released(reason="not today"), None]
        answers = [
            AttemptResult(run=lease.run, outcome=outcome, started_at=now)
            for lease in leased.leases
            if (outcome := self.random.choice(outcomes)) is not None
        ]
        settle_results(self.store, answers, now=self.store.now())

    # --------------------------------------------------------------------------------------------- the end

    def settle_down(self) -> None:
        """Let nothing new begin: pause the schedules and cancel runs that wait for external workers.

        The limits are raised, because a backlog behind a low one may take hours.
        """
        for kept in self.tracked.values():
            # Paused ones too: their pause may have an end.
            if self._state(kept) in (ScheduleState.ACTIVE, ScheduleState.PAUSED):
                self._retry(
                    lambda kept=kept: pause(self.store, kept.id, ids=IDS, by=ACTOR, now=self.store.now())
                )
        for name in LIMITS:
            self._retry(lambda name=name: self._set_limit(name, RAISED_LIMIT))
        for state in (RunState.READY, RunState.PARKED):
            for run in self.store.read(lambda tx, s=state: tx.find(RunFilter(state=s, limit=1000))).rows:
                if run.handoff:
                    self._retry(
                        lambda run=run: cancel(
                            self.store, run.id, actor="soak", reason="the end", now=self.store.now()
                        )
                    )

    def end_pauses(self) -> None:
        """With no engine running, end every pause, so that the occurrences it covered are written."""
        self.ended_at = self.store.now()
        for kept in self.tracked.values():
            if self._state(kept) is ScheduleState.PAUSED:
                resume(self.store, kept.id, ids=IDS, by=ACTOR, now=self.store.now())

    def _retry(self, action: Callable[[], object]) -> None:
        for _ in range(5):
            try:
                action()
                return
            except StoreError as error:
                self.store_errors[type(error).__name__] += 1
            except TimewrightError:
                return  # it changed meanwhile

    def _state(self, kept: TrackedSchedule) -> ScheduleState:
        state: ScheduleState = self.store.read(lambda tx: tx.get_schedules([kept.id]))[kept.id].progress.state
        return state


ACTIONS: tuple[Callable[[SoakWorkload], None], ...] = (
    *(SoakWorkload._edit,) * 3,
    *(SoakWorkload._pause,) * 2,
    *(SoakWorkload._resume,) * 4,
    *(SoakWorkload._hint,) * 2,
    SoakWorkload._clear_hints,
    *(SoakWorkload._run_now,) * 5,
    SoakWorkload._skip_next,
    SoakWorkload._move_next,
    SoakWorkload._backfill,
    *(SoakWorkload._cancel,) * 3,
    *(SoakWorkload._restart,) * 2,
    SoakWorkload._replace_one,
    SoakWorkload._once,
    SoakWorkload._change_limit,
    *(SoakWorkload._enqueue,) * 2,
    *(SoakWorkload._work_outside,) * 2,
)
