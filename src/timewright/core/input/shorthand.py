"""Expands short forms of triggers, targets, backoffs and outcomes into a mapping with a `kind`.

This module only finds out which kind is meant; the fields are decoded and checked afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from timewright.core.input.aliases import normalize_choice, snake_case
from timewright.core.input.input_errors import input_error, raise_at_path, show_value
from timewright.core.moments import parse_duration
from timewright.core.recurrence.cron.grammar import needs_key
from timewright.core.recurrence.phrases import is_calendar_phrase, parse_calendar_phrase
from timewright.errors import InvalidInput, TimewrightError

TaggedFields = dict[str, Any]

_TEXT_TRIGGER = re.compile(r"\s*@?(every|after)\s+(\S.*?)\s*", re.IGNORECASE)
_NEED = re.compile(
    r"(?P<schedule>.+?)(?:\s*:\s*|\s+within\s+)(?P<within>[^\s:]+)"
    r"(?:\s+on\s+(?P<on>\w+))?(?:\s+wait\s+(?P<wait>\S+))?(?:\s+else\s+(?P<else>\w+))?"
)
# Longer text is not a trigger in words; the regular expression takes quadratic time.
_MAX_TRIGGER_TEXT_LENGTH = 256
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_TRIGGER_RULE = "exactly one of cron, every, rrule, after, once and manual, or a list of them"
_TRIGGER_FIX = "cron: '0 9 * * 1-5', or every: 15m"
_TARGET_RULE = "exactly one of call, http, shell, workflow, handoff, publish and note"
_TARGET_FIX = "http: POST https://example.com/hook, or call: reports.nightly"

_TRIGGER_KINDS = {
    "cron": "cron",
    "every": "every",
    "interval": "every",
    "after": "after",
    "once": "once",
    "one_shot": "once",
    "manual": "manual",
    "rrule": "rrule",
    "any_of": "any_of",
}
_TRIGGER_KEYS = {
    "cron": "cron",
    "cron_expr": "cron",
    "cron_expression": "cron",
    "baseline_cron": "cron",
    "expression": "cron",
    "every": "every",
    "interval": "every",
    "baseline_interval": "every",
    "after": "after",
    "once": "once",
    "at": "once",
    "manual": "manual",
    "rrule": "rrule",
    "triggers": "any_of",
    "any_of": "any_of",
}
# The field that a single value after the kind sets: `call: name`, `note: text`.
_TARGET_VALUE_FIELDS = {
    "call": "name",
    "http": "url",
    "shell": "command",
    "workflow": "workflow",
    "handoff": "payload",
    "publish": "name",
    "note": "text",
}
_TARGET_KIND_BY_FIELD = {
    "url": "http",
    "command": "shell",
    "argv": "shell",
    "handler": "call",
    "function": "call",
    "workflow_id": "workflow",
    "text": "note",
}
_BACKOFF_VALUE_FIELDS = {"exponential": "base", "ladder": "steps", "constant": "wait"}
_CADENCE_KINDS = {"none": "none", "steady": "none", "stretch": "stretch", "ladder": "ladder"}
_OUTCOMES = {
    "success": "succeeded",
    "succeeded": "succeeded",
    "completed": "succeeded",
    "failed": "failed",
    "error": "failed",
    "timeout": "timed_out",
    "timed_out": "timed_out",
    "lost": "lost",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "released": "released",
    "started": "started",
}
_OUTCOME_LABELS = frozenset({"useful", "noop", "skipped"})


class Milliseconds(Struct, frozen=True):
    """A value from a field whose name ends in `_ms`."""

    value: Any


def expand_trigger(raw: Any, path: str) -> Any:
    """Expand a trigger from text, a list, or a mapping whose fields show its kind."""
    if isinstance(raw, str):
        return _parse_trigger_text(raw, path)
    if isinstance(raw, list | tuple):
        return expand_trigger(raw[0], path) if len(raw) == 1 else {"kind": "any_of", "triggers": list(raw)}
    if not isinstance(raw, Mapping):
        raise input_error(path, raw, "is not a trigger", rule=_TRIGGER_RULE, fix=_TRIGGER_FIX)
    given = {key: value for key, value in raw.items() if value is not None}
    words = {snake_case(str(key)).removesuffix("_ms"): value for key, value in given.items()}
    if words.get("manual") is False:
        given = {key: value for key, value in given.items() if snake_case(str(key)) != "manual"}
    kind = _trigger_kind(words, path)
    if kind == "manual":
        given = {key: value for key, value in given.items() if snake_case(str(key)) != "manual"}
    phrase = words.get("every", words.get("interval"))
    if kind == "every" and isinstance(phrase, str) and is_calendar_phrase(phrase):
        return {"kind": "rrule", **_parse_phrase(phrase, path), **_without_fields(given, _TRIGGER_KEYS)}
    text = words.get("cron", words.get("expression"))
    if kind == "cron" and isinstance(text, str) and _match_trigger_text(text) is not None:
        return {**_parse_trigger_text(text, path), **_without_fields(given, _TRIGGER_KEYS)}
    if kind == "after" and not isinstance(words.get("after"), type(None) | timedelta):
        return {**_without_fields(given, _TRIGGER_KEYS), **_expand_after(words["after"], given), "kind": kind}
    once = words.get("once", words.get("at"))
    if kind == "once" and isinstance(once, int | float) and not isinstance(once, bool):
        # Desktop schedulers write a bare number: milliseconds since 1970.
        return {"kind": kind, **_without_fields(given, _TRIGGER_KEYS), "at": Milliseconds(once)}
    return {**given, "kind": kind}


def with_hash_key(trigger: Any, key: str) -> Any:
    """Return the trigger with a hash key for every cron expression that uses `H` and has none."""
    if not isinstance(trigger, Mapping):
        return trigger
    found = dict(trigger)
    if found.get("kind") == "any_of" and isinstance(found.get("triggers"), list):
        found["triggers"] = [with_hash_key(expand_trigger(one, "trigger"), key) for one in found["triggers"]]
    words = {snake_case(str(name)): value for name, value in found.items()}
    texts = [words[name] for name, kind in _TRIGGER_KEYS.items() if kind == "cron" and name in words]
    if texts and isinstance(texts[0], str) and not words.get("key") and needs_key(texts[0]):
        found["key"] = key
    return found


def expand_target(raw: Any, path: str) -> Any:
    """Expand a target from text, or a mapping with the kind as its key."""
    if isinstance(raw, str):
        return _expand_http(raw) if "://" in raw else {"kind": "call", "name": raw}
    if not isinstance(raw, Mapping):
        raise input_error(path, raw, "is not a target", rule=_TARGET_RULE, fix=_TARGET_FIX)
    if "kind" in raw:
        return {**raw, "kind": _normalize_kind(raw["kind"], path, rule=_TARGET_RULE, fix=_TARGET_FIX)}
    words = {snake_case(str(key)): value for key, value in raw.items() if value is not None}
    kinds = [word for word in words if word in _TARGET_VALUE_FIELDS]
    if len(kinds) == 1:
        rest = {key: value for key, value in raw.items() if snake_case(str(key)) != kinds[0]}
        return {**_expand_target_value(kinds[0], words[kinds[0]], path), **rest}
    implied = {_TARGET_KIND_BY_FIELD[word] for word in words if word in _TARGET_KIND_BY_FIELD}
    if kinds or len(implied) != 1:
        raise input_error(path, raw, "names no target, or several", rule=_TARGET_RULE, fix=_TARGET_FIX)
    return {**raw, "kind": implied.pop()}


def expand_need(raw: Any, path: str) -> Any:
    """Expand a need from text: `nightly-load:2h`, optionally followed by `on`, `wait` and `else`."""
    if not isinstance(raw, str):
        return raw
    found = _NEED.fullmatch(raw.strip()) if len(raw) <= 512 else None
    if found is None:
        rule = "the name of a schedule, and the maximum age of its last run"
        raise input_error(path, raw, "has no maximum age", rule=rule, fix=f"{raw.strip()[:60]}:2h")
    return {name: value for name, value in found.groupdict().items() if value is not None}


def expand_backoff(raw: Any, path: str, base: object = None) -> Any:
    """Expand a backoff; without a `kind` it keeps the kind of `base`."""
    fallback = _tag(base) or "exponential"
    if isinstance(raw, str) and normalize_choice(raw) in _BACKOFF_VALUE_FIELDS:
        return {"kind": normalize_choice(raw)}
    if isinstance(raw, str | timedelta | Milliseconds):
        return {"kind": "constant", "wait": raw}
    if isinstance(raw, list | tuple):
        return {"kind": "ladder", "steps": raw}
    if not isinstance(raw, Mapping):
        rule = "exponential, ladder or constant, a list of delays, or one delay"
        raise input_error(
            path, raw, "is not a backoff", rule=rule, fix="[30s, 1m, 5m], or {base: 1s, factor: 2}"
        )
    return _rename_delay(_with_kind(raw, path, value_fields=_BACKOFF_VALUE_FIELDS, fallback=fallback))


def expand_cadence(raw: Any, path: str, base: object = None) -> Any:
    """Expand a cadence."""
    if isinstance(raw, str):
        word = _CADENCE_KINDS.get(normalize_choice(raw))
        if word is not None:
            return {"kind": word}
    if isinstance(raw, list | tuple):
        return {"kind": "ladder", "steps": raw}
    if not isinstance(raw, Mapping):
        rule = "none, stretch or ladder, or a list of delays"
        raise input_error(path, raw, "is not a cadence", rule=rule, fix="stretch, or [30s, 1m, 5m]")
    value_fields = {"none": "none", "stretch": "doublings", "ladder": "steps"}
    return _with_kind(raw, path, value_fields=value_fields, fallback=_tag(base) or "none")


def expand_outcome(raw: Any, path: str) -> Any:
    """Expand an outcome from a status such as `SUCCESS`, or a mapping with one."""
    given = {"status": raw} if isinstance(raw, str) else raw
    rule = "succeeded, failed, timed_out, lost, cancelled or released"
    if not isinstance(given, Mapping):
        raise input_error(path, raw, "is not an outcome", rule=rule, fix="succeeded")
    words = {snake_case(str(key)): value for key, value in given.items()}
    word = next((words.pop(name) for name in ("kind", "status", "outcome") if name in words), None)
    plain = normalize_choice(word) if isinstance(word, str) else ""
    if plain in _OUTCOME_LABELS:
        return {**words, "kind": "succeeded", "outcome_label": plain}
    if plain not in _OUTCOMES:
        raise input_error(path, word, "is not an outcome", rule=rule, fix="succeeded")
    kind = _OUTCOMES[plain]
    return {"error": "failed", **words, "kind": kind} if kind == "failed" else {**words, "kind": kind}


def _match_trigger_text(text: str) -> re.Match[str] | None:
    return _TEXT_TRIGGER.fullmatch(text) if len(text) <= _MAX_TRIGGER_TEXT_LENGTH else None


def _parse_trigger_text(text: str, path: str) -> TaggedFields:
    found = _match_trigger_text(text)
    if found is None:
        return {"kind": "cron", "expression": text}
    word = found[1].lower()
    if word == "every" and is_calendar_phrase(found[2]):
        return {"kind": "rrule", **_parse_phrase(found[2], path)}
    return {"kind": word, **({"interval": found[2]} if word == "every" else _expand_after(found[2], {}))}


def _expand_after(value: Any, given: Mapping[str, Any]) -> TaggedFields:
    """Return the fields of an `after`: another schedule by name or as a mapping, or else a delay."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) and not _is_duration(value):
        return {"schedule": value}
    return {
        key: value for key, value in given.items() if snake_case(str(key)).removesuffix("_ms") == "after"
    } or {"delay": value}


def _is_duration(text: str) -> bool:
    """Whether a text is meant as a duration. A schedule name that begins with a digit needs the long form."""
    try:
        parse_duration(text)
    except TimewrightError:
        return text.strip()[:1] in "0123456789.+-"
    return True


def _parse_phrase(text: str, path: str) -> TaggedFields:
    try:
        return parse_calendar_phrase(text)
    except TimewrightError as error:
        raise_at_path(path, error)


def _trigger_kind(words: Mapping[str, Any], path: str) -> str:
    if "kind" in words:
        return _normalize_kind(
            words["kind"], path, rule=_TRIGGER_RULE, fix=_TRIGGER_FIX, known=_TRIGGER_KINDS
        )
    kinds = {
        kind
        for word, kind in _TRIGGER_KEYS.items()
        if word in words and (word, words[word]) != ("manual", False)
    }
    if len(kinds) == 1:
        return kinds.pop()
    found = ", ".join(sorted(kinds))
    why = f"names {len(kinds)} triggers: {found}" if kinds else "names no trigger"
    raise InvalidInput(
        f"{path} {why}", field=path, value=found or show_value(words), rule=_TRIGGER_RULE, fix=_TRIGGER_FIX
    )


def _normalize_kind(
    word: Any, path: str, *, rule: str, fix: str, known: Mapping[str, str] | None = None
) -> str:
    plain = normalize_choice(word) if isinstance(word, str) and len(word) <= 64 else ""
    kind = known.get(plain) if known is not None else plain
    if not kind:
        raise input_error(f"{path}.kind", word, "is not a kind", rule=rule, fix=fix)
    return kind


def _without_fields(given: Mapping[str, Any], words: Mapping[str, Any]) -> TaggedFields:
    return {
        key: value
        for key, value in given.items()
        if snake_case(str(key)).removesuffix("_ms") not in words and snake_case(str(key)) != "kind"
    }


def _expand_target_value(kind: str, value: Any, path: str) -> TaggedFields:
    if isinstance(value, Mapping):
        return {**value, "kind": kind}
    if kind == "http" and isinstance(value, str):
        return _expand_http(value)
    if kind == "handoff" and value is True:
        return {"kind": kind}
    if kind == "shell" and isinstance(value, str):
        fix = f"shell: {value.split()[:8]}"
        raise input_error(
            path, value, "is a shell command line", rule="a command is a list of arguments", fix=fix
        )
    return {"kind": kind, _TARGET_VALUE_FIELDS[kind]: value}


def _expand_http(text: str) -> TaggedFields:
    """Expand `POST https://…`, or a URL alone."""
    method, blank, url = text.strip().partition(" ")
    if blank and method.upper() in _METHODS:
        return {"kind": "http", "method": method.upper(), "url": url.strip()}
    return {"kind": "http", "url": text.strip()}


def _tag(base: object) -> str:
    return str(base.__struct_config__.tag) if isinstance(base, Struct) else ""


def _with_kind(
    raw: Mapping[str, Any], path: str, *, value_fields: Mapping[str, str], fallback: str
) -> TaggedFields:
    """Return a mapping with its kind: given, a key (`ladder: [...]`), or implied by a field of that kind."""
    if "kind" in raw:
        rule = f"one of {', '.join(value_fields)}"
        return {**raw, "kind": _normalize_kind(raw["kind"], path, rule=rule, fix=next(iter(value_fields)))}
    words = {snake_case(str(key)).removesuffix("_ms"): value for key, value in raw.items()}
    named = [word for word in words if word in value_fields]
    if len(named) == 1:
        rest = {key: value for key, value in raw.items() if snake_case(str(key)) != named[0]}
        value = words[named[0]]
        inner = value if isinstance(value, Mapping) else {value_fields[named[0]]: value}
        return {**inner, **rest, "kind": named[0]}
    implied = [kind for kind, field in value_fields.items() if field in words]
    if {"factor", "cap"} & set(words) and "exponential" in value_fields:
        implied = ["exponential"]
    return {**raw, "kind": implied[0] if implied else fallback}


def _rename_delay(tagged: TaggedFields) -> TaggedFields:
    """Rename `delay` to the field of the kind that holds the first delay."""
    for key in [key for key in tagged if snake_case(str(key)).removesuffix("_ms") == "delay"]:
        value = tagged.pop(key)
        delay = Milliseconds(value) if snake_case(str(key)).endswith("_ms") else value
        tagged["wait" if tagged["kind"] == "constant" else "base"] = delay
    return tagged
