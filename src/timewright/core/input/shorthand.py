"""Expands short forms of triggers, targets, backoffs and outcomes into a mapping with a `kind`.

This module only finds out which kind is meant; the fields are decoded and checked afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from timewright.core.input.aliases import (
    TARGET_VALUE_FIELDS,
    TRIGGER_WORDS,
    normalize_choice,
    snake_case,
)
from timewright.core.input.input_errors import input_error, raise_at_path, show_value
from timewright.core.input.instant_text import ZONE_FIELDS
from timewright.core.moments import parse_duration
from timewright.core.recurrence.cron.grammar import is_valid, needs_key
from timewright.core.target import find_shell_operator, shell_command
from timewright.core.zones import name_of_zone
from timewright.errors import InvalidCron, InvalidInput, InvalidZone, TimewrightError

if TYPE_CHECKING:
    # The grammar is loaded when a phrase is read, so that `import timewright` stays light.
    from timewright.core.recurrence.phrases import Recurrence

TaggedFields = dict[str, Any]

_TEXT_AFTER = re.compile(r"after\s+(\S.*)", re.IGNORECASE)
_MAX_TRIGGER_TEXT_LENGTH = 256  # longer text is not a trigger in words
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_TRIGGER_RULE = "exactly one of cron, every, rrule, after, once and manual, or a list of them"
_TIME_OF_DAY_FIX = "every: day at 9am; a start is start_at: tomorrow 9am"
_TRIGGER_FIX = "cron: '0 9 * * 1-5', or every: 15m"
_TARGET_RULE = "exactly one of call, http, shell, workflow, handoff, publish and note"
_TARGET_FIX = "http: POST https://example.com/hook, or call: reports.nightly"

_TRIGGER_KEYS = {word: kind for word, (kind, _) in TRIGGER_WORDS.items()}
# The words after `kind:`.
_TRIGGER_KINDS = {**{kind: kind for kind in _TRIGGER_KEYS.values()}, "interval": "every", "one_shot": "once"}
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


class Milliseconds(Struct, frozen=True):
    """A value from a field whose name ends in `_ms`."""

    value: Any


def _word(key: Any) -> str:
    """Return a key as the canonical word for a field, also without the ending of a field in milliseconds."""
    return snake_case(str(key)).removesuffix("_ms")


def _without(given: Mapping[str, Any], words: Container[str]) -> TaggedFields:
    """Return the fields with other words."""
    return {key: value for key, value in given.items() if _word(key) not in words}


def expand_trigger(raw: Any, path: str, readings: list[Recurrence] | None = None) -> Any:
    """Expand a trigger from text, a list, or a mapping whose fields show its kind.

    How each phrase was read is added to `readings`. Without it, a phrase that names a calendar is refused,
    because only a schedule has calendars.
    """
    if isinstance(raw, str):
        is_manual = normalize_choice(raw) == "manual"
        return {"kind": "manual"} if is_manual else _expand_text(raw, path, {}, readings)
    if isinstance(raw, list | tuple):
        if len(raw) == 1:
            return expand_trigger(raw[0], path, readings)
        return {"kind": "any_of", "triggers": _expand_list(raw, path, readings)}
    if not isinstance(raw, Mapping):
        raise input_error(path, raw, "is not a trigger", rule=_TRIGGER_RULE, fix=_TRIGGER_FIX)
    given = {key: value for key, value in raw.items() if value is not None}
    words = {_word(key): value for key, value in given.items()}
    kind = _trigger_kind(words, path)
    if kind == "manual" or words.get("manual") is False:
        given = _without(given, ("manual",))
    if kind == "any_of":
        for key, value in given.items():
            if isinstance(value, list | tuple) and _word(key) in ("triggers", "any_of"):
                given[key] = _expand_list(value, path, readings)
        return {**given, "kind": kind}
    phrase = _phrase_of(kind, words)
    rest = _without(given, {"kind", *_TRIGGER_KEYS})
    if phrase is not None:
        return _expand_text(phrase, path, rest, readings, key=kind)
    if kind == "after" and not isinstance(words.get("after"), type(None) | timedelta):
        return {**rest, **_expand_after(words["after"], given), "kind": kind}
    once = words.get("once", words.get("at"))
    if kind == "once" and isinstance(once, int | float) and not isinstance(once, bool):
        # Desktop schedulers write a bare number: milliseconds since 1970.
        return {"kind": kind, **rest, "at": Milliseconds(once)}
    return {**given, "kind": kind}


def names_trigger(raw: Any) -> bool:
    """Whether a mapping has a field that shows the kind of a trigger."""
    return isinstance(raw, Mapping) and any(
        _word(key) in _TRIGGER_KEYS for key, value in raw.items() if value is not None
    )


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
        return _expand_http(raw, path) if "://" in raw else {"kind": "call", "name": raw}
    if not isinstance(raw, Mapping):
        raise input_error(path, raw, "is not a target", rule=_TARGET_RULE, fix=_TARGET_FIX)
    if "kind" in raw:
        return {**raw, "kind": _normalize_kind(raw["kind"], path, rule=_TARGET_RULE, fix=_TARGET_FIX)}
    words = {snake_case(str(key)): value for key, value in raw.items() if value is not None}
    kinds = [word for word in words if word in TARGET_VALUE_FIELDS]
    if len(kinds) == 1:
        return {**_expand_target_value(kinds[0], words[kinds[0]], path), **_without(raw, kinds)}
    implied = {_TARGET_KIND_BY_FIELD[word] for word in words if word in _TARGET_KIND_BY_FIELD}
    if kinds:
        named, fix = " and ".join(kinds), f"leave out {kinds[0]} or {kinds[1]}"
        raise InvalidInput(f"{path} has two kinds: {named}", field=path, rule=_TARGET_RULE, fix=fix)
    if len(implied) != 1:
        raise input_error(path, raw, "does not say what to run", rule=_TARGET_RULE, fix=_TARGET_FIX)
    return {**raw, "kind": implied.pop()}


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


def _phrase_of(kind: str, words: Mapping[str, Any]) -> str | None:
    """Return the text of an `every` or a `cron` that is a phrase, not a duration or a cron expression."""
    text = next(
        (words[word] for word, found in _TRIGGER_KEYS.items() if found == kind and word in words), None
    )
    if not isinstance(text, str) or kind not in ("every", "cron"):
        return None
    plain = _is_duration(text) if kind == "every" else is_valid(text, "any")
    return None if plain else text


def _expand_text(
    text: str, path: str, rest: TaggedFields, readings: list[Recurrence] | None, *, key: str = ""
) -> TaggedFields:
    is_short = len(text) <= _MAX_TRIGGER_TEXT_LENGTH
    after = _TEXT_AFTER.fullmatch(text.strip()) if is_short and key != "every" else None
    if after is not None:
        return {"kind": "after", **_expand_after(after[1], {}), **rest}
    return _expand_phrase(text, path, rest, readings, key=key)


def _expand_list(raw: Sequence[Any], path: str, readings: list[Recurrence] | None) -> list[Any]:
    """Expand the texts of a list; one that needs several triggers adds all of them."""
    parts: list[Any] = []
    for number, one in enumerate(raw):
        is_short = isinstance(one, str | Mapping)
        found = expand_trigger(one, f"{path}.triggers[{number}]", readings) if is_short else one
        inner = found.get("triggers") if is_short and found["kind"] == "any_of" else None
        parts += inner if isinstance(inner, list) else [found]
    return parts


def _expand_phrase(
    text: str, path: str, rest: TaggedFields, readings: list[Recurrence] | None, *, key: str
) -> TaggedFields:
    """Return the triggers of a phrase, each with the other fields of the mapping (`zone`, `dst`)."""
    from timewright.core.recurrence.phrases import parse_recurrence

    zone = next((name_of_zone(value) for name, value in rest.items() if _word(name) in ZONE_FIELDS), None)
    field = f"{path}.{key}" if key else path
    try:
        found = parse_recurrence(
            text, zone=zone if isinstance(zone, str) else None, field=field, after_every=key == "every"
        )
    except (InvalidCron, InvalidZone) as error:
        raise_at_path(path, error)
    if readings is not None:
        readings.append(found)
    elif found.excluded or found.only:
        rule = "a calendar belongs to a schedule, not to its trigger"
        raise input_error(field, text, "names a calendar", rule=rule, fix="calendar: except holidays")
    if isinstance(zone, str) and any(spec.zone not in (None, zone) for spec in found.triggers):
        rule = "one zone, in the phrase or beside it"
        raise input_error(field, text, f"has another zone than {zone}", rule=rule, fix="remove one of them")
    # The zone is in the fields of each trigger that has one.
    others = _without(rest, ZONE_FIELDS)
    parts = [{**spec.fields(), **(others if spec.zone else rest)} for spec in found.triggers]
    return parts[0] if len(parts) == 1 else {"kind": "any_of", "triggers": parts}


def _expand_after(value: Any, given: Mapping[str, Any]) -> TaggedFields:
    """Return the fields of an `after`: another schedule by name or as a mapping, or else a delay."""
    if isinstance(value, Mapping):
        return dict(value)
    # A schedule name that begins with a digit needs the long form.
    if isinstance(value, str) and not (_is_duration(value) or value.strip()[:1] in "0123456789.+-"):
        return {"schedule": value}
    return {key: length for key, length in given.items() if _word(key) == "after"} or {"delay": value}


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except TimewrightError:
        return False
    return True


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
    fix = _TIME_OF_DAY_FIX if kinds == {"every", "once"} else _TRIGGER_FIX
    raise InvalidInput(
        f"{path} {why}", field=path, value=found or show_value(words), rule=_TRIGGER_RULE, fix=fix
    )


def _normalize_kind(
    word: Any, path: str, *, rule: str, fix: str, known: Mapping[str, str] | None = None
) -> str:
    plain = normalize_choice(word) if isinstance(word, str) and len(word) <= 64 else ""
    kind = known.get(plain) if known is not None else plain
    if not kind:
        raise input_error(f"{path}.kind", word, "is not a kind", rule=rule, fix=fix)
    return kind


def _expand_target_value(kind: str, value: Any, path: str) -> TaggedFields:
    if isinstance(value, Mapping):
        return {**value, "kind": kind}
    if kind == "handoff" and value is True:
        return {"kind": kind}
    if kind == "http" and isinstance(value, str):
        return _expand_http(value, f"{path}.url")
    if kind == "shell" and isinstance(value, str):
        words = value.split()
        command = shell_command(words) if find_shell_operator(words) else words
        fix = f"shell: {json.dumps(command, ensure_ascii=False)}"
        rule = "a command is a list of arguments"
        raise input_error(f"{path}.shell", value, "is a shell command line", rule=rule, fix=fix)
    if kind == "call" and callable(value):
        name = getattr(value, "__name__", "name")
        rule = "call is the name of a function that the program has registered"
        fix = f"app.schedule(...)({name}), or register it and write its name: call={name!r}"
        raise input_error(path, name, "is a function", rule=rule, fix=fix)
    return {"kind": kind, TARGET_VALUE_FIELDS[kind]: value}


def _expand_http(text: str, path: str) -> TaggedFields:
    """Expand `POST https://…`, or a URL alone."""
    method, blank, url = text.strip().partition(" ")
    if blank and method.upper() in _METHODS:
        return {"kind": "http", "method": method.upper(), "url": url.strip()}
    if blank and "://" not in method and "://" in url:
        rule, fix = f"one of {', '.join(_METHODS)}", f"POST {url}"
        raise input_error(path, method, "is not an HTTP method", rule=rule, fix=fix)
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
    words = {_word(key): value for key, value in raw.items()}
    named = [word for word in words if word in value_fields]
    if len(named) == 1:
        value = words[named[0]]
        inner = value if isinstance(value, Mapping) else {value_fields[named[0]]: value}
        return {**inner, **_without(raw, named), "kind": named[0]}
    implied = [kind for kind, field in value_fields.items() if field in words]
    if {"factor", "cap"} & set(words) and "exponential" in value_fields:
        implied = ["exponential"]
    return {**raw, "kind": implied[0] if implied else fallback}


def _rename_delay(tagged: TaggedFields) -> TaggedFields:
    """Rename `delay` to the field of the kind that holds the first delay."""
    for key in [key for key in tagged if _word(key) == "delay"]:
        value = tagged.pop(key)
        delay = Milliseconds(value) if snake_case(str(key)).endswith("_ms") else value
        tagged["wait" if tagged["kind"] == "constant" else "base"] = delay
    return tagged
