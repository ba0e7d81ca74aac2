"""What a run stores about its workflow, and how the workflow is loaded from it."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.moments import SECOND
from timewright.core.policies.backoff import Constant
from timewright.core.policies.policies import OUTSIDE_LEASE, LeaseTerms, Retry
from timewright.core.run.build import build_standalone_run
from timewright.core.run.needs import Needs, find_needs, needs_of_wait
from timewright.core.run.run import ExecutionTerms, Run, RunState
from timewright.core.target import Handoff, Http, Workflow
from timewright.core.workflow import Step, Wait, WorkflowSpec, each_limit_key, parse_match, successors
from timewright.core.workflow.expression import iter_paths
from timewright.core.workflow.step_input import add_input, referenced_paths, render_target, step_templates
from timewright.errors import TimewrightError, UnreadableRow
from timewright.ids import TimedIds
from timewright.ports import StoredObject, Transaction

T = TypeVar("T")

WORKFLOW = "workflow"
VERSION = "workflow_version"

# The holder of a launched workflow run: its steps, or an external executor.
HELD_BY_WORKFLOW = "workflow"
HELD_BY_EXECUTOR = "executor"
# The holder of a step that waits for an answer or an event: no process has it.
HELD_BY_WAIT = "wait"

LAUNCH_RETRY = Retry(max_attempts=3, backoff=Constant(wait=SECOND))
MAX_WORKFLOW_DURATION = timedelta(days=7)
MAX_WAIT = timedelta(days=365)
MAX_CACHED_PLANS = 64


class HeldVersion(Struct, frozen=True, kw_only=True):
    """A version that an agent wrote: it runs only after a person approved it, and never once rejected."""

    version: int
    author: str
    at: datetime
    state: Literal["pending_approval", "rejected"] = "pending_approval"
    reason: str = ""


class WorkflowHeader(Struct, frozen=True, kw_only=True):
    """The newest version of a workflow, and the schedules it was deployed with, by name with their id.

    `held` are the versions that may not run.
    """

    version: int
    digest: str
    deleted: bool = False
    schedules: dict[str, str] = {}
    held: tuple[HeldVersion, ...] = ()

    @property
    def runnable(self) -> int:
        """The newest version that may run; 0 if there is none."""
        held = {one.version for one in self.held}
        return next((version for version in range(self.version, 0, -1) if version not in held), 0)

    def find_held(self, version: int) -> HeldVersion | None:
        """Why a version may not run, or None if it may."""
        return next((one for one in self.held if one.version == version), None)


class StoredVersion(Struct, frozen=True, kw_only=True):
    """One version of a workflow, and who wrote it."""

    spec: WorkflowSpec
    author: str = ""
    origin: str = ""


class WorkflowContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a workflow run or step: the workflow, the step, and the input.

    `changed` is input that a person set for steps in a retry. `values` are those of the templates in the
    target, by their expression. A step that runs a workflow itself
    has that one in `runs`. The digest identifies the definition in any
    store.
    """

    workflow: str
    version: int
    digest: str
    step: str = ""
    item: int | None = None
    user: str = ""
    depth: int = 0
    input: dict[str, Any] = {}
    changed: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    runs: WorkflowContext | None = None

    @property
    def pin(self) -> WorkflowContext | None:
        """The pinned workflow whose steps this run starts, once it is known."""
        return self.runs if self.step else self

    def to_payload(self) -> Any:
        """The context as JSON data, for the payload of the run."""
        return msgspec.to_builtins(self)


class StepUses(Struct, frozen=True, kw_only=True):
    """What a step refers to: templates, steps by result, steps by error or attempts, the schedule."""

    templates: tuple[str, ...]
    results: frozenset[str]
    runs: frozenset[str]
    schedule: bool


class WorkflowPlan:
    """A workflow prepared for execution: steps by name, their successors, and whose results they use."""

    def __init__(self, spec: WorkflowSpec) -> None:
        self.spec = spec
        self.steps = {step.name: step for step in spec.steps}
        self.positions = {step.name: n for n, step in enumerate(spec.steps)}
        self.successors = successors(spec)
        self.roots = [step.name for step in spec.steps if not step.needs]
        self.has_cleanup = any(step.is_cleanup for step in spec.steps)
        self.ends = [name for name, after in self.successors.items() if not after]
        self._uses: dict[str, StepUses] = {}

    def uses(self, step: Step) -> StepUses:
        """What a step refers to."""
        if step.name not in self._uses:
            paths = referenced_paths(step)
            steps = [path for path in paths if path.root == "steps"]
            self._uses[step.name] = StepUses(
                templates=tuple({text: None for text, _ in step_templates(step)})
                + (("item",) if step.each is not None and _matches_item(step.wait) else ()),
                results=frozenset(str(one.step) for one in steps if one.segments[2] == "result"),
                runs=frozenset(str(one.step) for one in steps if one.segments[2] in ("error", "attempts")),
                schedule=any(path.root == "schedule" for path in paths),
            )
        return self._uses[step.name]


_PlanKey = tuple[str, str, int, str]
_plans: dict[_PlanKey, WorkflowPlan] = {}


def workflow_context(run: Run) -> WorkflowContext | None:
    """The workflow context of a run; None if it is neither a workflow run nor a step."""
    try:
        return msgspec.convert(run.payload, WorkflowContext)
    except msgspec.ValidationError:
        return None


def workflow_label(payload: Any) -> str:
    """Return what a run of a workflow or of a step is called, from its payload; empty for other runs."""
    if not isinstance(payload, dict) or not {"workflow", "version", "digest"}.issubset(payload):
        return ""
    step, item = payload.get("step"), payload.get("item")
    place = f" › {step}{'' if item is None else f'[{item}]'}" if step else ""
    return f"{payload['workflow']}{place}"


def find_header(tx: Transaction, namespace: str, name: str) -> WorkflowHeader | None:
    """The header of a workflow, even if the workflow was deleted."""
    rows = tx.get_objects(WORKFLOW, namespace=namespace, names=[name])
    return read_header(rows[0]) if rows else None


def read_header(row: StoredObject) -> WorkflowHeader:
    """Decode the header of a workflow; an unreadable row is an error."""
    return _decode(row, WorkflowHeader)


def version_name(name: str, version: int) -> str:
    """The name under which one version is stored."""
    return f"{name}@{version}"


def read_version(tx: Transaction, namespace: str, name: str, version: int) -> StoredVersion | None:
    """One version of a workflow with its author, or None."""
    rows = tx.get_objects(VERSION, namespace=namespace, names=[version_name(name, version)])
    return _decode(rows[0], StoredVersion) if rows else None


def read_spec(tx: Transaction, namespace: str, name: str, version: int) -> WorkflowSpec | None:
    """One version of a workflow, or None."""
    found = read_version(tx, namespace, name, version)
    return found.spec if found is not None else None


def load_plan(tx: Transaction, namespace: str, context: WorkflowContext) -> WorkflowPlan | None:
    """The plan of a workflow, or None if it is unreadable; cached, because versions never change."""
    key = (namespace, context.workflow, context.version, context.digest)
    found = _plans.get(key)
    if found is None:
        try:
            spec = read_spec(tx, namespace, context.workflow, context.version)
        except UnreadableRow:
            return None
        if spec is None:
            return None
        found = WorkflowPlan(spec)
        for oldest in list(_plans)[: max(len(_plans) - MAX_CACHED_PLANS, 0)]:
            _plans.pop(oldest, None)
        _plans[key] = found
    return found


def pinned_workflow(run: Run) -> WorkflowContext | None:
    """The workflow whose steps a run starts, once its version is known; None for other runs."""
    context = workflow_context(run)
    return context.pin if context is not None else None


def plan_of(tx: Transaction, run: Run) -> WorkflowPlan | None:
    """The plan of the workflow whose steps a run starts; None if it starts none, or it is unreadable."""
    pin = pinned_workflow(run)
    return load_plan(tx, run.namespace, pin) if pin is not None else None


def step_of(tx: Transaction, run: Run) -> Step | None:
    """The step that a run is; None if it is none, or its workflow is unreadable."""
    context = workflow_context(run)
    if context is None or not context.step:
        return None
    plan = load_plan(tx, run.namespace, context)
    return plan.steps.get(context.step) if plan is not None else None


def spec_digest(spec: WorkflowSpec) -> str:
    """A hash of the definition, without its version."""
    body = msgspec.json.encode(msgspec.structs.replace(spec, version=1))
    return hashlib.sha256(body).hexdigest()[:16]


def step_terms(tx: Transaction, run: Run) -> ExecutionTerms | None:
    """The terms of a step, or of a workflow run without a schedule; None if they cannot be read."""
    context = workflow_context(run)
    if context is None:
        return None
    if not context.step:
        user = context.user or None
        return ExecutionTerms(
            target=Workflow(workflow=context.workflow, version=context.version, user=user), retry=LAUNCH_RETRY
        )
    step = step_of(tx, run)
    if step is None:
        return None
    try:
        target = add_input(step.target, context.input)
        if context.values:
            target = render_target(target, context.values)
    except TimewrightError:
        return None
    return ExecutionTerms(target=target, retry=step.effective_retry, lease=_lease(step))


def build_step_run(
    parent: Run,
    context: WorkflowContext,
    *,
    dedupe_scope: str,
    plan: WorkflowPlan,
    now: datetime,
    state: RunState = RunState.READY,
    reason: str = "",
) -> Run:
    """The row of a step: ready, or ended without a run, with the reason."""
    step = plan.steps[context.step]
    run = build_standalone_run(
        run_id=_step_run_id(
            dedupe_scope, position=plan.positions[context.step], item=context.item or 0, now=now
        ),
        namespace=parent.namespace,
        dedupe_scope=dedupe_scope,
        planned_at=parent.planned_at,
        fire_at=now,
        state=state,
        reason=reason,
        finished_at=None if state is RunState.READY else now,
        source=parent.source,
        queue=context.workflow if isinstance(step.target, Handoff) and step.wait is None else "",
        needs=find_needs(step.target) if step.wait is None else _needs_of_wait(step.wait),
        priority=parent.priority,
        created_at=now,
        parent=parent.id,
        payload=context.to_payload(),
    )
    if step.wait is None and step.each is not None and step.each.max_running is not None:
        key = each_limit_key(parent.namespace, context.workflow, context.step)
        run = replace(run, limit_keys=(*run.limit_keys, key))
    if step.wait is None or state is not RunState.READY:
        return run
    return replace(
        run,
        state=RunState.LEASED,
        fence=1,
        lease_id=f"lease_{run.id.removeprefix('run_')}",
        holder=HELD_BY_WAIT,
        leased_at=now,
        lease_until=now + (step.wait.until or MAX_WAIT),
    )


def _matches_item(wait: Wait | None) -> bool:
    """Whether a wait for an event compares it with the item, which the run then keeps in its values."""
    match = wait.event.match if wait is not None and wait.event is not None else None
    return match is not None and any(path.root == "item" for path in iter_paths(parse_match(match)))


def _needs_of_wait(wait: Wait) -> Needs:
    return needs_of_wait(answer=wait.answer is not None, event=wait.event.name if wait.event else None)


def _decode(row: StoredObject, into: type[T]) -> T:
    try:
        return msgspec.json.decode(row.body, type=into)
    except (msgspec.MsgspecError, TimewrightError) as error:
        raise UnreadableRow(
            f"{row.kind} {row.name} cannot be read: {error}",
            field="objects.body",
            value=row.name,
            rule="runs of an unreadable workflow do not start",
            fix="store a new version: workflow put",
        ) from error


def _step_run_id(dedupe_scope: str, *, position: int, item: int, now: datetime) -> str:
    """An id derived from the dedupe scope: it sorts by step and item, and building it again repeats it."""
    parent, _, rest = dedupe_scope.partition("/")
    mark = hashlib.sha256(f"{parent}~{rest.partition('~')[2]}".encode()).digest()
    entropy = int.from_bytes(mark[:6], "big") << 32 | (position << 16 | item) << 1
    return TimedIds(lambda size: entropy.to_bytes(size, "big")).new("run", now=now)


def _lease(step: Step) -> LeaseTerms:
    length = OUTSIDE_LEASE if isinstance(step.target, Handoff) else LeaseTerms().length
    limit = step.time_limit
    if limit is None and isinstance(step.target, Http):
        limit = step.target.timeout + 10 * SECOND
    return LeaseTerms(length=step.lease or length, time_limit=limit)
