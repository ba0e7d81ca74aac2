# ruff: noqa: INP001 - pages are no package; the folder is one only to import these two files
"""Writes docs/reference and docs/llms.txt from the lists in the code: `.venv/bin/python -m docs.generate`.

The pages are kept in the tree, and a test compares them with what this gives: a list and its page change
together.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as kinds
from msgspec.structs import FieldInfo, fields

from docs.spelling import (
    code,
    default,
    field_sentences,
    field_table,
    first,
    flat,
    kind,
    matrix,
    part,
    parts,
    slug,
    table,
    title,
)
from timewright import errors
from timewright.core import facts
from timewright.core.calendars import Calendar
from timewright.core.definitions import SECTIONS
from timewright.core.moments import MAX_DURATION
from timewright.core.policies.policies import QueuePolicy
from timewright.core.recurrence.phrases import list_rules, parse_moment, parse_recurrence
from timewright.core.recurrence.phrases.rules import INSTANT_RULES, RECURRENCE_RULES, SHARED_RULES
from timewright.core.run.leasing import WaitReason
from timewright.core.run.lifecycle import TRANSITIONS, RunEvent
from timewright.core.run.run import Reason, RunState
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import SCHEDULE_TRANSITIONS, Schedule, ScheduleEvent, ScheduleState
from timewright.core.workflow import WorkflowSpec
from timewright.interfaces.http.routing import routes_of
from timewright.ledger.records.namespaces import Namespace
from timewright.operations import Operation, OperationRequest, operations
from timewright.operations.access.permissions import AGENT_RULES, AgentRule
from timewright.operations.definitions.plan import build_file_schema
from timewright.settings import Settings

DOCS = Path(__file__).resolve().parent
SAID: dict[str, dict[str, Any]] = tomllib.loads((DOCS / "sentences.toml").read_text("utf-8"))
PHRASE_NOW = datetime(2026, 11, 17, 14, 30, tzinfo=UTC)
PHRASE_ZONE = "Europe/Berlin"
NOTE = "*Written by `docs/generate.py` from the code; a test keeps it true.*"


def pages() -> dict[str, str]:
    """Every generated file by its path below docs, with its text."""
    made = {
        "reference/errors.md": errors_page(),
        "reference/facts.md": facts_page(),
        "reference/files.md": files_page(),
        "reference/timewright.schema.json": json.dumps(build_file_schema(), indent=1) + "\n",
        "reference/operations.md": operations_page(),
        "reference/phrases.md": phrases_page(),
        "reference/schedule-fields.md": schedule_page(),
        "reference/settings.md": settings_page(),
        "reference/sources-and-states.md": states_page(),
    }
    return {**made, "llms.txt": llms_text(made)}


def errors_page() -> str:
    """The tree of errors, then each with its code and its sentence."""
    tree = list(_error_tree(errors.TimewrightError))
    drawn = "\n".join(f"{'    ' * depth}{error.__name__}" for depth, error in tree)
    rows = [(code(error.code), code(error.__name__), first(error)) for _, error in tree]
    return _page("errors", f"```text\n{drawn}\n```", table("code", "error", "means", rows=rows))


def facts_page() -> str:
    """Every fact with what happened and what it carries."""
    rows = [(code(name), first(fact), _carried(fact)) for name, fact in facts.FACT_KINDS.items()]
    return _page("facts", table("fact", "happened", "carries", rows=rows))


def files_page() -> str:
    """The form of a definition file, and the sections with their fields."""
    check(SECTIONS, SAID["file_section"], "file_section")
    rows = [(code(word), code(kind), SAID["file_section"][word]) for word, kind in SECTIONS.items()]
    return _page("files", "## The sections", table("section", "kind", "fields", rows=rows))


def states_page() -> str:
    """Sources of decisions, states with both transition tables, and reasons."""
    skipped, stopped = SAID["skipped_because"], SAID["stopped_because"]
    check(Reason, {**skipped, **stopped}, "skipped_because, stopped_because")
    return _page(
        "states",
        "## Sources of a decision\n\nA decision is an instant, its source, and the candidates that lost.",
        _meanings("source", Source),
        "## States of a run",
        _meanings("run_state", RunState),
        "### What moves a run\n\nA row is a state, a column what happens, a cell the state after it.\n"
        "Where a cell is empty, it is refused.",
        matrix(TRANSITIONS, RunState, RunEvent),
        _meanings("run_event", RunEvent),
        "## States of a schedule",
        _meanings("schedule_state", ScheduleState),
        "### What moves a schedule",
        matrix(SCHEDULE_TRANSITIONS, ScheduleState, ScheduleEvent),
        _meanings("schedule_event", ScheduleEvent),
        "## Why a run was skipped",
        table("reason", "means", rows=_rows(skipped)),
        "## Why a run stopped short of success",
        table("reason", "means", rows=_rows(stopped)),
        "## Why a run waits\n\nWhat the plan of a queue says about everyone it does not start.",
        _meanings("waits", WaitReason),
    )


def settings_page() -> str:
    """Every setting with its sentence, its default and its limit."""
    said = field_sentences(Settings)
    check((f.name for f in fields(Settings)), said, "settings.py")
    rows = [(code(f.name), said[f.name], default(f), _limit(f)) for f in fields(Settings)]
    return _page("settings", table("setting", "what it does", "default", "limit", rows=rows))


def schedule_page() -> str:
    """Every field of a schedule, and of every part it is made of."""
    said = SAID["schedule_field"]
    check((f.name for f in fields(Schedule)), said, "schedule_field")
    rows = [(code(f.encode_name), kind(f.type), default(f), said[f.name]) for f in fields(Schedule)]
    known: list[type[Struct]] = [*parts(Schedule), QueuePolicy, Calendar, *parts(Calendar), Namespace]
    steps: list[type[Struct]] = [WorkflowSpec, *parts(WorkflowSpec)]
    made_of = [*known, *(one for one in steps if one not in known)]
    overview = table("field", "type", "default", "says", rows=rows)
    return _page("schedule", overview, "## The parts", *map(part, made_of))


def phrases_page() -> str:
    """Every phrase rule with its meaning and how its examples are read; then refusals and the notation."""
    rules = list_rules()
    about = {group: [rule for rule in rules if rule.group == group] for group in ("recurrence", "instant")}
    read = {
        "recurrence": lambda text: parse_recurrence(text, zone=PHRASE_ZONE).read_as,
        "instant": lambda text: parse_moment(text, now=PHRASE_NOW, zone=PHRASE_ZONE).read_as,
    }
    tables = {
        group: table(
            "written",
            "read as",
            "rule",
            rows=[
                (code(example), read[group](example), rule.meaning if example == rule.examples[0] else "")
                for rule in found
                for example in rule.examples
            ],
        )
        for group, found in about.items()
    }
    refused = [
        (code(text), *_refusal(text, read[kind]))
        for kind, texts in SAID["phrases_refused"].items()
        for text in texts
    ]
    words = [
        (code(rule.name), ", ".join(map(code, rule.examples)), rule.meaning)
        for rule in rules
        if rule.group == "both"
    ]
    notation = "\n".join(
        f"{rule.name} = {rule.notation}" for rule in (*SHARED_RULES, *RECURRENCE_RULES, *INSTANT_RULES)
    )
    return _page(
        "phrases",
        "## Recurrences",
        tables["recurrence"],
        f"## Points in time\n\nRead on {PHRASE_NOW:%A %Y-%m-%d at %H:%M} UTC.",
        tables["instant"],
        "## Times, lengths and days in both",
        table("part", "written", "means", rows=words),
        "## What is refused",
        table("written", "why", "instead", rows=refused),
        "## The grammar\n\nThe first alternative that fits is taken. `{a|b}` is one of these words, `NAME` a "
        f'kind of token, `<name>` a rule, `!` means "not followed by".\n\n```text\n{notation}\n```',
    )


def _refusal(text: str, read: Callable[[str], str]) -> tuple[str, str]:
    try:
        read(text)
    except errors.InvalidInput as error:
        return error.message.partition(f"{text!a} ")[2], str(error.fix)
    raise LookupError(f"phrases_refused: {text!r} is read")


def operations_page() -> str:
    """Every operation: what it does, who may ask, what it takes, what it gives back."""
    listed = sorted(operations, key=lambda operation: operation.name)
    rows = [
        (f"[{code(o.name)}](#{slug(o.name)})", o.summary, code(o.scope), _writes(o), _agent_rule(o))
        for o in listed
    ]
    overview = table("operation", "does", "scope", "writes", "agents, with approval on", rows=rows)
    return _page("operations", overview, *map(_operation, listed))


def _agent_rule(operation: Operation[Any]) -> str:
    """What an agent may do where a person approves its work."""
    return str(AgentRule.ALLOWED if operation.read_only else AGENT_RULES[operation.name])


def llms_text(made: Mapping[str, str]) -> str:
    """The pages for those who read by program: a line each, with what the page lets you do."""
    kept = {p.relative_to(DOCS).as_posix(): p.read_text("utf-8") for p in DOCS.rglob("*.md")}
    told = sorted((name, text) for name, text in {**kept, **made}.items() if name.endswith(".md"))
    lines = [f"- [{_heading(text)}]({name}): {_opening(text)}" for name, text in told]
    return "\n".join(["# Timewright", "", f"> {SAID['page']['llms']['opening']}", "", *lines, ""])


def check(members: Iterable[str], said: Mapping[str, str], where: str) -> None:
    """Refuse a list and its sentences that are not about the same words."""
    odd = sorted({str(member) for member in members} ^ set(said))
    if odd:
        raise LookupError(f"{where}: a word and its sentence come together; look at {', '.join(odd)}")


def write() -> None:
    """Put every page in its place."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, "utf-8")


def _page(name: str, *sections: str) -> str:
    said = SAID["page"][name]
    return "\n\n".join([f"# {said['title']}", said["opening"], NOTE, said["text"].strip(), *sections]) + "\n"


def _meanings(section: str, members: type[StrEnum]) -> str:
    check(members, SAID[section], section)
    return table(section.rpartition("_")[2], "means", rows=_rows(SAID[section]))


def _rows(said: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(code(word), sentence) for word, sentence in said.items()]


def _operation(operation: Operation[Any]) -> str:
    asked = f"{operation.summary}{field_table(operation.request_type, link=False)}"
    answered = f"Gives `{operation.answer_type.__name__}`: {first(operation.answer_type)}"
    examples = [f"```json\n{msgspec.json.encode(one).decode()}\n```" for one in operation.examples if one]
    over_http = "Over HTTP: " + ", ".join(code(f"{p.method} {p.template}") for p in routes_of(operation))
    parts_of_it = [asked, *_beside(operation.request_type), answered, over_http, *examples]
    return "\n\n".join([f"## {operation.name}", *parts_of_it])


def _beside(request: type[OperationRequest]) -> list[str]:
    """Where the fields of a model may stand beside the request's own."""
    if request.flattens is None:
        return []
    model = request.flattens[1]
    place = "" if model is Schedule else f"#{title(model)}"
    return [f"Beside these it takes [the fields of a {title(model)}](schedule-fields.md{place})."]


def _writes(operation: Operation[Any]) -> str:
    return "no" if operation.read_only else "yes"


def _limit(field: FieldInfo) -> str:
    """What may be set: by its type, or by what the settings themselves say when they refuse."""
    info = kinds.type_info(field.type)
    if isinstance(info, kinds.StructType):
        return ", ".join(f"{f.encode_name}: {kind(f.type, link=False)}" for f in info.fields)
    if not isinstance(info, kinds.TimeDeltaType):
        return kind(info)
    too_long: dict[str, Any] = {field.name: MAX_DURATION}
    try:
        Settings(**too_long)
    except errors.InvalidInput as refusal:
        return str(refusal.rule)
    return "up to 100 years"


def _error_tree(error: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    yield depth, error
    for child in vars(errors).values():
        if inspect.isclass(child) and child.__bases__ == (error,):
            yield from _error_tree(child, depth + 1)


def _carried(fact: type[Struct]) -> str:
    return ", ".join(code(f.encode_name) for f in fields(fact) if f.name not in {"at", "namespace"})


def _heading(text: str) -> str:
    return text.splitlines()[0].removeprefix("# ")


def _opening(text: str) -> str:
    sentence = flat(text.split("\n\n")[1]).partition(". ")[0]
    return f"{sentence.removesuffix('.')}."


if __name__ == "__main__":
    from docs import tour

    tour.write()
    write()
