"""Workflows as they are kept: put, looked at, listed, deleted; every version stays."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.names import check_name
from timewright.core.shapes import target_shape
from timewright.core.target import AnyTarget, Workflow
from timewright.core.workflow import WorkflowSpec, decode_workflow
from timewright.errors import Conflict, InvalidInput, InvalidWorkflow, TimewrightError
from timewright.ledger.unfold_parts import (
    VERSION,
    WORKFLOW,
    Head,
    digest_of,
    find_head,
    read_head,
    version_name,
)
from timewright.operations.context import Context, together
from timewright.operations.pages import paged
from timewright.operations.registry import Listing, Named, Request, Write, operations
from timewright.operations.workflow_schedules import deploy, retire
from timewright.operations.workflow_shelf import head_row, keep, must_find, must_read
from timewright.ports import Page, Stored, Transaction

Version = Annotated[int, Meta(ge=1)]


class Put(Write, frozen=True, kw_only=True):
    """A workflow, whole, by its name: steps, and perhaps input, a time limit, an executor and schedules."""

    spreads: ClassVar[tuple[str, type[Struct]]] = ("draft", WorkflowSpec)

    draft: dict[str, Any] = field(default_factory=dict)


class Deployed(Struct, frozen=True, kw_only=True):
    """A workflow that was put, what that changed, and the schedules it has now."""

    change: Literal["created", "updated", "unchanged"]
    workflow: str
    version: int
    steps: int
    schedules: dict[str, str]


class Get(Request, frozen=True, kw_only=True):
    """Which workflow, and which version of it; without one the newest."""

    workflow: Named
    version: Version | None = None


class Got(Struct, frozen=True, kw_only=True):
    """One version of a workflow, the newest there is, and the schedules it was deployed with."""

    workflow: WorkflowSpec
    version: int
    newest: int
    at: datetime
    schedules: dict[str, str]


class List(Listing, frozen=True, kw_only=True):
    """Which workflows: all of the namespace."""


class Row(Struct, frozen=True, kw_only=True):
    """A workflow as a list shows it."""

    workflow: str
    version: int
    at: datetime
    schedules: tuple[str, ...]


class Workflows(Struct, frozen=True, kw_only=True):
    """A page of workflows, by name."""

    workflows: tuple[Row, ...]
    cursor: str = ""


class Delete(Write, frozen=True, kw_only=True):
    """Which workflow to delete, with its schedules."""

    workflow: Named


class Deleted(Struct, frozen=True, kw_only=True):
    """A workflow that starts no more; its versions stay, for the runs that have them."""

    workflow: str
    version: int
    retired: tuple[str, ...]


@operations.add(
    "workflow",
    "put",
    Put,
    scope="write",
    examples=(
        {
            "name": "orders",
            "steps": [
                {"name": "fetch", "target": "orders.fetch"},
                {
                    "name": "load",
                    "target": "orders.load",
                    "needs": ["fetch"],
                    "input": {"rows": {"$from": "steps.fetch.result.rows"}},
                },
            ],
            "schedules": [{"cron": "0 6 * * *", "zone": "Europe/Berlin", "user_id": "ada"}],
        },
        {"name": "tidy", "steps": [{"name": "sweep", "target": {"kind": "note", "text": "swept"}}]},
    ),
)
def put_workflow(context: Context, ask: Put) -> Deployed:
    """Keep a new version of a workflow and deploy its schedules; the same words again change nothing."""
    now = context.now()
    spec = _read(context, ask.draft)
    wanted = spec.version if "version" in ask.draft else None

    def work(inside: Context) -> Deployed:
        head = inside.store.read(lambda tx: find_head(tx, inside.namespace, spec.name))
        digest = digest_of(spec)
        if head is not None and not head.deleted and head.digest == digest and wanted in (None, head.version):
            return _answer("unchanged", spec, head)
        version = head.version + 1 if head is not None else 1
        _check_version(spec.name, wanted, version)
        kept = replace(spec, version=version)
        owned = head.schedules if head is not None else {}
        schedules = deploy(inside, kept, owned=owned, reason=ask.reason, now=now)
        after = Head(version=version, digest=digest, schedules=schedules)
        inside.store.write(lambda tx: keep(tx, inside, kept, after, reason=ask.reason, now=now))
        return _answer("created" if head is None else "updated", kept, after)

    return together(context, work)


@operations.add(
    "workflow",
    "get",
    Get,
    scope="read",
    examples=({"workflow": "nightly-load"}, {"workflow": "nightly-load", "version": 1}),
)
def get_workflow(context: Context, ask: Get) -> Got:
    """Show a workflow as it was put: the newest version, or an older one."""

    def work(tx: Transaction) -> Got:
        head = must_find(tx, context.namespace, ask.workflow)
        version = ask.version or head.version
        name = version_name(ask.workflow, version)
        rows = tx.get_objects(VERSION, namespace=context.namespace, names=[name])
        return Got(
            workflow=must_read(tx, context.namespace, ask.workflow, version),
            version=version,
            newest=head.version,
            at=rows[0].at,
            schedules=head.schedules,
        )

    return context.store.read(work)


@operations.add("workflow", "list", List, scope="read", examples=({},))
def list_workflows(context: Context, ask: List) -> Workflows:
    """List the workflows of the namespace, each with its newest version and its schedules."""

    def work(tx: Transaction) -> Workflows:
        kept = [(row, read_head(row)) for row in tx.get_objects(WORKFLOW, namespace=context.namespace)]
        rows = [_row(row, head) for row, head in kept if not head.deleted]

        def find(limit: int, place: str) -> Page:
            after = [row for row in rows if row.workflow > place]
            return Page(tuple(after[:limit]), after[limit - 1].workflow if len(after) > limit else "")

        page, cursor = paged(context, ask, find)
        return Workflows(workflows=tuple(page), cursor=cursor)

    return context.store.read(work)


@operations.add("workflow", "delete", Delete, scope="write", examples=({"workflow": "nightly-load"},))
def delete_workflow(context: Context, ask: Delete) -> Deleted:
    """Delete a workflow and retire its schedules; runs under way go on, and its versions stay."""
    now = context.now()

    def work(inside: Context) -> Deleted:
        head = inside.store.read(lambda tx: must_find(tx, inside.namespace, ask.workflow))
        retired = retire(inside, head.schedules, reason=ask.reason, now=now)
        gone = replace(head, deleted=True, schedules={})
        by = inside.because(ask.reason)
        entry = by.entry("workflow.delete", namespace=inside.namespace, subject=ask.workflow, now=now)

        def write(tx: Transaction) -> None:
            tx.put_objects([head_row(inside.namespace, ask.workflow, gone, now=now)])
            tx.add_audit([entry])

        inside.store.write(write)
        return Deleted(workflow=ask.workflow, version=head.version, retired=tuple(retired))

    return together(context, work)


def _read(context: Context, draft: dict[str, Any]) -> WorkflowSpec:
    executor = draft.get("executor")
    if isinstance(executor, str | dict) and executor:
        draft = {**draft, "executor": target_shape(executor, "executor")}
    spec = decode_workflow(draft)
    if "namespace" in draft and spec.namespace != context.namespace:
        raise InvalidInput(
            f"namespace {spec.namespace!r} is not the one this request speaks for",
            field="namespace",
            value=spec.namespace,
            rule="a request writes into its own namespace",
            fix="leave it out",
        )
    spec = replace(spec, name=check_name(spec.name), namespace=context.namespace)
    for n, step in enumerate(spec.steps):
        if isinstance(step.target, Workflow) and step.target.workflow == spec.name:
            where = f"steps[{n}].target.workflow"
            raise InvalidWorkflow(
                f"{where}: the workflow runs itself",
                field=where,
                value=spec.name,
                rule="no workflow is a step of itself",
                fix="another workflow",
            )
        _check_step(context, step.target, path=f"steps[{n}]")
    return spec


def _check_step(context: Context, target: AnyTarget, *, path: str) -> None:
    """Refuse a step that could never be started; what it is called with may come from other steps."""
    if context.check is None:
        return
    try:
        context.check(target, args_later=True)
    except TimewrightError as error:
        raise type(error)(
            f"{path}: {error.message}",
            field=f"{path}.{error.field or 'target'}",
            value=error.value,
            rule=error.rule,
            fix=error.fix,
        ) from None


def _check_version(name: str, wanted: int | None, version: int) -> None:
    if wanted is not None and wanted != version:
        raise Conflict(
            f"the next version of workflow {name} is {version}, not {wanted}",
            field="version",
            value=wanted,
            rule="versions are counted; one that was put never changes",
            fix="leave it out",
        )


def _row(row: Stored, head: Head) -> Row:
    return Row(workflow=row.name, version=head.version, at=row.at, schedules=tuple(sorted(head.schedules)))


def _answer(change: Literal["created", "updated", "unchanged"], spec: WorkflowSpec, head: Head) -> Deployed:
    return Deployed(
        change=change,
        workflow=spec.name,
        version=head.version,
        steps=len(spec.steps),
        schedules=head.schedules,
    )
