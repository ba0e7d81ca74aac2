"""How workflows lie in the store: a head with the newest version, and every version as it was put."""

from __future__ import annotations

from datetime import datetime

import msgspec

from timewright.core.workflow import WorkflowSpec
from timewright.ledger.unfold_parts import (
    VERSION,
    WORKFLOW,
    Head,
    find_head,
    read_head,
    read_spec,
    version_name,
)
from timewright.operations.context import Context
from timewright.operations.find import no_such
from timewright.ports import Stored, Transaction


def must_find(tx: Transaction, namespace: str, name: str) -> Head:
    """The newest version of a workflow; one that is not there, or was deleted, is refused."""
    head = find_head(tx, namespace, name)
    if head is None or head.deleted:
        rows = tx.get_objects(WORKFLOW, namespace=namespace)
        known = [row.name for row in rows if not read_head(row).deleted]
        raise no_such("workflow", name, known, lister="workflow list")
    return head


def must_read(tx: Transaction, namespace: str, name: str, version: int) -> WorkflowSpec:
    """One version of a workflow; one that was never put is refused."""
    spec = read_spec(tx, namespace, name, version)
    if spec is None:
        raise no_such("version", f"{name} {version}", (), lister=f"workflow get {name}", field="version")
    return spec


def keep(
    tx: Transaction, context: Context, spec: WorkflowSpec, head: Head, *, reason: str, now: datetime
) -> None:
    """Write a new version and the head that points to it; a put that came between is a Conflict."""
    name, namespace = spec.name, context.namespace
    text = Stored(
        kind=VERSION,
        namespace=namespace,
        name=version_name(name, head.version),
        body=msgspec.json.encode(spec),
        at=now,
    )
    tx.put_objects([text], replaces={text.name: 0})
    tx.put_objects([head_row(namespace, name, head, now=now)], replaces={name: head.version - 1})
    entry = context.because(reason).entry(
        "workflow.put",
        namespace=namespace,
        subject=name,
        now=now,
        after=f"version {head.version} {head.digest}",
    )
    tx.add_audit([entry])


def head_row(namespace: str, name: str, head: Head, *, now: datetime) -> Stored:
    """The head of a workflow as its row."""
    body = msgspec.json.encode(head)
    return Stored(kind=WORKFLOW, namespace=namespace, name=name, revision=head.version, body=body, at=now)
