"""Toolsets: which operations a client sees. The default `core` is small, because every tool costs tokens."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
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
        "operate": (
            "upcoming occurrences; skip, move, backfill them; retry many runs; logs; lists of reminders;"
            " queues, workflows, groups, health"
        ),
        "plan": "holiday calendars, budgets, limits, forecasts, counts over time, hints, analyses, files",
        "admin": "channels for messages, keys, sessions, secrets, namespaces, audit, pauses of everything",
    }
)
FIND_OPERATION = "find_operation"
MAX_FOUND = 5
_ENDING = re.compile(r"(?<=[a-z]{3})(?:ning|ting|ing|ies|es|ed|s|y|e)$")
_EMPTY_WORDS = frozenset(
    {
        "all", "and", "are", "before", "but", "for", "from", "give", "has", "have", "how", "into",
        "its", "not", "please", "that", "the", "their", "them", "this", "was", "what", "when", "which",
        "will", "with", "you", "your",
    }
)  # fmt: skip
# Words of a task, and words of the operations that mean the same; all without their endings.
_OTHER_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "put": ("add",), "insert": ("add",), "enqueu": ("add", "queu"), "messag": ("entr", "payload"),
        "mail": ("entr",), "item": ("entr",), "job": ("schedul",), "task": ("schedul",),
        "remov": ("delet", "cancel"), "kill": ("cancel",), "abort": ("cancel",), "stop": ("cancel", "paus"),
        "upcom": ("now", "next"), "soon": ("now", "upcom"), "go": ("now", "upcom"),
        "hour": ("horizon", "upcom"), "fir": ("occurrenc", "next"), "cron": ("trigger", "next"),
        "express": ("trigger",), "mean": ("trigger",), "slack": ("channel", "creat"),
        "error": ("fail",), "broken": ("fail",), "problem": ("doctor", "incident"), "holiday": ("calendar",),
        "worker": ("instanc",), "output": ("log",), "past": ("backfill",), "redo": ("retr",),
        "stuck": ("park", "explain", "wait"), "hang": ("explain", "wait"), "hung": ("explain", "wait"),
        "block": ("explain", "wait"), "wai": ("wait",),
        "postpon": ("mov",), "delay": ("mov", "snooz"), "notif": ("channel",),
        "alert": ("channel", "incident"),
        "undo": ("restor",), "histor": ("revision",), "lat": ("overdu",), "chang": ("updat", "revision"),
        "who": ("audit",), "reschedul": ("mov",), "later": ("mov",), "week": ("backfill",),
        "yesterday": ("backfill",), "same": ("limit", "set"), "several": ("many",), "concurrent": ("limit",),
        "parallel": ("limit",), "simultaneou": ("limit",), "defin": ("put",), "approv": ("approval",),
        "email": ("channel", "creat"), "watch": ("creat",), "monitor": ("creat",), "depend": ("creat",),
        "renam": ("updat",), "rerun": ("retr", "backfill"), "again": ("retr", "backfill"),
    }
)  # fmt: skip

# The fields that a core tool shows; the tool accepts all fields of the operation.
CORE_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "schedule create": (
            "name", "every", "cron", "at", "zone", "note", "call", "http", "workflow", "overlap",
            "description", "dry_run",
        ),
        "schedule get": ("schedule",),
        "schedule list": ("state", "tag", "name_contains", "limit"),
        "schedule update": (
            "schedule", "every", "cron", "zone", "note", "call", "http", "overlap", "reason", "dry_run",
        ),
        "schedule archive": ("schedule", "reason", "dry_run"),
        "schedule pause": ("schedule", "until", "reason"),
        "schedule resume": ("schedule", "reason"),
        "schedule run": ("schedule", "at", "payload", "reason"),
        "schedule explain": ("schedule", "at", "last"),
        "run list": ("schedule", "state", "since", "until", "limit"),
        "run get": ("run",),
        "run cancel": ("run", "reason", "dry_run"),
        "run retry": ("run", "reason"),
        "reminder set": ("text", "at", "after", "every", "cron", "zone", "end_at", "max_runs"),
    }
)  # fmt: skip
# Further fields that agents need often: the description of the tool names them, which costs fewer tokens.
MORE_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "schedule create": (
            "after (name of a schedule), and beside it delay (10m) and on (success, failure, end)",
            "needs (list of NAME:2h, the age of its success)", "rrule",
            "shell (list: program, arguments)", "max_attempts (with the first)",
            "backoff (5m: constant; or exponential)",
            "time_limit (10m)", "start_at", "end_at (instants, inclusive)", "max_runs (number, then it ends)",
            "catch_up (of those missed in an outage run none, last, which is the default, or all)",
            "tags (list)", "group", "manual (true: only on request)", "jitter (1m)", "limits (list of names)",
            "calendar (except NAME)", "disable_after (failures)",
            'watch ({"changed":"body"}: runs whose answer did not change do not count; of JSON: body.price)',
        ),
        "schedule update": ("at", "all of schedule_create"),
    }
)  # fmt: skip
# Tools of other toolsets that agents need often, with the fields they need: a client can call them too.
OFTEN_FOUND: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "schedule next": ("schedule", "count"),
        "schedule skip": ("schedule", "count"),
        "schedule move": ("schedule", "to"),
        "schedule backfill": ("schedule", "since", "until"),
        "schedule upcoming": ("until", "each"),
        "run explain": ("run",),
        "run logs": ("run",),
        "run wait": ("run",),
        "run retry-failures": ("schedule", "since"),
        "limit set": ("limit", "max_running"),
        "queue add": ("queue", "payload"),
        "reminder list": (),
        "reminder cancel": ("reminder",),
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
    return toolset_of(operation) in toolsets and is_usable(operation, caller)


def is_usable(operation: Operation[Any], caller: Caller) -> bool:
    """Whether the caller may ever use an operation."""
    return operation.scope in caller.scopes and not _never(operation)


def _never(operation: Operation[Any]) -> bool:
    """Whether an agent is refused always: these decide in the place of a person, or give access."""
    refused = AGENT_RULES.get(operation.name) is AgentRule.REFUSED
    return (
        not operation.read_only
        and refused
        and operation.verb.split()[-1] in ("approve", "reject", "answer", "link")
    )


def find_operations(query: str) -> list[Operation[Any]]:
    """Return the operations that fit a task best."""
    words = _words(query.lower().replace("how many", ""))
    asked = {near for word in words for near in (word, *_OTHER_WORDS.get(word, ()))}
    scored = sorted(((_score(asked, one.name), one.name) for one in operations), reverse=True)
    return [operations[name] for score, name in scored[:MAX_FOUND] if score > 0]


def _score(asked: Iterable[str], name: str) -> float:
    """How well words fit an operation: rare words count more, those of its name most."""
    weights, rarity = _word_weights(name), _rarity()
    return sum(weights[word] * rarity[word] for word in asked if word in weights)


@functools.cache
def _word_weights(name: str) -> Mapping[str, float]:
    """The words of an operation: its name, its summary and its fields."""
    operation = operations[name]
    weights = dict.fromkeys(_words(" ".join(operation.request_type.__struct_fields__).replace("_", " ")), 0.5)
    weights |= dict.fromkeys(_words(operation.summary), 1.0)
    return weights | dict.fromkeys(_words(name.replace("-", " ")), 2.0)


@functools.cache
def _rarity() -> Mapping[str, float]:
    """The logarithm of how many operations there are for each that has the word."""
    found = Counter(word for one in operations for word in _word_weights(one.name))
    # Words of many requests, such as `limit`, are rare as names, and what they name is meant then.
    said = Counter(
        word for one in operations for word, weight in _word_weights(one.name).items() if weight > 0.5
    )
    return {word: math.log(len(list(operations)) / (said[word] or count)) for word, count in found.items()}


def _words(text: str) -> list[str]:
    """Return the words of a text without their endings, so that `running` finds `runs`."""
    words = re.findall(r"[a-z]{3,}", text.lower()[:500])
    return [_ENDING.sub("", word) or word for word in words if word not in _EMPTY_WORDS]
