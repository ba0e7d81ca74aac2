"""Workflows: put, get, list and delete; every version stays."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.input.input_errors import check_name
from timewright.core.input.shorthand import expand_target
from timewright.core.target import AnyTarget, Handoff, Workflow
from timewright.core.workflow import Step, WorkflowSpec
from timewright.core.workflow.checks import decode_workflow
from timewright.errors import Conflict, InvalidWorkflow, TimewrightError
from timewright.ledger.workflow_runs.records import (
    VERSION,
    WORKFLOW,
    HeldVersion,
    WorkflowHeader,
    find_header,
    read_header,
    read_version,
    spec_digest,
    version_name,
)
from timewright.operations.access.permissions import needs_approval
from timewright.operations.access.secret_checks import check_secret_use, reject_plain_secrets
from timewright.operations.context import OperationContext
from timewright.operations.lookup import check_own_namespace
from timewright.operations.pagination import paginate_rows
from timewright.operations.queues.policies import register_queue
from timewright.operations.registry import ListRequest, ObjectName, OperationRequest, WriteRequest, operations
from timewright.operations.workflows.workflow_schedules import (
    archive_schedules,
    deploy_schedules,
    header_row,
    require_version,
    require_workflow,
    save_version,
)
from timewright.ports import StoredObject, Transaction
from timewright.settings import ScheduleDefaults

Version = Annotated[int, Meta(ge=1)]
VersionState = Literal["approved", "pending_approval", "rejected"]


class PutWorkflow(WriteRequest, frozen=True, kw_only=True):
    """A complete workflow, by its name: steps, and optionally input, time limit, executor, schedules."""

    flattens: ClassVar[tuple[str, type[Struct]]] = ("draft", WorkflowSpec)

    draft: dict[str, Any] = field(default_factory=dict)


class DeployedWorkflow(Struct, frozen=True, kw_only=True):
    """The workflow that was put, what changed, and its schedules."""

    change: Literal["created", "updated", "unchanged"]
    workflow: str
    version: int
    steps: int
    schedules: dict[str, str]
    state: VersionState = "approved"


class GetWorkflow(OperationRequest, frozen=True, kw_only=True):
    """Which workflow, and which version; the default is the newest."""

    workflow: ObjectName
    version: Version | None = None


class WorkflowDetail(Struct, frozen=True, kw_only=True):
    """One version of a workflow, the number of the newest, and its schedules."""

    workflow: WorkflowSpec
    version: int
    newest: int
    at: datetime
    schedules: dict[str, str]
    author: str = ""
    state: VersionState = "approved"


class ListWorkflows(ListRequest, frozen=True, kw_only=True):
    """List the workflows of the namespace."""


class WorkflowSummary(Struct, frozen=True, kw_only=True):
    """A workflow in a list."""

    workflow: str
    version: int
    at: datetime
    schedules: tuple[str, ...]


class WorkflowList(Struct, frozen=True, kw_only=True):
    """A page of workflows, by name."""

    workflows: tuple[WorkflowSummary, ...]
    cursor: str = ""


class DeleteWorkflow(WriteRequest, frozen=True, kw_only=True):
    """Which workflow to delete, with its schedules."""

    workflow: ObjectName


class DeletedWorkflow(Struct, frozen=True, kw_only=True):
    """A deleted workflow; its versions stay for the runs that use them."""

    workflow: str
    version: int
    retired: tuple[str, ...]


@operations.write(
    "workflow put",
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
def put_workflow(context: OperationContext, tx: Transaction, request: PutWorkflow) -> DeployedWorkflow:
    """Store a new version of a workflow and deploy its schedules; the same again changes nothing."""
    now = context.now()
    spec = _parse(context, request.draft)
    wanted = spec.version if "version" in request.draft else None
    head = find_header(tx, context.namespace, spec.name)
    digest = spec_digest(spec)
    held = needs_approval(context)
    # A person who puts what an agent wrote makes it a version of their own.
    if (
        head is not None
        and not head.deleted
        and (head.digest == digest and wanted in (None, head.version))
        and (held or head.find_held(head.version) is None)
    ):
        return describe_deployment("unchanged", spec, head)
    version = head.version + 1 if head is not None else 1
    _check_version(spec.name, wanted, version)
    _check_secrets(context, spec, head)
    stored = replace(spec, version=version)
    owned = head.schedules if head is not None else {}
    waiting = head.held if head is not None else ()
    if held:
        # Its schedules are deployed when it is approved.
        waiting = (*waiting, HeldVersion(version=version, author=context.by.name, at=now))
    else:
        owned = deploy_schedules(context, stored, owned=owned, now=now)
    after = WorkflowHeader(version=version, digest=digest, schedules=owned, held=waiting)
    save_version(tx, context, stored, after, now=now)
    if any(isinstance(step.target, Handoff) and step.wait is None for step in stored.steps):
        register_queue(context, stored.name, now=now)
    return describe_deployment("created" if head is None else "updated", stored, after)


@operations.read(
    "workflow get",
    scope="read",
    examples=({"workflow": "nightly-load"}, {"workflow": "nightly-load", "version": 1}),
)
def get_workflow(context: OperationContext, tx: Transaction, request: GetWorkflow) -> WorkflowDetail:
    """Show a workflow: the newest version, or an older one."""
    head = require_workflow(tx, context.namespace, request.workflow)
    version = request.version or head.version
    spec = require_version(tx, context.namespace, request.workflow, version)
    name = version_name(request.workflow, version)
    rows = tx.get_objects(VERSION, namespace=context.namespace, names=[name])
    stored = read_version(tx, context.namespace, request.workflow, version)
    return WorkflowDetail(
        workflow=spec,
        version=version,
        newest=head.version,
        at=rows[0].at,
        schedules=head.schedules,
        author=stored.author if stored is not None else "",
        state=_version_state(head, version),
    )


@operations.read("workflow list", scope="read", examples=({},))
def list_workflows(context: OperationContext, tx: Transaction, request: ListWorkflows) -> WorkflowList:
    """List the workflows of the namespace, each with its newest version and its schedules."""
    stored = [(row, read_header(row)) for row in tx.get_objects(WORKFLOW, namespace=context.namespace)]
    rows = [_summarize(row, head) for row, head in stored if not head.deleted]
    page, cursor = paginate_rows(context, request, rows, key=attrgetter("workflow"))
    return WorkflowList(workflows=tuple(page), cursor=cursor)


@operations.write("workflow delete", scope="write", examples=({"workflow": "nightly-load"},))
def delete_workflow(context: OperationContext, tx: Transaction, request: DeleteWorkflow) -> DeletedWorkflow:
    """Delete a workflow and archive its schedules; active runs continue, and its versions stay."""
    now = context.now()
    head = require_workflow(tx, context.namespace, request.workflow)
    retired = archive_schedules(context, head.schedules, now=now)
    deleted = replace(head, deleted=True, schedules={})
    tx.put_objects([header_row(context.namespace, request.workflow, deleted, now=now)])
    context.audit(tx, "workflow.delete", request.workflow)
    return DeletedWorkflow(workflow=request.workflow, version=head.version, retired=tuple(retired))


def _parse(context: OperationContext, draft: dict[str, Any]) -> WorkflowSpec:
    executor = draft.get("executor")
    if isinstance(executor, str | dict) and executor:
        draft = {**draft, "executor": expand_target(executor, "executor")}
    spec = decode_workflow(draft)
    if "namespace" in draft:
        check_own_namespace(context.namespace, spec.namespace)
    defaults = context.settings.defaults
    spec = replace(
        spec,
        name=check_name(spec.name),
        namespace=context.namespace,
        steps=tuple(_with_defaults(step, defaults) for step in spec.steps),
    )
    for n, step in enumerate(spec.steps):
        if isinstance(step.target, Workflow) and step.target.workflow == spec.name:
            where = f"steps[{n}].target.workflow"
            raise InvalidWorkflow(
                f"{where}: the workflow runs itself",
                field=where,
                value=spec.name,
                rule="a workflow cannot be a step of itself",
                fix="use another workflow",
            )
        reject_plain_secrets(context.caller, step.target, path=f"steps[{n}].target")
        _check_step(context, step.target, path=f"steps[{n}]")
    if spec.executor is not None:
        reject_plain_secrets(context.caller, spec.executor, path="executor")
    return spec


def _with_defaults(step: Step, defaults: ScheduleDefaults) -> Step:
    """Fill in the lease, time limit and retry of the settings, which hold for the runs of steps too."""
    if step.wait is not None or isinstance(step.target, Workflow):
        return step
    lease = defaults.lease
    return replace(
        step,
        retry=step.retry or defaults.retry,
        lease=step.lease or (lease.length if lease is not None else None),
        time_limit=step.time_limit or (lease.time_limit if lease is not None else None),
    )


def _check_secrets(context: OperationContext, spec: WorkflowSpec, head: WorkflowHeader | None) -> None:
    """Check the secrets of every target that the version before does not have."""
    old = (
        context.store.read(lambda tx: require_version(tx, context.namespace, spec.name, head.version))
        if head is not None
        else None
    )
    before = _targets(old) if old is not None else []
    for target in _targets(spec):
        check_secret_use(context, target, before=before)


def _targets(spec: WorkflowSpec) -> list[AnyTarget]:
    return [*(step.target for step in spec.steps), *([spec.executor] if spec.executor is not None else [])]


def _check_step(context: OperationContext, target: AnyTarget, *, path: str) -> None:
    """Reject a step whose target could never start; its arguments may come from other steps."""
    if context.check_target is None:
        return
    try:
        context.check_target(target, args_later=True)
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
            rule="versions are numbered in order and never change",
            fix="leave it out",
        )


def _summarize(row: StoredObject, head: WorkflowHeader) -> WorkflowSummary:
    return WorkflowSummary(
        workflow=row.name, version=head.version, at=row.at, schedules=tuple(sorted(head.schedules))
    )


def _version_state(head: WorkflowHeader, version: int) -> VersionState:
    held = head.find_held(version)
    return held.state if held is not None else "approved"


def describe_deployment(
    change: Literal["created", "updated", "unchanged"], spec: WorkflowSpec, head: WorkflowHeader
) -> DeployedWorkflow:
    """Return what was put, and its state."""
    return DeployedWorkflow(
        change=change,
        workflow=spec.name,
        version=head.version,
        steps=len(spec.steps),
        schedules=head.schedules,
        state=_version_state(head, head.version),
    )
