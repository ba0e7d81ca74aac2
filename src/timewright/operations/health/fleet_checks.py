"""Doctor checks of the instances that share a store: admission shards, leader and policy file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from timewright.core.schedule.shards import parse_shard, uncovered_shards
from timewright.ledger.leader import current_leader
from timewright.ledger.lookups import load_queue_policies
from timewright.ledger.queues.policy_file import PolicyFile
from timewright.ledger.records.instances import read_instances
from timewright.operations.health.doctor_checks import DoctorFinding
from timewright.operations.health.instances import MAX_INSTANCES, is_alive
from timewright.ports import Transaction

MAX_NAMES_SHOWN = 3


def admission_findings(tx: Transaction, *, now: datetime) -> Iterator[DoctorFinding]:
    """Find shards that no instance admits directly; other instances admit them 10 s late."""
    alive = [seen.instance for seen in read_instances(tx, limit=MAX_INSTANCES) if is_alive(seen, now=now)]
    leader = current_leader(tx, now=now)
    served = [parse_shard(one.shard) for one in alive if one.admit == "any" or one.id == leader]
    if not alive or not uncovered_shards(served):
        return
    if not served:
        yield DoctorFinding(
            check="leader",
            status="warn",
            message="there is no leader: due schedules are admitted 10 s late until one is elected",
            fix="check timewright instance list; a leader should be elected within 20 s",
        )
        return
    parts = [f"{which}/{of}" for which, of in uncovered_shards(served)]
    more = f" and {len(parts) - MAX_NAMES_SHOWN} more" if len(parts) > MAX_NAMES_SHOWN else ""
    yield DoctorFinding(
        check="shards",
        status="warn",
        message=f"no instance serves {', '.join(parts[:MAX_NAMES_SHOWN])}{more}: due runs are 10 s late",
        fix=f"start timewright worker --shard {parts[0]}, or one without a shard",
    )


def policy_file_findings(
    tx: Transaction, file: PolicyFile | None, *, namespace: str
) -> Iterator[DoctorFinding]:
    """Check that the policy file exists, is valid, and is in force."""
    if file is None:
        return
    if file.error is not None:
        yield DoctorFinding(
            check="policy_file",
            status="fail",
            message=f"no queue leases anything: {file.error.message}",
            fix=file.error.fix or "correct the file",
        )
    elif file.absent:
        yield DoctorFinding(
            check="policy_file",
            status="warn",
            message=f"policy file {file.path} does not exist: queues use the default policy",
            fix="create it, or remove policy_file from the settings",
        )
    else:
        yield _in_force(tx, file, namespace=namespace)


def _in_force(tx: Transaction, file: PolicyFile, *, namespace: str) -> DoctorFinding:
    stored = load_queue_policies(tx, [(namespace, name) for name in file.policies])
    different = sorted(
        name for name, policy in file.policies.items() if stored.get((namespace, name)) != policy
    )
    if different:
        return DoctorFinding(
            check="policy_file",
            status="warn",
            message=f"{file.path} is not in force for {', '.join(different[:MAX_NAMES_SHOWN])}",
            fix="start an instance with this policy_file",
        )
    message = f"policy file {file.path}: {len(file.policies)} queues"
    return DoctorFinding(check="policy_file", status="ok", message=message)
