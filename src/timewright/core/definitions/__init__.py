"""Definitions in files: schedules, queues, limits, calendars and workflows as YAML that lives in git.

`apply` decodes the fields of each definition. A file is one or more YAML documents. A document has
sections (`schedules:`, `queues:`, …), or is one definition or a list of definitions, each with a `kind` (a
schedule if it has none).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import Struct

from timewright.core.input.input_errors import (
    check_name,
    input_error,
    missing_field,
    show_value,
    unknown_field,
)
from timewright.core.input.strict_yaml import InvalidYaml, YamlItem, dump_yaml, read_yaml_documents
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput, TimewrightError

Kind = Literal["calendar", "limit", "queue", "workflow", "schedule"]

# Each kind by its section. Also the order in which they are applied: later ones may name earlier ones.
SECTIONS: dict[str, Kind] = {
    "calendars": "calendar",
    "limits": "limit",
    "queues": "queue",
    "workflows": "workflow",
    "schedules": "schedule",
}
MAX_TEXT_LENGTH = 4 * 1024 * 1024
MAX_DEFINITIONS = 20_000
MAX_OWNER_LENGTH = 128

_HEADER = ("owner", "zone")
_FILE_RULE = "a mapping with sections, one definition, or a list of definitions"
_FILE_FIX = "schedules: [{name: nightly, cron: '30 3 * * *', http: 'POST https://example.com/hook'}]"


class Definition(Struct, frozen=True, kw_only=True):
    """One definition of a file: its kind, name and other fields, not decoded yet, and where it stands."""

    kind: Kind
    name: str
    fields: dict[str, Any]
    zone: str | None = None
    """The zone of the document, for a schedule that names none."""
    where: str = ""
    """The file, the line and the path: `ops.yaml line 12, schedules[2]`."""

    @property
    def draft(self) -> dict[str, Any]:
        """The fields with the name, as a request has them."""
        return {"name": self.name, **self.fields}


class DefinitionFile(Struct, frozen=True, kw_only=True):
    """The definitions of one file, and the owner they belong to."""

    name: str
    owner: str
    definitions: tuple[Definition, ...]


def read_definitions(text: str, *, name: str) -> DefinitionFile:
    """Read a file; raises one error with file, line, field, value, rule and fix. `-` is standard input."""
    if len(text) > MAX_TEXT_LENGTH:
        rule = f"at most {MAX_TEXT_LENGTH // 1024 // 1024} MiB a file"
        raise input_error(
            name, len(text), "characters are too many", rule=rule, fix="split it into several files"
        )
    reader = _FileReader(name)
    try:
        read_yaml_documents(text, reader.read_document)
    except InvalidYaml as error:
        rule = "YAML or JSON without anchors, aliases, tags and duplicate keys"
        raise InvalidInput(
            f"{name} line {error.line}: {error}",
            field=name,
            rule=rule,
            fix=error.fix or f"correct line {error.line}",
        ) from None
    if not reader.definitions and not reader.has_sections and reader.owner is None:
        raise input_error(name, text, "has no definitions", rule=_FILE_RULE, fix=_FILE_FIX)
    return DefinitionFile(
        name=name, owner=reader.owner or _owner_of(name), definitions=tuple(reader.definitions)
    )


def write_definitions(definitions: Iterable[Definition], *, owner: str = "", comment: str = "") -> str:
    """Return the text of a file with these definitions, by section and name; `read_definitions` reads it."""
    by_kind: dict[Kind, list[Definition]] = {kind: [] for kind in SECTIONS.values()}
    for one in definitions:
        by_kind[one.kind].append(one)
    body: dict[str, Any] = {"owner": owner} if owner else {}
    for section, kind in SECTIONS.items():
        if by_kind[kind]:
            body[section] = [one.draft for one in sorted(by_kind[kind], key=lambda one: one.name)]
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + (dump_yaml(body) if body else "schedules: []\n")


class _FileReader:
    """Collects the definitions of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: str | None = None
        self.definitions: list[Definition] = []
        self.has_sections = False
        self._zone: str | None = None
        self._places: dict[tuple[Kind, str], str] = {}

    def read_document(self, document: YamlItem) -> None:
        """Add the definitions of one document; `owner` and `zone` also hold for the documents after it."""
        if document.is_list:
            self._add_all(document.items(), "", None)
        elif not document.is_mapping:
            with self._located(document):
                if document.value is not None:
                    raise input_error(
                        "document", document.value, "is not a file", rule=_FILE_RULE, fix=_FILE_FIX
                    )
        elif {"kind", "name"} & {key for key, _ in document.pairs()}:
            self._add(document, "", None)
        else:
            self._read_sections(document)

    def _read_sections(self, document: YamlItem) -> None:
        sections: dict[Any, YamlItem] = {}
        for word, part in document.pairs():
            with self._located(part):
                if word not in SECTIONS and word not in _HEADER:
                    raise unknown_field("", str(word), [*_HEADER, *SECTIONS])
                if word in sections:
                    rule = "each section once a document"
                    raise input_error(word, word, "is given twice", rule=rule, fix="join them")
            sections[word] = part
        with self._located(document):
            self._read_header({word: sections[word].value for word in _HEADER if word in sections})
        # Also without definitions: the last one of a section may have been deleted.
        self.has_sections |= bool(sections.keys() & SECTIONS)
        for word, kind in SECTIONS.items():
            section = sections.get(word)
            if section is None or (not section.is_list and section.value is None):
                continue
            with self._located(section):
                if not section.is_list:
                    fix = f"{word}: [{{name: …}}]"
                    rule = "a list of definitions"
                    raise input_error(word, section.value, "is not a list", rule=rule, fix=fix)
            self._add_all(section.items(), word, kind)

    def _read_header(self, header: Mapping[str, Any]) -> None:
        if "zone" in header:
            self._zone = check_zone(header["zone"], field="zone")
        if "owner" not in header:
            return
        owner = check_name(header["owner"], field="owner", max_length=MAX_OWNER_LENGTH)
        if self.owner is not None and owner != self.owner:
            rule = "one owner a file"
            raise input_error(
                "owner", owner, f"is not {self.owner}", rule=rule, fix="one of them, or two files"
            )
        self.owner = owner

    def _add_all(self, items: Iterator[YamlItem], section: str, kind: Kind | None) -> None:
        for number, item in enumerate(items):
            self._add(item, f"{section}[{number}]", kind)

    def _add(self, item: YamlItem, path: str, kind: Kind | None) -> None:
        with self._located(item, path):
            if not item.is_mapping:
                raise input_error(
                    path,
                    item.value,
                    "is not a definition",
                    rule="a mapping with a name",
                    fix="{name: nightly}",
                )
            fields = {str(key): value for key, value in item.value.items()}
            if kind is None:
                kind = _kind_of(fields.pop("kind", "schedule"))
            if fields.get("name") is None:
                raise missing_field(
                    "name", rule="a definition is known by its name", fix="name: nightly-report"
                )
            name = check_name(fields.pop("name"))
            where = self._place(item, path)
            if (kind, name) in self._places:
                rule, first = "one definition a name", self._places[kind, name]
                raise input_error(
                    "name", name, f"is given twice, first in {first}", rule=rule, fix="remove one of them"
                )
            if len(self.definitions) >= MAX_DEFINITIONS:
                rule = f"at most {MAX_DEFINITIONS} definitions a file"
                raise input_error(
                    self.name,
                    len(self.definitions),
                    "definitions are not all",
                    rule=rule,
                    fix="several files",
                )
        self._places[kind, name] = where
        self.definitions.append(Definition(kind=kind, name=name, fields=fields, zone=self._zone, where=where))

    def _place(self, item: YamlItem, path: str) -> str:
        return f"{self.name} line {item.line}" + (f", {path}" if path else "")

    @contextmanager
    def _located(self, item: YamlItem, path: str = "") -> Iterator[None]:
        """Add the place in the file to the errors that are raised inside."""
        try:
            yield
        except TimewrightError as error:
            raise locate_error(error, self._place(item, path)) from None


def locate_error(error: TimewrightError, where: str) -> TimewrightError:
    """Return the error with its place in a file before its message."""
    if not where or error.message.startswith(where):
        return error
    return type(error)(
        f"{where}: {error.message}", field=error.field, value=error.value, rule=error.rule, fix=error.fix
    )


def _kind_of(word: Any) -> Kind:
    found = SECTIONS.get(f"{word}s") if isinstance(word, str) else None
    if found is None:
        rule = f"one of {', '.join(SECTIONS.values())}"
        raise input_error("kind", word, "is not a kind", rule=rule, fix="kind: schedule")
    return found


def _owner_of(name: str) -> str:
    """Return the owner of a file that names none: its file name without folder and ending."""
    stem = re.split(r"[/\\]", name)[-1].partition(".")[0].strip()
    if not stem or name == "-":
        fix = "owner: payments, at the top of the file"
        raise missing_field("owner", rule=f"{show_value(name)} has no file name to use as its owner", fix=fix)
    return check_name(stem, field="owner", max_length=MAX_OWNER_LENGTH)
