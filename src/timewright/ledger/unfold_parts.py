"""What workflow runs remember of their workflow, and how it is found again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from timewright.core.backoff import Constant
from timewright.core.moments import SECOND
from timewright.core.policies import LeaseTerms, Retry
from timewright.core.run import Run, Terms
from timewright.core.schedule import queue_gate
from timewright.core.target import Handoff, Http, Workflow
from timewright.core.workflow import Step, WorkflowSpec, successors, with_input
from timewright.core.workflow.expression import paths
from timewright.core.workflow.grammar import parse_condition, parse_path
from timewright.core.workflow.spec import REFERENCE, is_reference, leaves
from timewright.errors import TimewrightError, UnreadableRow
from timewright.ids import TimedIds
from timewright.ports import Stored, Transaction

T = TypeVar("T")

WORKFLOW = "workflow"
VERSION = "workflow_version"

# Who holds a workflow run that was launched: its steps here, or an executor outside.
UNFOLDED = "workflow"
EXECUTOR = "executor"

LAUNCH = Retry(max_attempts=3, backoff=Constant(wait=SECOND))
LONGEST_RUN = timedelta(days=7)
MOST_KEPT = 64


class Head(Struct, frozen=True, kw_only=True):
    """The newest version of a workflow, and the schedules it was deployed with: their names and ids."""

    version: int
    digest: str
    deleted: bool = False
    schedules: dict[str, str] = {}


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run remembers: which workflow it runs, or of which it is a step, and what it was given.

    A step that runs a workflow itself remembers that one in `runs`. The digest tells texts apart, whatever
    store they come from.
    """

    workflow: str
    version: int
    digest: str
    step: str = ""
    item: int | None = None
    user: str = ""
    depth: int = 0
    input: dict[str, Any] = {}
    runs: Part | None = None

    @property
    def pin(self) -> Part | None:
        """The workflow that the run unfolds, once it is known."""
        return self.runs if self.step else self

    def told(self) -> Any:
        """The same as plain data, for the run's row."""
        return msgspec.to_builtins(self)


class Plan:
    """A workflow made ready to be walked: found by name, with who needs whom and who speaks of whom."""

    def __init__(self, spec: WorkflowSpec) -> None:
        self.spec = spec
        self.steps = {step.name: step for step in spec.steps}
        self.places = {step.name: n for n, step in enumerate(spec.steps)}
        self.successors = successors(spec)
        self.roots = [step.name for step in spec.steps if not step.needs]
        self.ends = [name for name, after in self.successors.items() if not after]
        self._spoken: dict[str, frozenset[str]] = {}

    def spoken_of(self, step: Step) -> frozenset[str]:
        """The steps whose results a step looks at."""
        if step.name not in self._spoken:
            self._spoken[step.name] = frozenset(_spoken(step))
        return self._spoken[step.name]


_Key = tuple[str, str, int, str]
_plans: dict[_Key, Plan] = {}


def part_of(run: Run) -> Part | None:
    """What a run remembers of workflows; nothing if it has nothing to do with them."""
    try:
        return msgspec.convert(run.payload, Part)
    except msgspec.ValidationError:
        return None


def find_head(tx: Transaction, namespace: str, name: str) -> Head | None:
    """The newest version of a workflow, also of one that was deleted."""
    rows = tx.get_objects(WORKFLOW, namespace=namespace, names=[name])
    return read_head(rows[0]) if rows else None


def read_head(row: Stored) -> Head:
    """The head of a workflow from its row; one that cannot be read is refused."""
    return _decoded(row, Head)


def version_name(name: str, version: int) -> str:
    """The name under which one version is kept."""
    return f"{name}@{version}"


def read_spec(tx: Transaction, namespace: str, name: str, version: int) -> WorkflowSpec | None:
    """One version of a workflow, if it was ever put."""
    rows = tx.get_objects(VERSION, namespace=namespace, names=[version_name(name, version)])
    return _decoded(rows[0], WorkflowSpec) if rows else None


def plan_of(tx: Transaction, namespace: str, part: Part) -> Plan | None:
    """The workflow that a part belongs to, if it can be read; a version never changes, so it is read once."""
    key = (namespace, part.workflow, part.version, part.digest)
    found = _plans.get(key)
    if found is None:
        try:
            spec = read_spec(tx, namespace, part.workflow, part.version)
        except UnreadableRow:
            return None
        if spec is None:
            return None
        found = Plan(spec)
        for oldest in list(_plans)[: max(len(_plans) - MOST_KEPT, 0)]:
            _plans.pop(oldest, None)
        _plans[key] = found
    return found


def digest_of(spec: WorkflowSpec) -> str:
    """What tells one text from another; its version is not part of it."""
    body = msgspec.json.encode(msgspec.structs.replace(spec, version=1))
    return hashlib.sha256(body).hexdigest()[:16]


def part_terms(tx: Transaction, run: Run) -> Terms | None:
    """What a step, or a workflow started by hand, is attempted under; nothing if that cannot be read."""
    part = part_of(run)
    if part is None:
        return None
    if not part.step:
        user = part.user or None
        return Terms(target=Workflow(workflow=part.workflow, version=part.version, user=user), retry=LAUNCH)
    plan = plan_of(tx, run.namespace, part)
    step = plan.steps.get(part.step) if plan is not None else None
    if step is None:
        return None
    try:
        target = with_input(step.target, part.input)
    except TimewrightError:
        return None
    return Terms(target=target, retry=step.attempted_under, lease=_lease(step))


def step_run(parent: Run, part: Part, *, lane: str, plan: Plan, now: datetime) -> dict[str, Any]:
    """The fields that a run of a step begins with."""
    handed = isinstance(plan.steps[part.step].target, Handoff)
    queue = part.workflow if handed else ""
    return {
        "id": _id(lane, place=plan.places[part.step], item=part.item or 0, now=now),
        "namespace": parent.namespace,
        "lane": lane,
        "planned_at": parent.planned_at,
        "fire_at": now,
        "source": parent.source,
        "queue": queue,
        "gates": (queue_gate(parent.namespace, queue),) if handed else (),
        "priority": parent.priority,
        "alone": False,
        "handoff": handed,
        "created_at": now,
        "parent": parent.id,
        "payload": part.told(),
    }


def _decoded(row: Stored, into: type[T]) -> T:
    try:
        return msgspec.json.decode(row.body, type=into)
    except (msgspec.MsgspecError, TimewrightError) as error:
        raise UnreadableRow(
            f"{row.kind} {row.name} cannot be read: {error}",
            field="objects.body",
            value=row.name,
            rule="what depends on an unreadable workflow does not run",
            fix="workflow put keeps a new version",
        ) from error


def _id(lane: str, *, place: int, item: int, now: datetime) -> str:
    """An id that sorts as the steps are written, made of the lane: made again, it is the same."""
    parent, _, rest = lane.partition("/")
    mark = hashlib.sha256(f"{parent}~{rest.partition('~')[2]}".encode()).digest()
    entropy = int.from_bytes(mark[:6], "big") << 32 | (place << 16 | item) << 1
    return TimedIds(lambda size: entropy.to_bytes(size, "big")).new("run", now=now)


def _lease(step: Step) -> LeaseTerms:
    usual = LeaseTerms()
    if step.time_limit is not None:
        return LeaseTerms(time_limit=step.time_limit)
    if isinstance(step.target, Http):
        return LeaseTerms(time_limit=max(usual.time_limit, step.target.timeout + 10 * SECOND))
    return usual


def _spoken(step: Step) -> Iterator[str]:
    found = [parse_path(value[REFERENCE]) for value, _ in leaves(step.input, "") if is_reference(value)]
    if step.each is not None:
        found.append(parse_path(step.each.source))
    if step.when is not None:
        found += paths(parse_condition(step.when))
    return (str(path.step) for path in found if path.root == "steps")
