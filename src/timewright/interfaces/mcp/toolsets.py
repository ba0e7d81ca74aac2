"""Toolsets: which operations a client sees. The default `core` is small, because every tool costs tokens."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any

from timewright.errors import InvalidInput
from timewright.operations import Operation, operations
from timewright.operations.access.callers import Caller
from timewright.operations.access.permissions import AGENT_RULES, AgentRule

CORE = "core"
TOOLSETS: Mapping[str, str] = MappingProxyType(
    {
        CORE: "create, change, run and explain schedules; reminders",
        "operate": "runs, queues, workflows, groups, health",
        "plan": "hints, analyses, calendars, budgets, limits, forecasts, counts over time, files",
        "admin": "keys, sessions, secrets, namespaces, audit, channels, pauses of the installation",
    }
)
FIND_OPERATION = "find_operation"
MAX_FOUND = 5

# The fields that a core tool shows; the tool accepts all fields of the operation.
CORE_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "schedule create": (
            "name", "every", "cron", "at", "zone", "note", "call", "http", "workflow", "overlap",
            "description", "dry_run",
        ),
        "schedule get": ("schedule",),
        "schedule list": ("state", "tag", "name_starts", "limit", "cursor"),
        "schedule update": (
            "schedule", "every", "cron", "zone", "note", "http", "overlap", "description", "reason",
            "dry_run",
        ),
        "schedule archive": ("schedule", "reason", "dry_run"),
        "schedule pause": ("schedule", "until", "reason"),
        "schedule resume": ("schedule", "reason"),
        "schedule run": ("schedule", "at", "payload", "reason"),
        "schedule skip": ("schedule", "count", "reason", "dry_run"),
        "schedule explain": ("schedule", "at"),
        "run list": ("schedule", "state", "since", "limit", "cursor"),
        "run get": ("run",),
        "run retry": ("run", "reason"),
        "reminder set": ("text", "at", "after", "every", "cron", "zone"),
    }
)  # fmt: skip
# Further fields that agents need often: the description of the tool names them, which costs fewer tokens.
_MORE_OF_A_SCHEDULE = (
    "after", "rrule", "max_attempts", "backoff", "time_limit", "start_at", "end_at", "max_runs", "tags",
)  # fmt: skip
MORE_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "schedule create": _MORE_OF_A_SCHEDULE,
        "schedule update": ("at", "call", *_MORE_OF_A_SCHEDULE),
    }
)
# A preview takes every field of a schedule; these decide when it runs.
SHOWN_FIELDS = MappingProxyType(
    {
        **CORE_FIELDS,
        "schedule next": (
            "schedule", "count", "after", "every", "cron", "rrule", "once", "zone", "start_at", "end_at",
            "max_runs", "calendar",
        ),
    }
)  # fmt: skip
_PLAN_NOUNS = frozenset({"hint", "analysis", "calendar", "budget", "provider", "limit"})
_PLAN_WORDS = frozenset(
    {"forecast", "simulate", "replay", "lint", "plan", "apply", "diff", "export", "import", "move"}
)
# What charts are drawn from.
_PLAN_NAMES = frozenset(
    {"run counts", "schedule grid", "schedule outcomes", "schedule trends", "schedule feed"}
)
_ADMIN_NOUNS = frozenset({"key", "secret", "namespace", "audit", "session", "channel"})
_ADMIN_WORDS = frozenset({"pause", "resume", "backup", "restore", "alert set"})


def toolset_of(operation: Operation[Any]) -> str:
    """Return the toolset of an operation."""
    if operation.name in CORE_FIELDS:
        return CORE
    if operation.noun in _ADMIN_NOUNS or operation.name in _ADMIN_WORDS:
        return "admin"
    is_planned = operation.noun in _PLAN_NOUNS or operation.name in _PLAN_NAMES
    if is_planned or operation.name.split()[0] in _PLAN_WORDS:
        return "plan"
    return "operate"


def parse_toolsets(text: str) -> frozenset[str]:
    """Parse `core,operate`; `all` means every toolset."""
    names = [name.strip() for name in text.split(",") if name.strip()] or [CORE]
    for name in names:
        if name != "all" and name not in TOOLSETS:
            raise InvalidInput(
                f"unknown toolset {name[:64]!r}",
                field="tools",
                value=name[:64],
                rule=f"one or several of: {', '.join(TOOLSETS)}, all",
                fix="core,operate",
            )
    return frozenset(TOOLSETS) if "all" in names else frozenset(names)


def is_listed(operation: Operation[Any], caller: Caller, toolsets: frozenset[str]) -> bool:
    """Whether a client sees an operation: it is in a toolset, and the caller may ever use it."""
    return toolset_of(operation) in toolsets and operation.scope in caller.scopes and not _never(operation)


def _never(operation: Operation[Any]) -> bool:
    """Whether an agent is refused always: these decide in the place of a person, or give access."""
    refused = AGENT_RULES.get(operation.name) is AgentRule.REFUSED
    return (
        not operation.read_only
        and refused
        and operation.verb.split()[-1] in ("approve", "reject", "answer", "link")
    )


def find_operations(query: str) -> list[dict[str, str]]:
    """Return the operations that fit a question best, with the toolset that has each."""
    words = _words(query)
    scored = sorted(((_score(words, one), one.name) for one in operations), reverse=True)
    found = [operations[name] for score, name in scored[:MAX_FOUND] if score > 0]
    return [
        {"tool": one.name.replace(" ", "_"), "does": one.summary, "toolset": toolset_of(one)} for one in found
    ]


def _score(words: Sequence[str], operation: Operation[Any]) -> float:
    """How well words fit an operation: its name counts more than its summary."""
    name, summary = operation.name.split(), _summary_words(operation.name)
    total = 0.0
    for word in words:
        near_name = max((SequenceMatcher(None, word, one).ratio() for one in name), default=0.0)
        near_text = max((SequenceMatcher(None, word, one).ratio() for one in summary), default=0.0)
        total += (2 * near_name if near_name > 0.8 else 0.0) + (near_text if near_text > 0.8 else 0.0)
    return total


@functools.cache
def _summary_words(name: str) -> tuple[str, ...]:
    return tuple(_words(operations[name].summary))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{3,}", text.lower()[:500])
