"""Short ways to write a trigger, a target or a backoff, turned into the one long way.

The long way is a mapping with a `kind`. Nothing is checked here but which kind is meant; the fields are
read afterwards like all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from timewright.core.cron.grammar import needs_key
from timewright.core.moments import parse_duration
from timewright.core.recurrence.spoken import is_spoken, spoken_rule
from timewright.core.refusals import refuse_from, refused, shown
from timewright.core.spellings import plain_word, snake
from timewright.errors import InvalidInput, TimewrightError

Tagged = dict[str, Any]

_SPOKEN = re.compile(r"\s*@?(every|after)\s+(\S.*?)\s*", re.IGNORECASE)
_NEED = re.compile(
    r"(?P<schedule>.+?)(?:\s*:\s*|\s+within\s+)(?P<within>[^\s:]+)"
    r"(?:\s+on\s+(?P<on>\w+))?(?:\s+wait\s+(?P<wait>\S+))?(?:\s+else\s+(?P<else>\w+))?"
)
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
# The field that holds what is written right after the kind: `call: name`, `note: text`.
_TARGET_MAIN = {
    "call": "name",
    "http": "url",
    "shell": "command",
    "workflow": "workflow",
    "handoff": "payload",
    "publish": "name",
    "note": "text",
}
_TARGET_SIGNS = {
    "url": "http",
    "command": "shell",
    "argv": "shell",
    "handler": "call",
    "function": "call",
    "workflow_id": "workflow",
    "text": "note",
}
_BACKOFF_MAIN = {"exponential": "base", "ladder": "steps", "constant": "wait"}
_CADENCE_WORDS = {"none": "none", "steady": "none", "stretch": "stretch", "ladder": "ladder"}
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
_HANDLER_WORDS = frozenset({"useful", "noop", "skipped"})


class Milliseconds(Struct, frozen=True):
    """A number from a field whose name ends in `_ms`."""

    value: Any


def trigger_shape(raw: Any, path: str) -> Any:
    """A trigger in the long way: from text, a list, or a mapping that shows its kind by its fields."""
    if isinstance(raw, str):
        return _spoken_trigger(raw, path)
    if isinstance(raw, list | tuple):
        return trigger_shape(raw[0], path) if len(raw) == 1 else {"kind": "any_of", "triggers": list(raw)}
    if not isinstance(raw, Mapping):
        raise refused(path, raw, "is not a trigger", rule=_TRIGGER_RULE, fix=_TRIGGER_FIX)
    given = {key: value for key, value in raw.items() if value is not None}
    words = {snake(str(key)).removesuffix("_ms"): value for key, value in given.items()}
    if words.get("manual") is False:
        given = {key: value for key, value in given.items() if snake(str(key)) != "manual"}
    kind = _trigger_kind(words, path)
    if kind == "manual":
        given = {key: value for key, value in given.items() if snake(str(key)) != "manual"}
    spoken = words.get("every", words.get("interval"))
    if kind == "every" and isinstance(spoken, str) and is_spoken(spoken):
        return {"kind": "rrule", **_of_calendar(spoken, path), **_without(given, _TRIGGER_KEYS)}
    text = words.get("cron", words.get("expression"))
    if kind == "cron" and isinstance(text, str) and _SPOKEN.fullmatch(text):
        return {**_spoken_trigger(text, path), **_without(given, _TRIGGER_KEYS)}
    if kind == "after" and not isinstance(words.get("after"), type(None) | timedelta):
        return {**_without(given, _TRIGGER_KEYS), **_after(words["after"], given), "kind": kind}
    once = words.get("once", words.get("at"))
    if kind == "once" and isinstance(once, int | float) and not isinstance(once, bool):
        # A bare number is what desktop schedulers write: milliseconds since 1970.
        return {"kind": kind, **_without(given, _TRIGGER_KEYS), "at": Milliseconds(once)}
    return {**given, "kind": kind}


def with_key(trigger: Any, key: str) -> Any:
    """The trigger with a key for every expression that uses `H` and has none."""
    if not isinstance(trigger, Mapping):
        return trigger
    found = dict(trigger)
    if found.get("kind") == "any_of" and isinstance(found.get("triggers"), list):
        found["triggers"] = [with_key(trigger_shape(one, "trigger"), key) for one in found["triggers"]]
    words = {snake(str(name)): value for name, value in found.items()}
    texts = [words[name] for name, kind in _TRIGGER_KEYS.items() if kind == "cron" and name in words]
    if texts and isinstance(texts[0], str) and not words.get("key") and needs_key(texts[0]):
        found["key"] = key
    return found


def target_shape(raw: Any, path: str) -> Any:
    """A target in the long way: from text, or a mapping with the kind as its key."""
    if isinstance(raw, str):
        return _http(raw) if "://" in raw else {"kind": "call", "name": raw}
    if not isinstance(raw, Mapping):
        raise refused(path, raw, "is not a target", rule=_TARGET_RULE, fix=_TARGET_FIX)
    if "kind" in raw:
        return {**raw, "kind": _word(raw["kind"], path, rule=_TARGET_RULE, fix=_TARGET_FIX)}
    words = {snake(str(key)): value for key, value in raw.items() if value is not None}
    kinds = [word for word in words if word in _TARGET_MAIN]
    if len(kinds) == 1:
        rest = {key: value for key, value in raw.items() if snake(str(key)) != kinds[0]}
        return {**_opened(kinds[0], words[kinds[0]], path), **rest}
    signs = {_TARGET_SIGNS[word] for word in words if word in _TARGET_SIGNS}
    if kinds or len(signs) != 1:
        raise refused(path, raw, "does not say what to do", rule=_TARGET_RULE, fix=_TARGET_FIX)
    return {**raw, "kind": signs.pop()}


def need_shape(raw: Any, path: str) -> Any:
    """A need in the long way: from `nightly-load:2h`, with `on`, `wait` and `else` behind it as words."""
    if not isinstance(raw, str):
        return raw
    found = _NEED.fullmatch(raw.strip()) if len(raw) <= 512 else None
    if found is None:
        rule = "the name of a schedule, and how old its end may be"
        raise refused(path, raw, "does not say how fresh", rule=rule, fix=f"{raw.strip()[:60]}:2h")
    return {name: value for name, value in found.groupdict().items() if value is not None}


def backoff_shape(raw: Any, path: str, base: object = None) -> Any:
    """A backoff in the long way; what names no kind keeps the kind it changes."""
    fallback = _tag(base) or "exponential"
    if isinstance(raw, str) and plain_word(raw) in _BACKOFF_MAIN:
        return {"kind": plain_word(raw)}
    if isinstance(raw, str | timedelta | Milliseconds):
        return {"kind": "constant", "wait": raw}
    if isinstance(raw, list | tuple):
        return {"kind": "ladder", "steps": raw}
    if not isinstance(raw, Mapping):
        rule = "exponential, ladder or constant, a list of waits, or one wait"
        raise refused(path, raw, "is not a backoff", rule=rule, fix="[30s, 1m, 5m], or {base: 1s, factor: 2}")
    return _delayed(_kinded(raw, path, main=_BACKOFF_MAIN, fallback=fallback))


def cadence_shape(raw: Any, path: str, base: object = None) -> Any:
    """A cadence in the long way."""
    if isinstance(raw, str):
        word = _CADENCE_WORDS.get(plain_word(raw))
        if word is not None:
            return {"kind": word}
    if isinstance(raw, list | tuple):
        return {"kind": "ladder", "steps": raw}
    if not isinstance(raw, Mapping):
        rule = "none, stretch or ladder, or a list of waits"
        raise refused(path, raw, "is not a cadence", rule=rule, fix="stretch, or [30s, 1m, 5m]")
    main = {"none": "none", "stretch": "doublings", "ladder": "steps"}
    return _kinded(raw, path, main=main, fallback=_tag(base) or "none")


def outcome_shape(raw: Any, path: str) -> Any:
    """An outcome in the long way: from a word such as `SUCCESS`, or a mapping with a status."""
    given = {"status": raw} if isinstance(raw, str) else raw
    rule = "succeeded, failed, timed_out, lost, cancelled or released"
    if not isinstance(given, Mapping):
        raise refused(path, raw, "is not an outcome", rule=rule, fix="succeeded")
    words = {snake(str(key)): value for key, value in given.items()}
    word = next((words.pop(name) for name in ("kind", "status", "outcome") if name in words), None)
    plain = plain_word(word) if isinstance(word, str) else ""
    if plain in _HANDLER_WORDS:
        return {**words, "kind": "succeeded", "word": plain}
    if plain not in _OUTCOMES:
        raise refused(path, word, "is not an outcome", rule=rule, fix="succeeded")
    kind = _OUTCOMES[plain]
    return {"error": "failed", **words, "kind": kind} if kind == "failed" else {**words, "kind": kind}


def _spoken_trigger(text: str, path: str) -> Tagged:
    found = _SPOKEN.fullmatch(text) if len(text) <= 256 else None
    if found is None:
        return {"kind": "cron", "expression": text}
    word = found[1].lower()
    if word == "every" and is_spoken(found[2]):
        return {"kind": "rrule", **_of_calendar(found[2], path)}
    return {"kind": word, **({"interval": found[2]} if word == "every" else _after(found[2], {}))}


def _after(value: Any, given: Mapping[str, Any]) -> Tagged:
    """What an `after` speaks of: another schedule by name or as a mapping, or else a delay of its own."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) and not _is_duration(value):
        return {"schedule": value}
    return {key: value for key, value in given.items() if snake(str(key)).removesuffix("_ms") == "after"} or {
        "delay": value
    }


def _is_duration(text: str) -> bool:
    """Whether a text was meant as a length of time; a name that begins with a digit is written in full."""
    try:
        parse_duration(text)
    except TimewrightError:
        return text.strip()[:1] in "0123456789.+-"
    return True


def _of_calendar(text: str, path: str) -> Tagged:
    try:
        return spoken_rule(text)
    except TimewrightError as error:
        refuse_from(path, error)


def _trigger_kind(words: Mapping[str, Any], path: str) -> str:
    if "kind" in words:
        return _word(words["kind"], path, rule=_TRIGGER_RULE, fix=_TRIGGER_FIX, known=_TRIGGER_KINDS)
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
        f"{path} {why}", field=path, value=found or shown(words), rule=_TRIGGER_RULE, fix=_TRIGGER_FIX
    )


def _word(word: Any, path: str, *, rule: str, fix: str, known: Mapping[str, str] | None = None) -> str:
    plain = plain_word(word) if isinstance(word, str) and len(word) <= 64 else ""
    kind = known.get(plain) if known is not None else plain
    if not kind:
        raise refused(f"{path}.kind", word, "is not a kind", rule=rule, fix=fix)
    return kind


def _without(given: Mapping[str, Any], words: Mapping[str, Any]) -> Tagged:
    return {
        key: value
        for key, value in given.items()
        if snake(str(key)).removesuffix("_ms") not in words and snake(str(key)) != "kind"
    }


def _opened(kind: str, value: Any, path: str) -> Tagged:
    if isinstance(value, Mapping):
        return {**value, "kind": kind}
    if kind == "http" and isinstance(value, str):
        return _http(value)
    if kind == "handoff" and value is True:
        return {"kind": kind}
    if kind == "shell" and isinstance(value, str):
        fix = f"shell: {value.split()[:8]}"
        raise refused(path, value, "is a line for a shell", rule="a command is a list of arguments", fix=fix)
    return {"kind": kind, _TARGET_MAIN[kind]: value}


def _http(text: str) -> Tagged:
    """`POST https://…`, or a URL alone."""
    method, blank, url = text.strip().partition(" ")
    if blank and method.upper() in _METHODS:
        return {"kind": "http", "method": method.upper(), "url": url.strip()}
    return {"kind": "http", "url": text.strip()}


def _tag(base: object) -> str:
    return str(base.__struct_config__.tag) if isinstance(base, Struct) else ""


def _kinded(raw: Mapping[str, Any], path: str, *, main: Mapping[str, str], fallback: str) -> Tagged:
    """A mapping with its kind: said, or a key (`ladder: [...]`), or shown by a field only that kind has."""
    if "kind" in raw:
        rule = f"one of {', '.join(main)}"
        return {**raw, "kind": _word(raw["kind"], path, rule=rule, fix=next(iter(main)))}
    words = {snake(str(key)).removesuffix("_ms"): value for key, value in raw.items()}
    named = [word for word in words if word in main]
    if len(named) == 1:
        rest = {key: value for key, value in raw.items() if snake(str(key)) != named[0]}
        value = words[named[0]]
        inner = value if isinstance(value, Mapping) else {main[named[0]]: value}
        return {**inner, **rest, "kind": named[0]}
    shows = [kind for kind, field in main.items() if field in words]
    if {"factor", "cap"} & set(words) and "exponential" in main:
        shows = ["exponential"]
    return {**raw, "kind": shows[0] if shows else fallback}


def _delayed(tagged: Tagged) -> Tagged:
    """`delay` is the first wait, whatever the kind calls it."""
    for key in [key for key in tagged if snake(str(key)).removesuffix("_ms") == "delay"]:
        value = tagged.pop(key)
        delay = Milliseconds(value) if snake(str(key)).endswith("_ms") else value
        tagged["wait" if tagged["kind"] == "constant" else "base"] = delay
    return tagged
