"""The nouns of the embedded door: every operation is a method of its noun, awaited where that door is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from timewright.errors import NotFound
from timewright.operations import operations
from timewright.operations.subjects import subject_of

if TYPE_CHECKING:
    from timewright.doors import verbs

PLURALS = {
    "schedule": "schedules",
    "run": "runs",
    "queue": "queues",
    "hint": "hints",
    "limit": "limits",
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
}


class NoVerb(NotFound, AttributeError):
    """A verb that a noun does not have, also in the words of Python, so that `hasattr` can ask."""


class Noun:
    """The verbs of one noun as methods: `app.schedules.pause("refresh", reason="maintenance")`."""

    def __init__(self, noun: str, call: Callable[..., Any]) -> None:
        self._noun = noun
        self._call = call

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_"):
            # Python itself asks for such names, and expects this answer.
            raise AttributeError(verb)
        name = f"{self._noun} {verb.rstrip('_').replace('_', ' ')}"
        try:
            operation = operations[name]
        except NotFound as error:
            raise NoVerb(
                error.message, field=error.field, value=error.value, rule=error.rule, fix=error.fix
            ) from None
        subject = subject_of(operation)

        def ask(*about: Any, **request: Any) -> Any:
            if about and (subject is None or len(about) > 1):
                takes = f"{subject.field} by position" if subject is not None else "nothing by position"
                raise TypeError(f"{verb}() takes {takes}, and all else by its name")
            if about and subject is not None and subject.field in request:
                raise TypeError(f"{verb}() got {subject.field} twice, by position and by name")
            named = {subject.field: about[0]} if about and subject is not None else {}
            return self._call(name, **named, **request)

        ask.__name__, ask.__doc__ = verb, operation.summary
        return ask

    def __dir__(self) -> list[str]:
        known = [operation.name.split() for operation in operations if operation.noun]
        return ["_".join(verb) for noun, *verb in known if noun == self._noun]

    def __repr__(self) -> str:
        return f"<{self._noun}: {', '.join(dir(self))}>"


class Nouns:
    """What a scheduler can be asked about, by noun."""

    if TYPE_CHECKING:
        schedules: verbs.Schedules
        runs: verbs.Runs
        queues: verbs.Queues
        hints: verbs.Hints
        limits: verbs.Limits
        budgets: verbs.Budgets
        providers: verbs.Providers
        calendars: verbs.Calendars
        groups: verbs.Groups
        keys: verbs.Keys
        secrets: verbs.Secrets
        namespaces: verbs.Namespaces
        workflows: verbs.Workflows
        reminders: verbs.Reminders
        approvals: verbs.Approvals
        analyses: verbs.Analyses
        instances: verbs.Instances
        audit: verbs.Audit

    def __init__(self, call: Callable[..., Any]) -> None:
        give_nouns(self, call)


class AsyncNouns:
    """The same where every answer is awaited."""

    if TYPE_CHECKING:
        schedules: verbs.AsyncSchedules
        runs: verbs.AsyncRuns
        queues: verbs.AsyncQueues
        hints: verbs.AsyncHints
        limits: verbs.AsyncLimits
        budgets: verbs.AsyncBudgets
        providers: verbs.AsyncProviders
        calendars: verbs.AsyncCalendars
        groups: verbs.AsyncGroups
        keys: verbs.AsyncKeys
        secrets: verbs.AsyncSecrets
        namespaces: verbs.AsyncNamespaces
        workflows: verbs.AsyncWorkflows
        reminders: verbs.AsyncReminders
        approvals: verbs.AsyncApprovals
        analyses: verbs.AsyncAnalyses
        instances: verbs.AsyncInstances
        audit: verbs.AsyncAudit

    def __init__(self, call: Callable[..., Any]) -> None:
        give_nouns(self, call)


def give_nouns(to: object, call: Callable[..., Any]) -> None:
    """Let every noun be an attribute under its plural; what is asked of it goes to `call`."""
    for noun, plural in PLURALS.items():
        setattr(to, plural, Noun(noun, call))
