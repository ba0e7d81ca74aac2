"""Operations as methods: `app.schedules.pause("refresh")`, one resource per noun."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from timewright.errors import NotFound
from timewright.interfaces.python.signatures import docstring_of, signature_of
from timewright.operations import operations
from timewright.operations.subjects import subject_of

if TYPE_CHECKING:
    from timewright.interfaces.python import resource_methods

PLURALS = {
    "schedule": "schedules",
    "run": "runs",
    "queue": "queues",
    "hint": "hints",
    "limit": "limits",
    "backfill": "backfills",
    "budget": "budgets",
    "provider": "providers",
    "calendar": "calendars",
    "group": "groups",
    "key": "keys",
    "secret": "secrets",
    "namespace": "namespaces",
    "workflow": "workflows",
    "reminder": "reminders",
    "approval": "approvals",
    "analysis": "analyses",
    "instance": "instances",
    "audit": "audit",
    "incident": "incidents",
    "alert": "alerts",
    "channel": "channels",
    "ping": "pings",
    "clock": "clock",
}


class UnknownMethod(NotFound, AttributeError):
    """An unknown method of a resource; also an AttributeError, so that `hasattr` works."""


class Resource:
    """The operations of one noun as methods: `app.schedules.pause("refresh", reason="maintenance")`."""

    def __init__(self, noun: str, call: Callable[..., Any]) -> None:
        self._noun = noun
        self._call = call

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_"):
            # Python probes such names and expects AttributeError.
            raise AttributeError(verb)
        words = verb.rstrip("_")
        name = f"{self._noun} {words.replace('_', '-' if words.endswith('_many') else ' ')}"
        try:
            operation = operations[name]
        except NotFound as error:
            raise UnknownMethod(
                error.message, field=error.field, value=error.value, rule=error.rule, fix=error.fix
            ) from None
        subject = subject_of(operation)

        def method(*args: Any, **request: Any) -> Any:
            if args and (subject is None or len(args) > 1):
                takes = f"only {subject.field}" if subject is not None else "no argument"
                raise TypeError(f"{verb}() takes {takes} by position; pass the rest by keyword")
            if args and subject is not None and subject.field in request:
                raise TypeError(f"{verb}() got multiple values for argument {subject.field!r}")
            named = {subject.field: args[0]} if args and subject is not None else {}
            return self._call(name, **named, **request)

        method.__name__ = method.__qualname__ = verb
        method.__doc__ = docstring_of(name)
        method.__dict__["__signature__"] = signature_of(name)
        return method

    def __dir__(self) -> list[str]:
        known = [operation.name.split() for operation in operations if operation.noun]
        return ["_".join(verb).replace("-", "_") for noun, *verb in known if noun == self._noun]

    def __repr__(self) -> str:
        return f"<{self._noun}: {', '.join(dir(self))}>"


class Resources:
    """The resources of a scheduler."""

    if TYPE_CHECKING:
        schedules: resource_methods.Schedules
        runs: resource_methods.Runs
        queues: resource_methods.Queues
        hints: resource_methods.Hints
        limits: resource_methods.Limits
        backfills: resource_methods.Backfills
        budgets: resource_methods.Budgets
        providers: resource_methods.Providers
        calendars: resource_methods.Calendars
        groups: resource_methods.Groups
        keys: resource_methods.Keys
        secrets: resource_methods.Secrets
        namespaces: resource_methods.Namespaces
        workflows: resource_methods.Workflows
        reminders: resource_methods.Reminders
        approvals: resource_methods.Approvals
        analyses: resource_methods.Analyses
        instances: resource_methods.Instances
        audit: resource_methods.Audit
        clock: resource_methods.Clock

    def __init__(self, call: Callable[..., Any]) -> None:
        attach_resources(self, call)


class AsyncResources:
    """The resources of an async scheduler."""

    if TYPE_CHECKING:
        schedules: resource_methods.AsyncSchedules
        runs: resource_methods.AsyncRuns
        queues: resource_methods.AsyncQueues
        hints: resource_methods.AsyncHints
        limits: resource_methods.AsyncLimits
        backfills: resource_methods.AsyncBackfills
        budgets: resource_methods.AsyncBudgets
        providers: resource_methods.AsyncProviders
        calendars: resource_methods.AsyncCalendars
        groups: resource_methods.AsyncGroups
        keys: resource_methods.AsyncKeys
        secrets: resource_methods.AsyncSecrets
        namespaces: resource_methods.AsyncNamespaces
        workflows: resource_methods.AsyncWorkflows
        reminders: resource_methods.AsyncReminders
        approvals: resource_methods.AsyncApprovals
        analyses: resource_methods.AsyncAnalyses
        instances: resource_methods.AsyncInstances
        audit: resource_methods.AsyncAudit
        clock: resource_methods.AsyncClock

    def __init__(self, call: Callable[..., Any]) -> None:
        attach_resources(self, call)


def attach_resources(to: object, call: Callable[..., Any]) -> None:
    """Set one attribute per resource; its methods are forwarded to `call`."""
    for noun, plural in PLURALS.items():
        setattr(to, plural, Resource(noun, call))
