"""Doctor checks of the instances that share a store: admission shards, leader and policy file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from timewright.core.finding import Finding
from timewright.core.run.needs import HOST
from timewright.core.schedule.shards import parse_shard, uncovered_shards
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.leader import current_leader
from timewright.ledger.lookups import load_queue_policies
from timewright.ledger.queues.policy_file import PolicyFile
from timewright.ledger.records.instances import MAX_INSTANCES, is_alive, read_instances
from timewright.ports import Transaction

MAX_NAMES_SHOWN = 3
MIN_HOST_RUNS = 10


@checks.add()
def check_admission(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find shards that no instance admits directly; other instances admit them 10 s late."""
    now = scope.now
    alive = [seen.instance for seen in read_instances(tx, limit=MAX_INSTANCES) if is_alive(seen, now=now)]
    leader = current_leader(tx, now=now)
    served = [parse_shard(one.shard) for one in alive if one.admit == "any" or one.id == leader]
    if not alive or not uncovered_shards(served):
        return
    if not served:
        yield Finding(
            kind="leader",
            severity="warn",
            sentence="there is no leader: due schedules are admitted 10 s late until one is elected",
            remedy="check timewright instance list; a leader should be elected within 20 s",
        )
        return
    parts = [f"{which}/{of}" for which, of in uncovered_shards(served)]
    more = f" and {len(parts) - MAX_NAMES_SHOWN} more" if len(parts) > MAX_NAMES_SHOWN else ""
    yield Finding(
        kind="shards",
        severity="warn",
        sentence=f"no instance serves {', '.join(parts[:MAX_NAMES_SHOWN])}{more}: due runs are 10 s late",
        remedy=f"start timewright worker --shard {parts[0]}, or one without a shard",
    )


@checks.add()
def check_hosts(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find hosts whose requests take most of what they may take of an instance's capacity."""
    leased = tx.leased_runs()
    places = {one.instance.id: one.instance.capacity for one in read_instances(tx, limit=MAX_INSTANCES)}
    taken = Counter(
        (run.holder, need.removeprefix(HOST)) for run in leased for need in run.needs if need.startswith(HOST)
    )
    for (holder, host), count in taken.most_common(MAX_NAMES_SHOWN):
        capacity = places.get(holder, 0)
        if count < MIN_HOST_RUNS or 2 * count < capacity:
            continue
        since = min(run.leased_at or scope.now for run in leased if f"{HOST}{host}" in run.needs)
        yield Finding(
            kind="host",
            subject=host,
            since=since,
            severity="warn",
            sentence=f"requests to {host} take {count} of the {capacity} places of {holder}",
            remedy="see whether the host answers; set a shorter timeout, or egress.per_host",
        )


@checks.add()
def check_policy_file(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Check that the policy file exists, is valid, and is in force."""
    file = scope.policy_file
    if file is None:
        return
    if file.error is not None:
        yield Finding(
            kind="policy_file",
            severity="fail",
            sentence=f"no queue leases anything: {file.error.message}",
            remedy=file.error.fix or "correct the file",
        )
    elif file.absent:
        yield Finding(
            kind="policy_file",
            severity="warn",
            sentence=f"policy file {file.path} does not exist: queues use the default policy",
            remedy="create it, or remove policy_file from the settings",
        )
    else:
        yield _in_force(tx, file, namespace=scope.namespace)


def _in_force(tx: Transaction, file: PolicyFile, *, namespace: str) -> Finding:
    stored = load_queue_policies(tx, [(namespace, name) for name in file.policies])
    different = sorted(
        name for name, policy in file.policies.items() if stored.get((namespace, name)) != policy
    )
    if different:
        return Finding(
            kind="policy_file",
            severity="warn",
            sentence=f"{file.path} is not in force for {', '.join(different[:MAX_NAMES_SHOWN])}",
            remedy="start an instance with this policy_file",
        )
    message = f"policy file {file.path}: {len(file.policies)} queues"
    return Finding(kind="policy_file", severity="ok", sentence=message)
