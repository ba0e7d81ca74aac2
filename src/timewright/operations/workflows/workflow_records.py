"""How workflows are stored: a header with the newest version, and one row per version."""

from __future__ import annotations

from datetime import datetime

import msgspec

from timewright.core.workflow import WorkflowSpec
from timewright.core.workflow.spec import each_limits
from timewright.ledger.workflow_runs.records import (
    VERSION,
    WORKFLOW,
    StoredVersion,
    WorkflowHeader,
    find_header,
    read_header,
    read_spec,
    version_name,
)
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.ports import StoredObject, Transaction


def require_workflow(tx: Transaction, namespace: str, name: str) -> WorkflowHeader:
    """Return the header of a workflow; raises NotFound if it does not exist or was deleted."""
    head = find_header(tx, namespace, name)
    if head is None or head.deleted:
        rows = tx.get_objects(WORKFLOW, namespace=namespace)
        known = [row.name for row in rows if not read_header(row).deleted]
        raise not_found("workflow", name, known, list_command="workflow list")
    return head


def require_version(tx: Transaction, namespace: str, name: str, version: int) -> WorkflowSpec:
    """Return one version of a workflow; raises NotFound if it does not exist."""
    spec = read_spec(tx, namespace, name, version)
    if spec is None:
        raise not_found(
            "version", f"{name} {version}", (), list_command=f"workflow get {name}", field="version"
        )
    return spec


def save_version(
    tx: Transaction,
    context: OperationContext,
    spec: WorkflowSpec,
    head: WorkflowHeader,
    *,
    reason: str,
    now: datetime,
) -> None:
    """Write a new version and the header that points to it; a concurrent put raises Conflict."""
    name, namespace = spec.name, context.namespace
    text = StoredObject(
        kind=VERSION,
        namespace=namespace,
        name=version_name(name, head.version),
        body=msgspec.json.encode(StoredVersion(spec=spec, author=context.by.name, origin=context.by.origin)),
        at=now,
    )
    tx.put_objects([text], replaces={text.name: 0})
    tx.set_limits(each_limits(spec, namespace))
    tx.put_objects([header_row(namespace, name, head, now=now)], replaces={name: head.version - 1})
    entry = context.actor_with_reason(reason).audit_entry(
        "workflow.put",
        namespace=namespace,
        subject=name,
        now=now,
        after=f"version {head.version} {head.digest}",
    )
    tx.add_audit([entry])


def header_row(namespace: str, name: str, head: WorkflowHeader, *, now: datetime) -> StoredObject:
    """Return the header of a workflow as a stored object."""
    body = msgspec.json.encode(head)
    return StoredObject(
        kind=WORKFLOW, namespace=namespace, name=name, revision=head.version, body=body, at=now
    )
