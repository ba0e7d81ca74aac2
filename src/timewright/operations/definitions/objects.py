"""Applies and reads the definitions that are named objects: calendars, limits, queues and workflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.calendars import Calendar
from timewright.core.definitions import Kind
from timewright.core.definitions.export import calendar_fields, queue_fields, workflow_fields
from timewright.core.input.decode import decode
from timewright.core.policies.limits import LIMIT, decode_limit
from timewright.core.policies.policies import QueuePolicy
from timewright.ledger.lookups import CALENDAR, QUEUE
from timewright.ledger.queues.limits import remove_limit
from timewright.ledger.queues.policies import delete_policies, set_queue_policy
from timewright.ledger.queues.policies import put_calendar as save_calendar
from timewright.ledger.workflow_runs.records import WORKFLOW, read_header, read_spec
from timewright.operations.calendars.calendars import (
    DeleteCalendar,
    PutCalendar,
    check_zones_allowed,
    delete_calendar,
)
from timewright.operations.calendars.calendars import put_named_calendar as put_calendar
from timewright.operations.context import OperationContext
from timewright.operations.queues.limits import SetLimit, set_named_limit
from timewright.operations.request_parsing import parse_request
from timewright.operations.workflows.workflows import (
    DeleteWorkflow,
    PutWorkflow,
    delete_workflow,
    put_workflow,
)
from timewright.ports import StoredObject, Transaction

Fields = Mapping[str, Any]


class StoredDefinition(Struct, frozen=True, kw_only=True):
    """A definition as the store has it: its revision, and its fields as a file would write them."""

    name: str
    revision: int
    fields: dict[str, Any]


class ObjectKind(Struct, frozen=True, kw_only=True):
    """How definitions of one kind are written, removed, and read back as fields.

    `stored_as` is the kind of the stored objects. `read` returns None for an object that is deleted.
    """

    stored_as: str
    put: Callable[[OperationContext, str, Fields], None]
    remove: Callable[[OperationContext, str], None]
    read: Callable[[Transaction, StoredObject], dict[str, Any] | None]

    def stored(self, tx: Transaction, namespace: str, names: list[str] | None) -> dict[str, StoredDefinition]:
        """Return the stored definitions by name."""
        found = {}
        for row in tx.get_objects(self.stored_as, namespace=namespace, names=names):
            fields = self.read(tx, row)
            if fields is not None:
                found[row.name] = StoredDefinition(name=row.name, revision=row.revision, fields=fields)
        return found


def _put_calendar(context: OperationContext, name: str, fields: Fields) -> None:
    if "source" in fields:
        # An exported calendar: its days were imported before, and it can still be refreshed.
        base = {"namespace": context.namespace, "name": name}
        calendar = decode(fields, Calendar, base=base)
        check_zones_allowed(context.settings, [calendar.zone], field="zone")
        save_calendar(context.store, calendar, by=context.by, now=context.now())
        return
    put_calendar(context, parse_request({"name": name, **fields}, PutCalendar))


def _remove_calendar(context: OperationContext, name: str) -> None:
    delete_calendar(context, DeleteCalendar(calendar=name))


def _read_calendar(_tx: Transaction, row: StoredObject) -> dict[str, Any]:
    return calendar_fields(msgspec.json.decode(row.body, type=Calendar))


def _put_limit(context: OperationContext, name: str, fields: Fields) -> None:
    renamed = {"max_running" if key == "max" else key: value for key, value in fields.items()}
    set_named_limit(context, parse_request({"limit": name, **renamed}, SetLimit))


def _remove_limit(context: OperationContext, name: str) -> None:
    by, now = context.by, context.now()
    context.store.write(lambda tx: remove_limit(tx, name, namespace=context.namespace, by=by, now=now))


def _read_limit(_tx: Transaction, row: StoredObject) -> dict[str, Any]:
    fields = msgspec.to_builtins(decode_limit(row.body))
    return {key: value for key, value in fields.items() if key != "name"}


def _put_queue(context: OperationContext, name: str, fields: Fields) -> None:
    set_queue_policy(
        context.store,
        namespace=context.namespace,
        queue=name,
        policy=decode(fields, QueuePolicy),
        by=context.by,
        now=context.now(),
    )


def _remove_queue(context: OperationContext, name: str) -> None:
    by, now = context.by, context.now()
    context.store.write(lambda tx: delete_policies(tx, [name], namespace=context.namespace, by=by, now=now))


def _read_queue(_tx: Transaction, row: StoredObject) -> dict[str, Any]:
    return queue_fields(msgspec.json.decode(row.body, type=QueuePolicy))


def _put_workflow(context: OperationContext, name: str, fields: Fields) -> None:
    put_workflow(context, parse_request({"name": name, **fields}, PutWorkflow))


def _remove_workflow(context: OperationContext, name: str) -> None:
    delete_workflow(context, DeleteWorkflow(workflow=name))


def _read_workflow(tx: Transaction, row: StoredObject) -> dict[str, Any] | None:
    head = read_header(row)
    spec = read_spec(tx, row.namespace, row.name, head.version) if not head.deleted else None
    return workflow_fields(spec) if spec is not None else None


# A kind of definition joins files with its section (`core.definitions.SECTIONS`) and its entry here.
OBJECT_KINDS: dict[Kind, ObjectKind] = {
    "calendar": ObjectKind(
        stored_as=CALENDAR, put=_put_calendar, remove=_remove_calendar, read=_read_calendar
    ),
    "limit": ObjectKind(stored_as=LIMIT, put=_put_limit, remove=_remove_limit, read=_read_limit),
    "queue": ObjectKind(stored_as=QUEUE, put=_put_queue, remove=_remove_queue, read=_read_queue),
    "workflow": ObjectKind(
        stored_as=WORKFLOW, put=_put_workflow, remove=_remove_workflow, read=_read_workflow
    ),
}
