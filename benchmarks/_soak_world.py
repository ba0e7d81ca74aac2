"""What a soak is made of: schedules of every kind, and people and agents who change them all the time.

Everything that decides which occurrences there must be is written down here as it happens, so that the
account at the end needs no word of the engine for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from msgspec.structs import replace

from benchmarks._measure import IDS
from timewright.core.backoff import Constant, Stretch
from timewright.core.hints import IntervalHint, OneShotHint, PauseHint
from timewright.core.policies import (
    CatchUp,
    Delivery,
    Exhausted,
    LeaseTerms,
    Overlap,
    QueuePolicy,
    Retry,
)
from timewright.core.run import Failed, Released, RunState, Succeeded
from timewright.core.schedule import Schedule, ScheduleState, limit_gate, queue_gate
from timewright.core.target import AnyTarget, Call, Http, Note, Shell
from timewright.core.triggers import After, AnyTrigger, Cron, Every, Manual, Once
from timewright.errors import StoreError, TimewrightError
from timewright.ledger.backfill import backfill
from timewright.ledger.by_hand import enqueue, move_next, run_now, skip_next
from timewright.ledger.lease import lease_ready
from timewright.ledger.policy import set_limit, set_queue_policy
from timewright.ledger.replan import By, archive, clear_hints, create, hint, pause, resume, revise
from timewright.ledger.settle import Answer, cancel, reopen, reset, settle_answers
from timewright.ports import RunFilter, Store

BY = By(actor="soak", reason="soak")
SECOND = timedelta(seconds=1)
LEASE = LeaseTerms(length=4 * SECOND, time_limit=3 * SECOND, grace=SECOND)
LIMITS = {"crm": 2, "mail": 4}
WIDE = 16
QUEUE, ENTRIES = "narrow", "outside"
STEPS = (1.0, 1.5, 2.0, 3.0)


class Kept:
    """A schedule and what is known about it: which trigger was in force from which instant on."""

    def __init__(self, schedule: Schedule, family: str) -> None:
        self.id = schedule.id
        self.name = schedule.name
        self.family = family
        self.schedule = schedule
        self.epochs: list[tuple[datetime, AnyTrigger]] = [(schedule.created_at, schedule.trigger)]
        self.archived = False


class World:
    """All schedules, and everything that is done to them from outside."""

    def __init__(self, store: Store, *, url: str, seed: int) -> None:
        self.store = store
        self.url = url
        self.chance = Random(seed)
        self.kept: dict[str, Kept] = {}
        self.ceilings: dict[str, list[tuple[datetime, int]]] = {}
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.away: Counter[str] = Counter()
        self.restarted: set[str] = set()
        self.broken: list[str] = []
        self.over_at: datetime | None = None
        self._names = 0

    # ------------------------------------------------------------------------------------------- the start

    def build(self) -> None:
        """The policies, then a schedule of each kind."""
        now = self.store.now()
        for name, most in LIMITS.items():
            self._set_limit(name, most)
        for queue, most in ((QUEUE, 3), (ENTRIES, 2)):
            policy = QueuePolicy(max_concurrent=most, lease=4 * SECOND, backoff=Constant(SECOND / 2))
            set_queue_policy(self.store, namespace="default", queue=queue, policy=policy, by=BY, now=now)
            self.ceilings.setdefault(queue_gate("default", queue), []).append((now, most))
        self.keep("grid", self._grids(now))
        self.keep("edited", self._edited(now))
        self.keep("free", self._free(now))

    def keep(self, family: str, schedules: list[Schedule]) -> None:
        """Create schedules and write down what they are."""
        create(self.store, schedules, by=BY, now=schedules[0].created_at)
        for schedule in schedules:
            self.kept[schedule.id] = Kept(schedule, family)

    def _schedule(self, trigger: AnyTrigger, target: AnyTarget, now: datetime, **policies: Any) -> Schedule:
        self._names += 1
        if isinstance(trigger, Every):
            trigger = trigger.anchored(now)
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
        """Every kind of work, with the policy that goes with it."""
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
        """Each overlap with some of the work, on grids that never change: accounted for to the instant."""
        found: list[Schedule] = []
        for overlap in Overlap:
            for target, policies in self.chance.sample(self._targets(), 10):
                found.append(
                    self._schedule(
                        self._trigger(),
                        target,
                        now,
                        overlap=overlap,
                        catch_up=self.chance.choice(list(CatchUp)),
                        grace=self.chance.choice([SECOND, 60 * SECOND]),
                        spread_over=5 * SECOND,
                        jitter=self.chance.choice([SECOND / 2, 0 * SECOND, 0 * SECOND]),
                        priority=self.chance.choice([50, 100, 200]),
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
        if self.chance.random() < 0.3:
            return Cron(self.chance.choice(["* * * * * *", "*/2 * * * * *", "*/3 * * * * *"]))
        return Every(timedelta(seconds=self.chance.choice(STEPS)))

    def _edited(self, now: datetime) -> list[Schedule]:
        return [
            self._schedule(
                Every(2 * SECOND), target, now, overlap=self.chance.choice(list(Overlap)), **policies
            )
            for target, policies in self.chance.sample(self._targets(), 8)
        ]

    def _free(self, now: datetime) -> list[Schedule]:
        """Those whose instants depend on what happens: counted, not predicted."""
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
        """Do one thing that a person or an agent might do now; a refusal is an answer too."""
        action = self.chance.choice(ACTIONS)
        try:
            action(self)
            self.done[action.__name__.strip("_")] += 1
        except StoreError as error:
            self.away[type(error).__name__] += 1
        except TimewrightError as error:
            self.refused[f"{action.__name__.strip('_')}: {type(error).__name__}"] += 1
        except Exception as error:  # noqa: BLE001 - what is neither done nor refused is a finding
            self.broken.append(f"{action.__name__.strip('_')} broke: {type(error).__name__}: {error}")

    def _some(self, *families: str) -> Kept:
        living = [k for k in self.kept.values() if not k.archived and (not families or k.family in families)]
        return self.chance.choice(living)

    def _edit(self) -> None:
        kept = self._some("edited")
        trigger = kept.schedule.trigger
        assert isinstance(trigger, Every)
        if self.chance.random() < 0.7:
            trigger = Every(timedelta(seconds=self.chance.choice(STEPS)), trigger.anchor)
        after = replace(kept.schedule, trigger=trigger, priority=self.chance.choice([50, 100, 200]))
        changed = revise(self.store, after, ids=IDS, by=BY, now=self.store.now())
        kept.schedule = changed.schedule
        # What is decided stays decided; after the cursor, the new words hold.
        kept.epochs.append((changed.standing.cursor, trigger))

    def _pause(self) -> None:
        now = self.store.now()
        until = now + timedelta(seconds=self.chance.uniform(1, 6)) if self.chance.random() < 0.6 else None
        pause(self.store, self._some().id, by=BY, now=now, until=until)

    def _resume(self) -> None:
        for kept in self.chance.sample(list(self.kept.values()), 5):
            if not kept.archived and self._state(kept) is ScheduleState.PAUSED:
                resume(self.store, kept.id, ids=IDS, by=BY, now=self.store.now())

    def _hint(self) -> None:
        kept = self.chance.choice([k for k in self.kept.values() if k.schedule.adaptive])
        now = self.store.now()
        wish = self.chance.choice(
            [
                IntervalHint(interval=10 * SECOND, expires_at=now + 20 * SECOND, actor="agent"),
                OneShotHint(at=now + SECOND, expires_at=now + 60 * SECOND, actor="agent"),
                PauseHint(until=now + 3 * SECOND, actor="agent"),
            ]
        )
        hint(self.store, kept.id, wish, by=BY, now=now)

    def _clear_hints(self) -> None:
        kept = self.chance.choice([k for k in self.kept.values() if k.schedule.adaptive])
        clear_hints(self.store, kept.id, by=BY, now=self.store.now())

    def _run_now(self) -> None:
        force = self.chance.random() < 0.2
        run_now(self.store, self._some().id, ids=IDS, by=BY, now=self.store.now(), force=force)

    def _skip_next(self) -> None:
        skip_next(self.store, self._some("grid", "edited").id, ids=IDS, by=BY, now=self.store.now())

    def _move_next(self) -> None:
        now = self.store.now()
        move_next(self.store, self._some("grid", "edited").id, to=now + 3 * SECOND, ids=IDS, by=BY, now=now)

    def _backfill(self) -> None:
        kept = self.chance.choice([k for k in self.kept.values() if k.family == "grid"])
        now = self.store.now()
        backfill(
            self.store, kept.id, since=now - 20 * SECOND, until=now - 15 * SECOND, ids=IDS, by=BY, now=now
        )

    def _cancel(self) -> None:
        state = self.chance.choice([RunState.LEASED, RunState.READY, RunState.HELD])
        page = self.store.read(lambda tx: tx.find_runs(RunFilter(state=state, limit=20)))
        if page.rows:
            run = self.chance.choice(page.rows)
            cancel(self.store, run.id, actor="soak", reason="soak", now=self.store.now())

    def _restart(self) -> None:
        state, again = self.chance.choice([(RunState.PARKED, reset), (RunState.FAILED, reopen)])
        page = self.store.read(lambda tx: tx.find_runs(RunFilter(state=state, limit=20)))
        if page.rows:
            run = self.chance.choice(page.rows)
            self.restarted.add(run.id)
            again(self.store, run.id, actor="soak", now=self.store.now())

    def _replace_one(self) -> None:
        """Retire a schedule of a fixed grid, and make another."""
        kept = self._some("grid")
        now = self.store.now()
        archive(self.store, kept.id, by=BY, now=now)
        kept.archived = True
        target, policies = self.chance.choice(self._targets())
        self.keep("grid", [self._schedule(self._trigger(), target, self.store.now(), **policies)])

    def _once(self) -> None:
        now = self.store.now()
        at = now + timedelta(seconds=self.chance.uniform(0.5, 3))
        self.keep("once", [self._schedule(Once(at), Call(name="quick"), now)])

    def _change_limit(self) -> None:
        name = self.chance.choice(list(LIMITS))
        self._set_limit(name, self.chance.randint(1, 5))

    def _set_limit(self, name: str, most: int) -> None:
        set_limit(self.store, namespace="default", name=name, most=most, by=BY, now=self.store.now())
        # Noted after the commit: until then whoever looks sees the old one.
        self.ceilings.setdefault(limit_gate("default", name), []).append((self.store.now(), most))

    def _enqueue(self) -> None:
        payloads = list(range(self.chance.randint(1, 3)))
        now = self.store.now()
        enqueue(self.store, namespace="default", queue=ENTRIES, payloads=payloads, ids=IDS, by=BY, now=now)

    def _work_outside(self) -> None:
        """Someone outside leases from the queue, and answers, gives back, or is never heard of again."""
        now = self.store.now()
        ask = {"handoff": True, "queue": ("default", ENTRIES)}
        leased = lease_ready(self.store, ids=IDS, holder="outside", capacity=2, now=now, **ask)
        outcomes = [Succeeded(), Failed(error="no"), Released(reason="not today"), None]
        answers = [
            Answer(run=lease.run, outcome=outcome, started_at=now)
            for lease in leased.leases
            if (outcome := self.chance.choice(outcomes)) is not None
        ]
        settle_answers(self.store, answers, now=self.store.now())

    # --------------------------------------------------------------------------------------------- the end

    def settle_down(self) -> None:
        """Let nothing new begin: schedules are paused, what waits for someone outside is cancelled.

        The ceilings are raised, because a backlog behind a low one may take hours.
        """
        for kept in self.kept.values():
            # Also one that is paused already: its pause may have an end.
            if self._state(kept) in (ScheduleState.ACTIVE, ScheduleState.PAUSED):
                self._patiently(lambda kept=kept: pause(self.store, kept.id, by=BY, now=self.store.now()))
        for name in LIMITS:
            self._patiently(lambda name=name: self._set_limit(name, WIDE))
        for state in (RunState.READY, RunState.PARKED):
            for run in self.store.read(lambda tx, s=state: tx.find_runs(RunFilter(state=s, limit=1000))).rows:
                if run.handoff:
                    self._patiently(
                        lambda run=run: cancel(
                            self.store, run.id, actor="soak", reason="the end", now=self.store.now()
                        )
                    )

    def account(self) -> None:
        """With no engine left: let every pause end, so that what it covered is written."""
        self.over_at = self.store.now()
        for kept in self.kept.values():
            if self._state(kept) is ScheduleState.PAUSED:
                resume(self.store, kept.id, ids=IDS, by=BY, now=self.store.now())

    def _patiently(self, action: Callable[[], object]) -> None:
        for _ in range(5):
            try:
                action()
                return
            except StoreError as error:
                self.away[type(error).__name__] += 1
            except TimewrightError:
                return  # it changed meanwhile, by itself

    def _state(self, kept: Kept) -> ScheduleState:
        state: ScheduleState = self.store.read(lambda tx: tx.get_schedules([kept.id]))[kept.id].standing.state
        return state


ACTIONS: tuple[Callable[[World], None], ...] = (
    *(World._edit,) * 3,
    *(World._pause,) * 2,
    *(World._resume,) * 4,
    *(World._hint,) * 2,
    World._clear_hints,
    *(World._run_now,) * 5,
    World._skip_next,
    World._move_next,
    World._backfill,
    *(World._cancel,) * 3,
    *(World._restart,) * 2,
    World._replace_one,
    World._once,
    World._change_limit,
    *(World._enqueue,) * 2,
    *(World._work_outside,) * 2,
)
