"""What makes a workflow one that can be run; every fault is refused with the path to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from timewright.core.decoding import read, type_of
from timewright.core.moments import ZERO, bounded, spell_duration
from timewright.core.plain import check_plain
from timewright.core.target import AnyTarget, Http, Note, Workflow
from timewright.core.workflow.expression import Path, paths
from timewright.core.workflow.grammar import parse_condition, parse_path
from timewright.core.workflow.spec import (
    DEEPEST_INPUT,
    DEFAULT,
    MAX_EDGES,
    MAX_SCHEDULES,
    MAX_STEPS,
    REFERENCE,
    RunIf,
    Step,
    WorkflowSpec,
    is_reference,
    layers,
    leaves,
)
from timewright.errors import InvalidWorkflow, TimewrightError

MAX_VALUES = 500_000
DEEPEST_WORKFLOW = DEEPEST_INPUT + 6
LONGEST_CYCLE_SHOWN = 10
MOST_COMPARED = 1_000
MOST_SHOWN = 12

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_LOOKS_FILLED_IN = re.compile(r"(?:\{\{|\$\{|\$\()\s*(?:steps|input|item)\b")
# What these hold is data for the work; everything else in a target decides what the work is.
_DATA = {"args", "body", "input", "payload"}
_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


def decode_workflow(raw: Any) -> WorkflowSpec:
    """A workflow from plain data, checked; whatever cannot be one is refused with its path."""
    if not isinstance(raw, dict):
        rule = "an object with a name and steps"
        raise _fault(
            "workflow", f"a {type(raw).__name__} is no workflow", rule=rule, fix="{name: …, steps: […]}"
        )
    steps = raw.get("steps")
    if isinstance(steps, list | tuple):
        _check_counts(
            len(steps), edges=sum(_length(step, "needs") for step in steps if isinstance(step, dict))
        )
    check_plain(raw, deepest=DEEPEST_WORKFLOW, most=MAX_VALUES, refusal=InvalidWorkflow)
    try:
        spec: WorkflowSpec = read(raw, type_of(WorkflowSpec), "")
    except TimewrightError:
        _check_fixed_raw(steps if isinstance(steps, list | tuple) else ())
        raise
    validate(spec)
    return spec


def validate(spec: WorkflowSpec) -> None:
    """Refuse a workflow that could not run, or that would run something nobody wrote down."""
    _check_counts(len(spec.steps), edges=sum(len(step.needs) for step in spec.steps))
    _check_whole(spec)
    known = _check_names(spec)
    room = MAX_VALUES
    for n, step in enumerate(spec.steps):
        where = f"steps[{n}]"
        room -= _check_data(step, where, room)
        _check_needs(step, where, known)
        _check_limits(step, where, spec.time_limit)
        _check_references(step, where, known)
    _check_no_cycle(spec)


def _fault(where: str, message: str, *, rule: str, fix: str, value: object = None) -> InvalidWorkflow:
    return InvalidWorkflow(f"{where}: {message}", field=where, value=value, rule=rule, fix=fix)


def _check_counts(steps: int, *, edges: int) -> None:
    if not 1 <= steps <= MAX_STEPS:
        rule = f"1 to {MAX_STEPS} steps"
        raise _fault("steps", f"{steps} steps", value=steps, rule=rule, fix="a workflow for each part")
    if edges > MAX_EDGES:
        rule = f"at most {MAX_EDGES} needs in all"
        raise _fault(
            "steps", f"{edges} needs", value=edges, rule=rule, fix="a step in between that gathers many"
        )


def _check_whole(spec: WorkflowSpec) -> None:
    check_plain(spec.input, where="input", deepest=DEEPEST_INPUT, most=MAX_VALUES, refusal=InvalidWorkflow)
    for value, where in leaves(spec.input, "input"):
        if is_reference(value):
            rule = "the workflow's own input is where references lead, so it holds none"
            raise _fault(where, "a reference", rule=rule, fix="a value")
    if len(spec.schedules) > MAX_SCHEDULES:
        rule = f"at most {MAX_SCHEDULES} schedules"
        raise _fault("schedules", f"{len(spec.schedules)} schedules", rule=rule, fix="schedules of their own")
    if spec.executor is not None:
        _check_fixed(_fields(spec.executor), "executor")
    if spec.time_limit is not None:
        _check_time("time_limit", spec.time_limit)


def _check_names(spec: WorkflowSpec) -> dict[str, int]:
    """Every name and its position; two steps that a reader may take for one are refused."""
    known: dict[str, int] = {}
    folded: dict[str, int] = {}
    for n, step in enumerate(spec.steps):
        where = f"steps[{n}].name"
        if not _NAME.fullmatch(step.name):
            rule = "a letter or _, then letters, digits, _ or -, at most 64 in all"
            shown = step.name[:64]
            raise _fault(where, f"{shown!r} is no name", value=shown, rule=rule, fix="fetch_orders")
        twin = folded.setdefault(step.name.lower(), n)
        if twin != n:
            message = f"{step.name!r} is the name of steps[{twin}] already"
            if spec.steps[twin].name != step.name:
                message = f"{step.name!r} differs from steps[{twin}] {spec.steps[twin].name!r} only in case"
            raise _fault(where, message, value=step.name, rule="names are unique", fix=f"{step.name}_2")
        known[step.name] = n
    return known


def _check_needs(step: Step, where: str, known: dict[str, int]) -> None:
    seen: set[str] = set()
    for n, need in enumerate(step.needs):
        at = f"{where}.needs[{n}]"
        if need == step.name:
            raise _fault(
                at, "the step needs itself", value=need, rule="no step waits for itself", fix="leave it out"
            )
        if need not in known:
            message, rule = f"there is no step {need[:64]!r}", "needs name steps of this workflow"
            raise _fault(at, message, value=need[:64], rule=rule, fix=_nearest(need, known))
        if need in seen:
            raise _fault(
                at, f"{need!r} is named twice", value=need, rule="once is enough", fix="leave it out"
            )
        seen.add(need)
    if step.run_if is not RunIf.SUCCEEDED and not step.needs:
        rule = "run_if says what must have become of the needs"
        raise _fault(
            f"{where}.run_if", "there are no needs", value=step.run_if.value, rule=rule, fix="add needs"
        )


def _check_limits(step: Step, where: str, whole: timedelta | None) -> None:
    at, limit = f"{where}.time_limit", step.time_limit
    if limit is not None:
        _check_time(at, limit)
        if whole is not None and limit > whole:
            message = f"{spell_duration(limit)} is more than the {spell_duration(whole)} of the workflow"
            rule = "no step may take longer than the whole"
            raise _fault(at, message, value=spell_duration(limit), rule=rule, fix=spell_duration(whole))
        _check_timeout(step.target, where, limit)
    if isinstance(step.target, Workflow) and step.attempted_under.max_attempts > 1:
        rule = "a step that starts a workflow is attempted once; the steps of that workflow retry"
        at = f"{where}.retry.max_attempts"
        raise _fault(
            at, "a retry around retries", value=step.attempted_under.max_attempts, rule=rule, fix="1"
        )


def _check_timeout(target: AnyTarget, where: str, limit: timedelta) -> None:
    if isinstance(target, Http) and target.timeout > limit and target.timeout != Http(url="-").timeout:
        message = f"{spell_duration(target.timeout)} is more than the step's {spell_duration(limit)}"
        rule = "the request ends before the step does"
        raise _fault(f"{where}.target.timeout", message, rule=rule, fix=spell_duration(limit))


def _check_time(where: str, limit: timedelta) -> None:
    if _located(where, bounded, limit) == ZERO:
        raise _fault(where, "0s leaves no time", value="0s", rule="longer than zero", fix="5m")


def _check_data(step: Step, where: str, room: int) -> int:
    """How much data a step carries; what decides the work must be written, not found on the way."""
    used = _count_plain(step.input, f"{where}.input", room)
    for name, value in _fields(step.target):
        if name in _DATA:
            used += _count_plain(value, f"{where}.target.{name}", room - used)
    _check_fixed(_fields(step.target), f"{where}.target")
    if step.input:
        _check_input_fits(step, where)
    return used


def _check_input_fits(step: Step, where: str) -> None:
    """Input joins the target's own data, which must be an object, and may not write over it."""
    if isinstance(step.target, Note):
        rule = "a note is its own text"
        raise _fault(f"{where}.input", "a note takes no input", rule=rule, fix="leave it out")
    name, data = next(((name, data) for name, data in _fields(step.target) if name in _DATA), ("env", {}))
    at = f"{where}.target.{name}"
    if data is not None and not isinstance(data, dict):
        rule = "input joins an object, or stands alone"
        raise _fault(at, "input cannot join what is no object", rule=rule, fix=f"leave {name} out, or input")
    twice = sorted(set(step.input) & set(data or ()))
    if twice:
        rule = "a key is in one of the two"
        raise _fault(at, f"{twice[0][:64]!r} is in input too", value=twice[0][:64], rule=rule, fix="once")


def _count_plain(value: Any, where: str, room: int) -> int:
    return check_plain(value, where=where, deepest=DEEPEST_INPUT, most=room, refusal=InvalidWorkflow)


def _check_fixed_raw(steps: Sequence[Any]) -> None:
    """A reference where a text belongs has the wrong type, but that is not what is wrong with it."""
    for n, step in enumerate(steps):
        target = step.get("target") if isinstance(step, dict) else None
        if isinstance(target, dict):
            _check_fixed(target.items(), f"steps[{n}].target")


def _check_fixed(fields: Iterable[tuple[str, Any]], where: str) -> None:
    """Refuse a target that would be filled in with what another step answered."""
    for name, value in fields:
        if not value or (name in _DATA and isinstance(value, str)):
            continue
        for leaf, at in leaves(value, f"{where}.{name}"):
            filled_in = isinstance(leaf, str) and name not in _DATA and _LOOKS_FILLED_IN.search(leaf)
            if filled_in or is_reference(leaf):
                raise _fault(
                    at,
                    "what a step answered does not decide what another one calls",
                    value=str(leaf)[:64],
                    rule="references stand in a step's input; its target is written out",
                    fix=f"{name} written out, and the value in input",
                )


class _View(NamedTuple):
    """What a step may speak of."""

    step: Step
    needs: frozenset[str]
    known: dict[str, int]


def _check_references(step: Step, where: str, known: dict[str, int]) -> None:
    view = _View(step, frozenset(step.needs), known)
    for value, at in leaves(step.input, f"{where}.input"):
        if is_reference(value):
            _check_reference(value, view, at)
    if step.each is not None:
        at = f"{where}.each.{REFERENCE}"
        _check_path(_located(at, parse_path, step.each.source), view, at, tells=("result",), item=False)
    if step.when is not None:
        at = f"{where}.when"
        for path in paths(_located(at, parse_condition, step.when)):
            _check_path(path, view, at, tells=("result", "state"), item=False)


def _check_reference(written: dict[str, Any], view: _View, where: str) -> None:
    extra = sorted(set(written) - {REFERENCE, DEFAULT})
    if extra or not isinstance(written[REFERENCE], str):
        rule = f"a reference has {REFERENCE}, a path, and may have {DEFAULT}"
        message = f"{extra[0][:64]!r} beside {REFERENCE}" if extra else f"{REFERENCE} is no path"
        raise _fault(where, message, rule=rule, fix='{"$from": "steps.fetch.result"}')
    at = f"{where}.{REFERENCE}"
    path = _located(at, parse_path, written[REFERENCE])
    _check_path(path, view, at, tells=("result",), item=view.step.each is not None)


def _check_path(path: Path, view: _View, where: str, *, tells: tuple[str, ...], item: bool) -> None:
    if path.root == "item" and not item:
        rule = "item is for the input of a step with each"
        raise _fault(where, "there is no item here", value=str(path), rule=rule, fix="steps or input")
    if path.root != "steps":
        return
    if len(path.segments) < 3 or path.segments[2] not in tells:
        rule = f"steps.NAME is followed by {' or '.join(tells)}"
        fix = f"steps.{path.step or 'fetch'}.{tells[0]}"
        raise _fault(where, f"{path} says too little", value=str(path), rule=rule, fix=fix)
    name = str(path.step)
    if name not in view.known:
        message, rule = f"there is no step {name[:64]!r}", "paths name steps of this workflow"
        raise _fault(where, message, value=name[:64], rule=rule, fix=_nearest(name, view.known))
    if name not in view.needs:
        rule = "a step may look only at the steps it needs"
        fix = (
            f"needs: [{', '.join((*view.step.needs[:5], name))}]"
            if name != view.step.name
            else "another step"
        )
        raise _fault(where, f"{view.step.name!r} does not need {name!r}", value=name, rule=rule, fix=fix)


def _located(where: str, read_one: Callable[[_Given], _Found], given: _Given) -> _Found:
    """What is read, or the same fault with the path to it."""
    try:
        return read_one(given)
    except TimewrightError as error:
        raise InvalidWorkflow(
            f"{where}: {error.message}", field=where, value=error.value, rule=error.rule, fix=error.fix
        ) from None


def _check_no_cycle(spec: WorkflowSpec) -> None:
    placed = {step.name for layer in layers(spec) for step in layer}
    rest = {step.name: (n, step) for n, step in enumerate(spec.steps) if step.name not in placed}
    if not rest:
        return
    # Every step that is left needs another that is left, so following needs must come round.
    trail: dict[str, int] = {}
    name = next(iter(rest))
    while name not in trail:
        trail[name] = len(trail)
        name = next(need for need in rest[name][1].needs if need in rest)
    cycle = [*list(trail)[trail[name] :], name]
    position, step = rest[name]
    at = f"steps[{position}].needs[{step.needs.index(cycle[1])}]"
    shown = cycle if len(cycle) <= LONGEST_CYCLE_SHOWN else [*cycle[:LONGEST_CYCLE_SHOWN], f"… {name}"]
    raise _fault(
        at,
        f"a cycle of {len(cycle) - 1} steps: {' needs '.join(shown)}",
        value=cycle[1],
        rule="no step waits, through others, for itself",
        fix=f"take {cycle[1]} out of the needs of {name}",
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant; without a likely guess, what there is."""
    names = list(islice(known, MOST_COMPARED))
    found = get_close_matches(name[:64], names, n=1)
    return f"did you mean {found[0]}?" if found else "one of: " + ", ".join(names[:MOST_SHOWN])


def _fields(struct: AnyTarget) -> list[tuple[str, Any]]:
    return [(name, getattr(struct, name)) for name in struct.__struct_fields__]


def _length(step: dict[Any, Any], name: str) -> int:
    value = step.get(name)
    return len(value) if isinstance(value, list | tuple) else 0
