"""Limits with a key or a rate: their definition, what is used of them, and the rows of their keys."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tests.conformance.support.builders import NOON, add, ended, leased, make_run, settle, stored
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies.limits import KEY_MARK, LIMIT, MAX_LIMIT, Limit, named_limit_key
from timewright.core.run.leasing import SHARE_UNIT, LimitGroup, LimitUsage
from timewright.core.run.run import Run
from timewright.ports import Store
from timewright.ports.overview import LimitHolds
from timewright.ports.rows import LimitKeyPrune
from timewright.ports.runs import LimitKeys

CRM = named_limit_key("default", "crm")
ACME, BETA = f"{CRM}{KEY_MARK}acme", f"{CRM}{KEY_MARK}beta"
# Its keys are neither those of `crm` nor between them.
OTHER = f"{named_limit_key('default', 'crm-api')}{KEY_MARK}acme"
PER_TENANT = Limit(name="crm", key="payload.tenant", max_running=2, rate="1/s burst 3", weights={"acme": 4})
SECOND_MICROS = 1_000_000


def define(store: Store, limit: Limit) -> None:
    """Store a limit and put it into force."""
    row = stored(limit.name, msgspec.json.encode(limit), kind=LIMIT)
    store.write(lambda tx: tx.put_objects([row]))


def lock(store: Store, *keys: str) -> dict[str, LimitUsage]:
    return store.write(lambda tx: tx.get_limits(keys, lock=True))


def use(store: Store, *keys: str, groups: tuple[LimitGroup, ...] = (), at: datetime = NOON) -> None:
    """Write one start under each key."""
    used = {key: usage.after_start(now=at) for key, usage in lock(store, *keys).items()}
    store.write(lambda tx: tx.save_limit_use(used, groups, now=at))


def keys_of(store: Store, key: str = CRM, *, limit: int = 10) -> tuple[int, list[str]]:
    held = store.read(lambda tx: tx.count(LimitHolds(key)))
    return held["leases"], store.read(lambda tx: tx.select(LimitKeys(key, limit)))


def ready(store: Store, *, now: datetime = NOON) -> list[str]:
    return [run.id for run in store.write(lambda tx: tx.ready_runs(now=now, limit=10))]


def waiting_run(store: Store, key: str) -> Run:
    run = make_run(limit_keys=(key,))
    add(store, run)
    return run


def group_of(run: Run, *, waits_for: str, open_at: datetime | None = None) -> LimitGroup:
    return LimitGroup(needs=(), limit_keys=run.limit_keys, waits_for=waits_for, open_at=open_at)


def test_every_key_has_the_numbers_of_its_limit_and_its_own_weight(store: Store) -> None:
    define(store, PER_TENANT)
    numbers = {"capacity": 2, "rate_interval": SECOND_MICROS, "burst": 3}
    expected = {ACME: LimitUsage(**numbers, weight=4), BETA: LimitUsage(**numbers)}
    assert store.read(lambda tx: tx.get_limits([ACME, BETA])) == expected
    assert lock(store, ACME, BETA) == expected


def test_a_limit_that_is_defined_again_changes_its_keys_and_no_others(store: Store) -> None:
    define(store, PER_TENANT)
    define(store, Limit(name="crm-api", key="payload.tenant", max_running=7))
    lock(store, ACME, BETA, OTHER)
    define(store, Limit(name="crm", key="payload.tenant", max_running=5, weights={"beta": 2}))
    assert store.read(lambda tx: tx.get_limits([ACME, BETA, OTHER])) == {
        ACME: LimitUsage(5),
        BETA: LimitUsage(5, weight=2),
        OTHER: LimitUsage(7),
    }


def test_a_limit_without_a_count_has_the_largest_capacity(store: Store) -> None:
    define(store, Limit(name="crm", rate="6/m"))
    assert lock(store, f"{CRM}{KEY_MARK}") == {
        f"{CRM}{KEY_MARK}": LimitUsage(MAX_LIMIT, rate_interval=10 * SECOND_MICROS)
    }


def test_a_used_rate_is_kept_until_another_rate_is_defined(store: Store) -> None:
    define(store, PER_TENANT)
    use(store, ACME)
    before = lock(store, ACME)[ACME]
    assert before.arrival_at == LimitUsage(2, rate_interval=SECOND_MICROS).after_start(now=NOON).arrival_at
    assert before.share_used == SHARE_UNIT // 4
    define(store, Limit(name="crm", key="payload.tenant", max_running=9, rate="1/s burst 3"))
    assert lock(store, ACME)[ACME].arrival_at == before.arrival_at
    define(store, Limit(name="crm", key="payload.tenant", rate="2/s"))
    assert lock(store, ACME)[ACME].arrival_at == 0


def test_a_used_rate_allows_no_start_until_the_next_is_due(store: Store) -> None:
    define(store, Limit(name="crm", key="payload.tenant", rate="1/m burst 2"))
    use(store, ACME)
    assert lock(store, ACME)[ACME].startable(now=NOON) == 1
    use(store, ACME)
    usage = lock(store, ACME, BETA)
    assert (usage[ACME].startable(now=NOON), usage[BETA].startable(now=NOON)) == (0, 2)
    assert usage[ACME].closed_until(now=NOON) == NOON + MINUTE
    assert usage[ACME].startable(now=NOON + MINUTE) == 1


def test_a_group_waits_until_a_lease_of_its_key_ends(store: Store) -> None:
    define(store, Limit(name="crm", key="payload.tenant", max_running=1))
    running, waits, other = (waiting_run(store, key) for key in (ACME, ACME, BETA))
    (held,) = leased(store, running)
    use(store, ACME, groups=(group_of(waits, waits_for=ACME),))
    assert ready(store) == [other.id]
    settle(store, ended(held))
    assert sorted(ready(store)) == sorted([waits.id, other.id])


def test_a_group_waits_for_a_rate_until_its_instant(store: Store) -> None:
    define(store, Limit(name="crm", key="payload.tenant", rate="1/m"))
    run = waiting_run(store, ACME)
    use(store, ACME, groups=(group_of(run, waits_for="rate", open_at=NOON + MINUTE),))
    assert ready(store, now=NOON + MINUTE - SECOND) == []
    assert ready(store, now=NOON + MINUTE) == [run.id]


def test_a_limit_that_is_defined_again_opens_the_groups_that_waited_for_it(store: Store) -> None:
    define(store, Limit(name="crm", key="payload.tenant", max_running=1))
    full, slow = waiting_run(store, ACME), waiting_run(store, BETA)
    groups = (
        group_of(full, waits_for=ACME),
        group_of(slow, waits_for="rate", open_at=NOON + HOUR),
    )
    use(store, ACME, BETA, groups=groups)
    assert ready(store) == []
    define(store, Limit(name="crm", key="payload.tenant", max_running=2))
    assert sorted(ready(store)) == sorted([full.id, slow.id])


def test_the_keys_of_a_limit_are_found_in_order_with_all_their_leases(store: Store) -> None:
    assert keys_of(store) == (0, [])
    define(store, PER_TENANT)
    define(store, Limit(name="crm-api", key="payload.tenant", max_running=7))
    lock(store, BETA, ACME, OTHER, CRM)
    leased(store, *(waiting_run(store, key) for key in (ACME, BETA, BETA, OTHER)))
    assert keys_of(store) == (3, [ACME, BETA])
    assert keys_of(store, limit=1) == (3, [ACME])
    found = store.read(lambda tx: tx.get_limits([ACME, BETA]))
    assert (found[ACME].held, found[BETA].held, found[ACME].weight) == (1, 2, 4)


def test_only_keys_that_are_out_of_use_are_removed(store: Store) -> None:
    define(store, Limit(name="crm", key="payload.tenant", max_running=3))
    recent = f"{CRM}{KEY_MARK}recent"
    (held,) = leased(store, waiting_run(store, BETA))
    use(store, ACME, BETA)
    use(store, recent, at=NOON + 2 * HOUR)
    store.write(lambda tx: tx.prune(LimitKeyPrune(NOON)))
    assert keys_of(store) == (1, [ACME, BETA, recent])
    store.write(lambda tx: tx.prune(LimitKeyPrune(NOON + HOUR)))
    assert keys_of(store) == (1, [BETA, recent])
    settle(store, ended(held))
    store.write(lambda tx: tx.prune(LimitKeyPrune(NOON + HOUR)))
    assert keys_of(store) == (0, [recent])
    assert lock(store, CRM, ACME) == {CRM: LimitUsage(3), ACME: LimitUsage(3)}, "made again from the limit"


def test_a_key_whose_rate_is_used_ahead_is_kept(store: Store) -> None:
    define(store, Limit(name="crm", key="payload.tenant", rate="1/d"))
    use(store, ACME)
    store.write(lambda tx: tx.prune(LimitKeyPrune(NOON + HOUR)))
    assert keys_of(store) == (0, [ACME])
    store.write(lambda tx: tx.prune(LimitKeyPrune(NOON + 25 * HOUR)))
    assert keys_of(store) == (0, [])
