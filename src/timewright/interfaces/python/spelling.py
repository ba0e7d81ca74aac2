"""Error texts in the words of Python: keyword arguments and methods instead of paths and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

import msgspec

from timewright.errors import NotFound, TimewrightError
from timewright.interfaces.python.resources import PLURALS
from timewright.interfaces.python.signatures import signature_of
from timewright.operations import operations
from timewright.operations.registry import subject_of

# How errors name fields and suggest remedies; the command line spells them as options (see output.errors).
# The inner fields of these have keyword arguments of their own: `trigger.every` is `every`.
FLATTENED = ("trigger", "target", "retry", "lease")
# Names of inner fields, where the keyword argument has another one.
_KEYWORDS = {"interval": "every", "once": "at", "url": "http", "text": "note", "command": "shell"}
ALTERNATIVE = re.compile(r"(, or |; or )")
PAIR = re.compile(r"(\w+): (\S.*)")
# The fields in a suggested operation: `schedule update a with adaptive: true and overlap: queue`.
WITH_FIELD = re.compile(r" (?:with|and) (\w+): (\S+)")
_VALUE = re.compile(r"[\w./:@+-]+")


def spell_as_keywords(error: TimewrightError, operation: str) -> None:
    """Let the text of an error name keyword arguments and methods; its data stay as at every interface."""
    known = _keywords_of(operation)
    path = error.field or ""
    keyword = _keyword_of(path, known)
    message = error.message
    if path and message.startswith(f"{path} "):
        message = keyword + message.removeprefix(path)
    fix = spell_alternatives(error.fix or "", lambda one: _spell_fix(one, keyword, known))
    error.spelled = (message, error.display_field if ": " in path else keyword, fix)


def spell_alternatives(fix: str, spell: Callable[[str], str]) -> str:
    """Return a text with each of its alternatives spelled: `every: 15m, or cron: '0 9 * * *'`."""
    return "".join(one if ALTERNATIVE.fullmatch(one) else spell(one) for one in ALTERNATIVE.split(fix))


def _keywords_of(operation: str) -> frozenset[str]:
    try:
        return frozenset(signature_of(operation).parameters)
    except NotFound:
        return frozenset()


def _keyword_of(path: str, known: frozenset[str]) -> str:
    head, *inner = path.split(".")
    if head not in FLATTENED:
        return path
    names = [_KEYWORDS.get(name, name) for name in inner]
    return next((name for name in names if name in known), path)


def _spell_fix(text: str, keyword: str, known: frozenset[str]) -> str:
    """Return one suggestion: `every: 15m` as `every="15m"`, a value with its keyword, a command as a call."""
    found = max(
        (one.name for one in operations if text == one.name or text.startswith(f"{one.name} ")),
        key=len,
        default="",
    )
    if found:
        return _spell_call(found, WITH_FIELD.sub(r" --\1 \2", text).removeprefix(found).split(" "))
    pair = PAIR.fullmatch(text)
    if pair and pair[1] in known:
        return f"{pair[1]}={_literal(pair[2])}"
    return f"{keyword}={_literal(text)}" if keyword in known and _VALUE.fullmatch(text) else text


def _spell_call(name: str, words: Sequence[str]) -> str:
    """Return `schedule update a --adaptive` as `app.schedules.update("a", adaptive=True)`, prose as it is."""
    words = [word for word in words if word]
    arguments: list[str] = []
    if words and not words[0].startswith("--") and subject_of(operations[name]) is not None:
        arguments.append(_literal(shlex.split(words.pop(0))[0], text_only=True))
    while words and words[0].startswith("--"):
        option = words.pop(0)[2:].replace("-", "_")
        value = words.pop(0) if words and not words[0].startswith("--") else ""
        arguments.append(f"{option}={_literal(value) if value else True}")
    noun, _, verb = name.partition(" ")
    method = f"{PLURALS[noun]}.{re.sub('[ -]', '_', verb)}" if verb and noun in PLURALS else ""
    called = f"app.{method}(" if method else f'app.call("{name}"{", " if arguments else ""}'
    return " ".join([f"{called}{', '.join(arguments)})", *words])


def _literal(text: str, *, text_only: bool = False) -> str:
    """Return a value as Python writes it."""
    bare = text.strip("'\"")
    if not text_only:
        if bare in ("true", "false", "null"):
            return {"true": "True", "false": "False", "null": "None"}[bare]
        if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?|[\[{].*", text):
            return text
    return msgspec.json.encode(bare).decode()
