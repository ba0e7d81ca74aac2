"""The list of operations: request → answer, with what each needs and whether it only reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_type_hints

from msgspec import Meta, Struct

from timewright.core.encoding import encode
from timewright.errors import NotFound
from timewright.operations.callers import Scope, demand
from timewright.operations.context import Context, rehearse
from timewright.operations.quotas import OUTSIDE, WORKING, take_trial, within_quota
from timewright.operations.reading import read_request

R = TypeVar("R", bound="Request")
A = TypeVar("A", bound=Struct)
Example = Mapping[str, Any]

# Of these the doors remember for a moment what they were.
REMEMBERED = frozenset({"key", "namespace"})

# What others call our verbs.
OTHER_VERBS = {
    "add": "create",
    "new": "create",
    "remove": "delete",
    "rm": "delete",
    "ls": "list",
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
Named = Annotated[str, Meta(min_length=1, max_length=255)]


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked; each operation has its own.

    A request that `spreads` takes the fields of a model beside its own: all that are not its own are
    gathered in the field named first, as they were written. What it `hides` is repeated by no refusal.
    """

    spreads: ClassVar[tuple[str, type[Struct]] | None] = None
    hides: ClassVar[tuple[str, ...]] = ()


class Write(Request, frozen=True, kw_only=True):
    """What is asked of an operation that changes something; `dry_run` does everything but the write."""

    reason: Text = ""
    dry_run: bool = False


class Listing(Request, frozen=True, kw_only=True):
    """What is asked of a list: how much of it, and from where on."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    cursor: Annotated[str, Meta(max_length=4000)] = ""


class Operation(Struct, Generic[R], frozen=True, kw_only=True):
    """One thing that can be asked."""

    noun: str
    verb: str
    request: type[R]
    perform: Callable[[Context, R], Any]
    act: Callable[[Context, R], Any]
    scope: Scope
    reads_only: bool
    examples: tuple[Example, ...] = ()

    @property
    def name(self) -> str:
        """Its one name, from which every door derives its spelling: `schedule pause`."""
        return f"{self.noun} {self.verb}".strip()

    @property
    def summary(self) -> str:
        """The first sentence of what it does."""
        return (self.perform.__doc__ or "").strip().splitlines()[0]

    @property
    def answer(self) -> type[Struct]:
        """The type of what it gives back."""
        found: type[Struct] = get_type_hints(self.perform)["return"]
        return found

    def __call__(self, context: Context, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse a caller who may not, read the request, perform it, and give back plain data."""
        return self.spelled(context, payload, encode)

    def spelled(
        self, context: Context, payload: Mapping[str, Any], spell: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """The same, and the answer as a door wants to have it."""
        if context.elsewhere is not None:
            return context.elsewhere(self.name, payload)
        return spell(self.answered(context, payload))

    def answered(self, context: Context, payload: Mapping[str, Any]) -> Any:
        """The same, and the answer as it is, for a door that has the store itself."""
        demand(context.caller, self.scope, of=self.name)
        request = read_request(payload, self.request)
        try:
            return self._performed(context, payload, request)
        finally:
            if self.noun in REMEMBERED and not self.reads_only and context.doorkeeper is not None:
                context.doorkeeper.known.forget()

    def looked(self, context: Context, request: R) -> Any:
        """The answer to a request that was read before, of an operation that only reads."""
        demand(context.caller, self.scope, of=self.name)
        return self.perform(context, request)

    def _performed(self, context: Context, payload: Mapping[str, Any], request: R) -> Any:
        if context.caller.local or not isinstance(request, Write) or self.name in WORKING:
            return self.perform(context, request)
        if self.name in OUTSIDE:
            if not request.dry_run:
                take_trial(context, payload)
            return self.perform(context, request)
        return within_quota(
            context,
            lambda inside: self.act(inside, request),
            scope=self.scope,
            payload=payload,
            rehearsed=request.dry_run,
        )


class Registry:
    """The list, by name."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation[Any]] = {}

    def add(
        self,
        noun: str,
        verb: str,
        request: type[R],
        *,
        scope: Scope,
        examples: tuple[Example, ...],
    ) -> Callable[[Callable[[Context, R], A]], Callable[[Context, R], A]]:
        """Put a function on the list; it stays a function, and one that writes can be rehearsed."""

        def adding(perform: Callable[[Context, R], A]) -> Callable[[Context, R], A]:
            reads_only = not issubclass(request, Write)
            operation = Operation(
                noun=noun,
                verb=verb,
                request=request,
                perform=perform if reads_only else _rehearsed(perform),
                act=perform,
                scope=scope,
                reads_only=reads_only,
                examples=examples,
            )
            if operation.name in self._operations:
                raise AssertionError(f"{operation.name} is on the list twice")
            self._operations[operation.name] = operation
            return operation.perform

        return adding

    def __iter__(self) -> Iterator[Operation[Any]]:
        return iter(self._operations[name] for name in sorted(self._operations))

    def __len__(self) -> int:
        return len(self._operations)

    def __getitem__(self, name: str) -> Operation[Any]:
        try:
            return self._operations[name]
        except KeyError:
            noun, _, verb = name[:64].rpartition(" ")
            said = f"{noun} {OTHER_VERBS.get(verb, verb)}"
            near = get_close_matches(said, self._operations, n=1, cutoff=0.4)
            raise NotFound(
                f"no operation {name[:64]!r}",
                field="operation",
                value=name[:64],
                rule="a noun and a verb from the list of operations",
                fix=f"did you mean {near[0]}?" if near else "schedule list",
            ) from None


def _rehearsed(perform: Callable[[Context, R], A]) -> Callable[[Context, R], A]:
    @functools.wraps(perform)
    def performing(context: Context, ask: R) -> A:
        if isinstance(ask, Write) and ask.dry_run:
            return rehearse(context, lambda inside: perform(inside, ask))
        return perform(context, ask)

    return performing


operations = Registry()
