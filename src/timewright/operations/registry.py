"""The registry of operations: name, request type, function, scope, subject, and whether it only reads."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_type_hints

from msgspec import Meta, Struct
from msgspec import inspect as mi

from timewright.core.input.encoding import encode
from timewright.errors import NotFound
from timewright.operations.access.callers import Scope, require_scope
from timewright.operations.access.permissions import check_agent_permission, check_run_permission
from timewright.operations.context import OperationContext, dry_run, in_transaction
from timewright.operations.quotas import (
    EXTERNAL_OPERATIONS,
    LEASE_OPERATIONS,
    charge_target_test,
    perform_within_quota,
)
from timewright.operations.request_parsing import parse_request
from timewright.ports import Transaction

R = TypeVar("R", bound="OperationRequest")
A = TypeVar("A", bound=Struct)
Example = Mapping[str, Any]

# Interfaces cache keys and namespaces for a moment; a write to one of these clears that cache.
CACHED_NOUNS = frozenset({"key", "namespace"})

# Verbs of other tools, for "did you mean".
VERB_ALIASES = {
    "add": "create",
    "new": "create",
    "remove": "delete",
    "rm": "delete",
    "ls": "list",
    "output": "logs",
    "log": "logs",
    "all": "list",
    "show": "get",
    "describe": "get",
    "info": "get",
    "edit": "update",
    "modify": "update",
    "reschedule": "update",
    "enable": "resume",
    "unpause": "resume",
    "disable": "pause",
    "suspend": "pause",
    "trigger": "run",
    "fire": "run",
    "execute": "run",
    "history": "list",
}

Text = Annotated[str, Meta(max_length=2000)]
ObjectName = Annotated[str, Meta(min_length=1, max_length=255)]

LEASED_RUN = "run_01KKBXWX00EXAMPLE0LEASED00"
FAILED_RUN = "run_01KKBXWX00EXAMPLE0FAILED00"
PARKED_RUN = "run_01KKBXWX00EXAMPLE0PARKED00"
WORKFLOW_RUN = "run_01KKBXWX00EXAMPLE0FL0W0000"
WAITING_RUN = "run_01KKBXWX00EXAMPLE0WA1T0000"
LEASE = "lease_01KKBXWX00EXAMPLE000000000-1"
BACKFILL = "bf_01KKBSRWA0EXAMPLE00000000B"
ANALYSIS = "ana_01KKBSRWA0EXAMPLE00000000A"
INCIDENT = "inc_01KKBXWX00EXAMPLE0FAILED00"

OBJECTS = ("schedule", "run", "queue", "group", "calendar", "limit", "event")


class OperationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of all requests; each operation has its own subclass.

    `flattens` names a field and a model: a request accepts the model's fields beside its own, and collects
    them unparsed in that field. Error messages never repeat the values of `redacted_fields`. With
    `keeps_zones` an instant that was written with a zone is in that zone, so that the answer can repeat it.
    """

    flattens: ClassVar[tuple[str, type[Struct]] | None] = None
    redacted_fields: ClassVar[tuple[str, ...]] = ()
    keeps_zones: ClassVar[bool] = False


class WriteRequest(OperationRequest, frozen=True, kw_only=True):
    """A request that changes something; `dry_run` does everything except keep the change."""

    reason: Text = ""
    dry_run: bool = False


class ListRequest(OperationRequest, frozen=True, kw_only=True):
    """A request for a list: the page size, and the cursor of the page before."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Annotated[str, Meta(max_length=4000)] = ""


def answer_from(kind: type[A], *sources: Struct, **given: Any) -> A:
    """Build an answer from the given fields; the others come from the first source that has them."""
    for name in kind.__struct_fields__:
        source = next((one for one in sources if hasattr(one, name)), None)
        if name not in given and source is not None:
            given[name] = getattr(source, name)
    return kind(**given)


class NoParameters(OperationRequest, frozen=True, kw_only=True):
    """No parameters."""


class GetSchedule(OperationRequest, frozen=True, kw_only=True):
    """Which schedule, by name or id."""

    schedule: ObjectName


class ScheduleAction(WriteRequest, frozen=True, kw_only=True):
    """Which schedule, by name or id."""

    schedule: ObjectName


class GetRun(OperationRequest, frozen=True, kw_only=True):
    """Which run."""

    run: ObjectName


class RunAction(WriteRequest, frozen=True, kw_only=True):
    """Which run."""

    run: ObjectName


class Operation(Struct, Generic[R], frozen=True, kw_only=True):
    """One operation: every interface derives its commands, routes and tools from this."""

    noun: str
    verb: str
    request_type: type[R]
    perform: Callable[[OperationContext, R], Any]
    apply: Callable[[OperationContext, R], Any]
    scope: Scope
    read_only: bool
    examples: tuple[Example, ...] = ()

    @property
    def name(self) -> str:
        """The name, from which every interface derives its own spelling: `schedule pause`."""
        return f"{self.noun} {self.verb}".strip()

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.perform.__doc__ or "").strip().splitlines()[0]

    @property
    def answer_type(self) -> type[Struct]:
        """The return type of the function."""
        found: type[Struct] = get_type_hints(self.perform)["return"]
        return found

    def __call__(self, context: OperationContext, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Check the caller's scope, parse the payload, perform the operation, and return JSON values."""
        return self.call_with_encoder(context, payload, encode)

    def call_with_encoder(
        self, context: OperationContext, payload: Mapping[str, Any], encoder: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Like a call, with the interface's own encoder for the answer."""
        if context.remote is not None:
            return context.remote(self.name, payload)
        return encoder(self.perform_payload(context, payload))

    def perform_payload(self, context: OperationContext, payload: Mapping[str, Any]) -> Any:
        """Check the scope, parse the payload and perform; return the answer as a Struct."""
        require_scope(context.caller, self.scope, operation=self.name)
        if context.caller.own_schedule:
            check_run_permission(context, self.name, payload)
        if not self.read_only:
            check_agent_permission(context, self.name)
        request = parse_request(payload, self.request_type, now=context.now, zone=context.default_zone)
        try:
            return self._perform_checked(context, payload, request)
        finally:
            if self.noun in CACHED_NOUNS and not self.read_only and context.auth_cache is not None:
                context.auth_cache.forget_callers()

    def perform_read(self, context: OperationContext, request: R) -> Any:
        """Perform a read-only operation with a request that is already parsed."""
        require_scope(context.caller, self.scope, operation=self.name)
        if context.caller.own_schedule:
            check_run_permission(context, self.name, {})
        return self.perform(context, request)

    def _perform_checked(self, context: OperationContext, payload: Mapping[str, Any], request: R) -> Any:
        if context.caller.local or not isinstance(request, WriteRequest) or self.name in LEASE_OPERATIONS:
            return self.perform(context, request)
        if self.name in EXTERNAL_OPERATIONS:
            if not request.dry_run and self.name == "schedule test":
                charge_target_test(context, payload)
            return self.perform(context, request)
        return perform_within_quota(
            context,
            lambda nested: self.apply(nested, request),
            scope=self.scope,
            payload=payload,
            is_dry_run=request.dry_run,
        )


class OperationRegistry:
    """All operations, by name."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation[Any]] = {}

    def add(
        self, name: str, *, scope: Scope, examples: tuple[Example, ...]
    ) -> Callable[[Callable[[OperationContext, R], A]], Callable[[OperationContext, R], A]]:
        """Decorator that registers a function as an operation; a write also gets `dry_run`.

        The name is a noun and a verb, and the annotation of the second parameter is the request type.
        """

        def register(perform: Callable[[OperationContext, R], A]) -> Callable[[OperationContext, R], A]:
            noun, _, verb = name.rpartition(" ")
            request_type = _request_type(perform)
            reads_only = not issubclass(request_type, WriteRequest)
            apply = perform if reads_only else _with_reason(perform)
            operation = Operation(
                noun=noun,
                verb=verb,
                request_type=request_type,
                perform=perform if reads_only else _with_dry_run(apply),
                apply=apply,
                scope=scope,
                read_only=reads_only,
                examples=examples,
            )
            if operation.name in self._operations:
                raise AssertionError(f"operation {operation.name} is registered twice")
            self._operations[operation.name] = operation
            return operation.perform

        return register

    def read(
        self, name: str, *, scope: Scope, examples: tuple[Example, ...]
    ) -> Callable[[Callable[[OperationContext, Transaction, R], A]], Callable[[OperationContext, R], A]]:
        """Like `add`, for a function that reads in one transaction, which it is given."""

        def register(
            read: Callable[[OperationContext, Transaction, R], A],
        ) -> Callable[[OperationContext, R], A]:
            @functools.wraps(read)
            def perform(context: OperationContext, request: R) -> A:
                return context.store.read(lambda tx: read(context, tx, request))

            return self.add(name, scope=scope, examples=examples)(perform)

        return register

    def write(
        self, name: str, *, scope: Scope, examples: tuple[Example, ...]
    ) -> Callable[[Callable[[OperationContext, Transaction, R], A]], Callable[[OperationContext, R], A]]:
        """Like `add`, for a function that writes in one transaction, which it is given.

        The store of its context is that transaction, and its facts are sent after the commit.
        """

        def register(
            write: Callable[[OperationContext, Transaction, R], A],
        ) -> Callable[[OperationContext, R], A]:
            @functools.wraps(write)
            def perform(context: OperationContext, request: R) -> A:
                return in_transaction(
                    context, lambda nested: nested.store.write(lambda tx: write(nested, tx, request))
                )

            return self.add(name, scope=scope, examples=examples)(perform)

        return register

    def __iter__(self) -> Iterator[Operation[Any]]:
        return iter(self._operations[name] for name in sorted(self._operations))

    def __len__(self) -> int:
        return len(self._operations)

    def __getitem__(self, name: str) -> Operation[Any]:
        try:
            return self._operations[name]
        except KeyError:
            name = str(name)
            noun, _, verb = name[:64].rpartition(" ")
            wanted = f"{noun} {VERB_ALIASES.get(verb, verb)}"
            near = get_close_matches(wanted, self._operations, n=1, cutoff=0.6)
            raise NotFound(
                f"no operation {name[:64]!r}",
                field="operation",
                value=name[:64],
                rule="the name of an operation: a noun and a verb",
                fix=f"did you mean {near[0]}?" if near else "schedule list",
            ) from None


def _request_type(perform: Callable[[OperationContext, R], A]) -> type[R]:
    """Return the annotation of the last parameter, without resolving the others."""
    function = inspect.unwrap(perform)
    annotations = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    found: type[R] = function.__globals__[list(annotations.values())[-1]]
    return found


def _with_reason(perform: Callable[[OperationContext, R], A]) -> Callable[[OperationContext, R], A]:
    """Let the actor of the context have the reason of the request."""

    @functools.wraps(perform)
    def perform_with_reason(context: OperationContext, request: R) -> A:
        assert isinstance(request, WriteRequest)
        return perform(context.with_reason(request.reason), request)

    return perform_with_reason


def _with_dry_run(perform: Callable[[OperationContext, R], A]) -> Callable[[OperationContext, R], A]:
    @functools.wraps(perform)
    def perform_or_dry_run(context: OperationContext, request: R) -> A:
        if isinstance(request, WriteRequest) and request.dry_run:
            return dry_run(context, lambda nested: perform(nested, request))
        return perform(context, request)

    return perform_or_dry_run


operations = OperationRegistry()


class Subject(Struct, frozen=True, kw_only=True):
    """The field that names the object, and whether it is required."""

    field: str
    required: bool


def subject_of(operation: Operation[Any]) -> Subject | None:
    """Return the field named like the noun, else the one required object field, else `name` or `lease`."""
    request: type[OperationRequest] = operation.request_type
    return _subject(operation.noun, request)


@cache
def _subject(noun: str, request: type[OperationRequest]) -> Subject | None:
    flattens = request.flattens
    texts = _texts(request, leaving_out=flattens[0] if flattens is not None else "")
    if noun in texts:
        return Subject(field=noun, required=texts[noun])
    needed = [name for name in OBJECTS if texts.get(name)]
    if needed:
        return Subject(field=needed[0], required=True)
    if flattens is not None and "name" in flattens[1].__struct_fields__:
        return Subject(field="name", required=False)
    # In a read, `name` is the object asked about; in a write, it is the name of a new object.
    candidates = ("lease",) if issubclass(request, WriteRequest) else ("name", "lease")
    named = next((name for name in candidates if name in texts), None)
    return Subject(field=named, required=texts[named]) if named is not None else None


def _texts(request: type[Struct], *, leaving_out: str) -> dict[str, bool]:
    """Return the string fields of a request, each with whether it is required."""
    info = mi.type_info(request)
    assert isinstance(info, mi.StructType)
    found = [field for field in info.fields if field.name != leaving_out]
    return {field.encode_name: field.required for field in found if isinstance(field.type, mi.StrType)}
