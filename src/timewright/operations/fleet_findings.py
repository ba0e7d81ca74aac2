"""What a doctor says of those who share a store: who decides what is due, and by which policy file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from timewright.core.shards import read_shard, unserved
from timewright.ledger.leader import leader_of
from timewright.ledger.policy_file import PolicyFile
from timewright.ledger.roster import roster
from timewright.ledger.shelf import queue_policies
from timewright.operations.checks import Finding
from timewright.operations.instances import MOST, is_alive
from timewright.ports import Transaction

MOST_NAMED = 3


def duty_findings(tx: Transaction, *, now: datetime) -> Iterator[Finding]:
    """Parts of the schedules that nobody decides at once; everyone decides them a little later."""
    alive = [seen.instance for seen in roster(tx, limit=MOST) if is_alive(seen, now=now)]
    leader = leader_of(tx, now=now)
    served = [read_shard(one.shard) for one in alive if one.admit == "any" or one.id == leader]
    if not alive or not unserved(served):
        return
    if not served:
        yield Finding(
            check="leader",
            status="warn",
            says="nobody leads: what is due is decided 10 s late, until an instance does",
            fix="timewright instance list; it should be over within 20 s",
        )
        return
    parts = [f"{which}/{of}" for which, of in unserved(served)]
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    yield Finding(
        check="shards",
        status="warn",
        says=f"nobody serves {', '.join(parts[:MOST_NAMED])}{more}: what is due there is decided 10 s late",
        fix=f"timewright worker --shard {parts[0]}, or one without a shard",
    )


def policy_findings(tx: Transaction, file: PolicyFile | None, *, namespace: str) -> Iterator[Finding]:
    """Whether the policy file is there, can be read, and is what is in force."""
    if file is None:
        return
    if file.refusal is not None:
        yield Finding(
            check="policy_file",
            status="fail",
            says=f"nothing is leased from queues: {file.refusal.message}",
            fix=file.refusal.fix or "mend the file",
        )
    elif file.absent:
        yield Finding(
            check="policy_file",
            status="warn",
            says=f"policy file {file.path} is not there: queues stand under the cautious policy",
            fix="write it, or leave policy_file out of the settings",
        )
    else:
        yield _in_force(tx, file, namespace=namespace)


def _in_force(tx: Transaction, file: PolicyFile, *, namespace: str) -> Finding:
    kept = queue_policies(tx, [(namespace, name) for name in file.policies])
    others = sorted(name for name, policy in file.policies.items() if kept.get((namespace, name)) != policy)
    if others:
        return Finding(
            check="policy_file",
            status="warn",
            says=f"what {file.path} says is not in force for {', '.join(others[:MOST_NAMED])}",
            fix="start an instance with this policy_file, which puts it in force",
        )
    says = f"policy file {file.path}: {len(file.policies)} queues"
    return Finding(check="policy_file", status="ok", says=says)
