"""Workflows written in Python: the decorated function builds the same value as a file, and checks it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, get_type_hints, overload

import msgspec

from timewright.core.workflow import REFERENCE_KEY, WorkflowSpec
from timewright.core.workflow.checks import decode_workflow
from timewright.errors import InvalidInput, InvalidWorkflow
from timewright.interfaces.python.checks import checked_calendar


class Reference:
    """A value that is known when the workflow runs: `fetch.result["id"]`; in an f-string, a template."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("_"):
            raise AttributeError(name)
        return Reference(f"{self._path}.{name}")

    def __getitem__(self, key: str | int) -> Reference:
        return Reference(f"{self._path}[{msgspec.json.encode(key).decode()}]")

    def __str__(self) -> str:
        return f"{{{{ {self._path} }}}}"


class StepHandle(Reference):
    """A step of a workflow; given to another step, it stands for its result."""

    def __init__(self, name: str) -> None:
        super().__init__(f"steps.{name}")
        self._name = name


class WorkflowBuilder:
    """Collects the steps of a workflow. `item` is the item of a step with `each`; `run` is the run."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self._steps = steps
        self.item = Reference("item")
        self.run = Reference("run")
        self.schedule = Reference("schedule")

    def step(
        self,
        name: str,
        target: Any = None,
        *,
        needs: Sequence[StepHandle | str] = (),
        each: Any = None,
        max_running: int | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the name of the field in a file
        **fields: Any,
    ) -> StepHandle:
        """Add a step: by default it calls the function of its name. `input` are the arguments.

        Other fields are those of a file: `when`, `run_if`, `retry`, `time_limit`, `lease`, `description`.
        """
        if each is not None:
            source = _to_json(each)
            path = source[REFERENCE_KEY] if isinstance(source, dict) and REFERENCE_KEY in source else None
            if path is None:
                raise InvalidWorkflow(
                    f"{name}.each is not a reference",
                    field=f"{name}.each",
                    rule="the result of a step, or a part of the input",
                    fix="each=fetch.result",
                )
            limits = {} if max_running is None else {"max_running": max_running}
            fields["each"] = {REFERENCE_KEY: path, "limit": fields.pop("limit", 10_000), **limits}
        return self._add(name, {"target": name if target is None else target, **fields}, needs, input)

    def wait(
        self,
        name: str,
        *,
        answer: Mapping[str, Any] | None = None,
        event: Mapping[str, Any] | None = None,
        until: Any = None,
        otherwise: Any = "fail",
        needs: Sequence[StepHandle | str] = (),
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the name of the field in a file
        **fields: Any,
    ) -> StepHandle:
        """Add a step that waits for an answer or an event; `input` is what the person sees."""
        given = {"answer": answer, "event": event, "until": until, "else": otherwise}
        wait = {key: value for key, value in given.items() if value is not None}
        return self._add(name, {"wait": wait, **fields}, needs, input)

    def _add(
        self,
        name: str,
        fields: dict[str, Any],
        needs: Sequence[StepHandle | str],
        given: Mapping[str, Any] | None,
    ) -> StepHandle:
        named = [vars(one)["_name"] if isinstance(one, StepHandle) else one for one in needs]
        step = {"name": name, **fields, "needs": named, **({"input": dict(given)} if given else {})}
        self._steps.append(_to_json(step))
        return StepHandle(name)


class _Operations(Protocol):
    def call(self, operation: str, /, **request: Any) -> Any:
        """Call an operation."""
        ...


class WorkflowDefinition:
    """A workflow in code: `check()` it, `run()` it. `value` is what a file would say.

    The start of the scheduler stores it, as it does for schedules; `put()` does that at once.
    """

    def __init__(self, app: _Operations, name: str, build: Callable[..., Any], **fields: Any) -> None:
        self._app = app
        self.name = name
        self._types = {key: kind for key, kind in get_type_hints(build).items() if key != "return"}
        first, *parameters = inspect.signature(build).parameters.values()
        self._types.pop(first.name, None)
        self._required = {one.name for one in parameters if one.default is one.empty}
        self._names = {one.name for one in parameters}
        steps: list[dict[str, Any]] = []
        build(WorkflowBuilder(steps), **{one.name: Reference(f"input.{one.name}") for one in parameters})
        given = {one.name: one.default for one in parameters if one.default is not one.empty}
        types = {one.name: _input_type(self._types.get(one.name, Any)) for one in parameters}
        self.value: dict[str, Any] = {
            "name": name,
            "input": given,
            **({"input_types": types} if types else {}),
            "steps": steps,
            **fields,
        }

    def check(self) -> WorkflowSpec:
        """Return the checked workflow, or raise InvalidWorkflow with the path to the fault."""
        return decode_workflow(self.value)

    def put(self) -> Any:
        """Store it; the same again changes nothing."""
        return self._app.call("workflow put", **self.value)

    def run(self, **given: Any) -> Any:
        """Store it if it has changed, and run it with this input, which has the types of the parameters."""
        self.put()
        return self._app.call("workflow run", workflow=self.name, input=self.checked_input(given))

    def checked_input(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input as JSON values; refuse one that is missing, unknown or of another type."""
        for name in {*given} - self._names:
            raise self._error(name, given[name], f"one of {', '.join(sorted(self._names)) or 'none'}")
        for name in self._required - {*given}:
            raise self._error(name, None, "an input without a default is given")
        for name, value in given.items():
            try:
                msgspec.convert(value, self._types.get(name, Any))
            except msgspec.ValidationError as error:
                raise self._error(name, value, str(error)) from None
        return {name: msgspec.to_builtins(value) for name, value in given.items()}

    def _error(self, name: str, value: Any, rule: str) -> InvalidInput:
        signature = ", ".join(f"{key}=…" for key in sorted(self._names))
        return InvalidInput(
            f"input {name} of workflow {self.name} is {'missing' if value is None else 'not valid'}",
            field=name,
            value=value,
            rule=rule,
            fix=f"run({signature})",
        )


class DefinitionDecorators:
    """Calendars and workflows in code. The next start stores them; at once if the scheduler has started."""

    def calendar(self: Any, name: str, **fields: Any) -> None:
        """Declare a calendar: `app.calendar("holidays", yearly=["12-25"])`; see `help(app.calendars.put)`."""
        self._define("calendar put", checked_calendar(name, fields))

    def _define(self: Any, operation: str, request: dict[str, Any]) -> None:
        self._definitions[operation, request["name"]] = request
        if self.is_running:
            self.call(operation, **request)

    @overload
    def workflow(self, name: Callable[..., Any]) -> WorkflowDefinition: ...
    @overload
    def workflow(
        self, name: str | None = None, **fields: Any
    ) -> Callable[[Callable[..., Any]], WorkflowDefinition]: ...

    def workflow(
        self: Any, name: Callable[..., Any] | str | None = None, **fields: Any
    ) -> WorkflowDefinition | Callable[[Callable[..., Any]], WorkflowDefinition]:
        """Make a workflow of a function that adds its steps to the builder it is given.

        Its other parameters, with their types and defaults, are the input. `fields` are those of a file:
        `time_limit`, `deadline`, `description`, `schedules`.
        """
        given = name if isinstance(name, str) else ""

        def declare(build: Callable[..., Any]) -> WorkflowDefinition:
            made = WorkflowDefinition(self, given or build.__name__.replace("_", "-"), build, **fields)
            self._define("workflow put", made.value)
            return made

        return declare(name) if callable(name) else declare


_INPUT_TYPES = {"string": "text", "array": "list"}


def _input_type(annotation: Any) -> str:
    """The type of an input in a file; one that a file cannot say is `any`."""
    try:
        found = msgspec.json.schema(annotation).get("type", "any")
    except TypeError:
        return "any"
    return _INPUT_TYPES.get(found, found) if isinstance(found, str) and found != "null" else "any"


def _to_json(value: Any) -> Any:
    """Replace references: alone they are `$from`, inside of a text they are templates already."""
    if isinstance(value, Reference):
        # Attributes of a reference are parts of its path, so its own are read differently.
        path = vars(value)["_path"]
        return {REFERENCE_KEY: f"{path}.result" if isinstance(value, StepHandle) else path}
    if isinstance(value, Mapping):
        return {key: _to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(inner) for inner in value]
    return value
