"""The result of an import: definitions for a file, and what happened to every field of the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.core.input.input_errors import input_error, show_value
from timewright.core.input.strict_yaml import InvalidYaml, YamlItem, read_yaml_documents
from timewright.core.moments import format_duration
from timewright.core.target import may_set_variable

MAX_ENTRIES = 10_000
MAX_NAME_CHARS = 100
ENTRY_LOST = "the entry is not imported"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


class Fidelity(StrEnum):
    """What became of a field: taken over, expressed in another way, or not taken over."""

    KEPT = "kept"
    TRANSLATED = "translated"
    LOST = "lost"


class FieldReport(Struct, frozen=True, kw_only=True):
    """One field of the source: where it is, its value, its status, and how or why."""

    entry: str
    field: str
    value: str = ""
    status: Fidelity
    note: str = ""
    place: str = ""


class Imported(Struct, frozen=True, kw_only=True):
    """The schedules of a source as requests of `schedule put`, and a report for each of its fields."""

    schedules: tuple[dict[str, Any], ...]
    fields: tuple[FieldReport, ...]

    def count(self, status: Fidelity) -> int:
        """Return how many fields had this status."""
        return sum(one.status is status for one in self.fields)


class ImportOptions(Struct, frozen=True, kw_only=True):
    """What a source does not say itself: its time zone, and the repository of a GitHub workflow.

    `zone` is the one that the user names, else that of the machine: cron and systemd use it. Celery uses UTC.
    """

    zone: str = "UTC"
    is_zone_given: bool = False
    repository: str = ""


class Entry:
    """Collects the definition of one schedule, and the reports of its fields."""

    def __init__(self, name: str, *, place: str = "") -> None:
        self.name = name
        self.place = place
        self.definition: dict[str, Any] = {}
        self.reports: list[FieldReport] = []
        self.is_lost = False
        self.is_report_only = False

    def add_kept(self, field: str, value: Any, note: str = "", /, **definition: Any) -> None:
        """Set fields of the definition, and report the source's field as taken over."""
        self._add(Fidelity.KEPT, field, value, note, definition)

    def add_translated(self, field: str, value: Any, note: str, /, **definition: Any) -> None:
        """Set fields of the definition, and report the source's field as expressed in another way."""
        self._add(Fidelity.TRANSLATED, field, value, note, definition)

    def report_lost(self, field: str, value: Any, note: str) -> None:
        """Report a field that is not taken over; the entry is imported without it."""
        self._add(Fidelity.LOST, field, value, note, {})

    def drop_entry(self, field: str, value: Any, note: str) -> None:
        """Leave the whole entry out of the file, because this field cannot be expressed, and report why."""
        self.report_lost(field, value, f"{note}; {ENTRY_LOST}")
        self.is_lost = True

    def report_missing_setting(self, field: str, note: str) -> None:
        """Report a setting that the source does not have; the entry only reports."""
        self.is_report_only = True
        self.report_lost(field, "not set", note)

    def report_pause(self, field: str, value: bool) -> None:
        """Report that the entry is paused in the source; it is imported, and not paused here."""
        fix = f"pause it after `apply`: timewright schedule pause {self.name}"
        self.report_lost(field, value, f"a pause is not part of a definition; {fix}")

    def report_unknown_fields(
        self, given: Mapping[str, Any], known: Iterable[str], *, prefix: str = ""
    ) -> None:
        """Report the fields that this importer does not know."""
        for name in given:
            if name not in set(known):
                self.report_lost(f"{prefix}{name}", given[name], "not a field that this importer knows")

    def _add(
        self, status: Fidelity, field: str, value: Any, note: str, definition: Mapping[str, Any]
    ) -> None:
        self.definition |= definition
        shown = value if isinstance(value, str) and len(value) <= 64 else show_value(value)
        self.reports.append(
            FieldReport(entry=self.name, field=field, value=shown, status=status, note=note, place=self.place)
        )


def collect(entries: Iterable[Entry]) -> Imported:
    """Return the import of several entries; names that occur twice get a number.

    All fields of an entry that is not imported are lost, also those that could be expressed.
    """
    given = list(entries)
    used: set[str] = set()
    # Imported entries first: one that is lost must not take the name of one that is not.
    ranked = sorted(given, key=lambda one: one.is_lost)
    names = {id(one): one.name if one.is_report_only else _unique(one.name, used) for one in ranked}
    schedules: list[dict[str, Any]] = []
    fields: list[FieldReport] = []
    for entry in given:
        reports = [replace(one, entry=names[id(entry)]) for one in entry.reports]
        fields += not_imported(reports) if entry.is_lost else reports
        if not (entry.is_lost or entry.is_report_only):
            schedules.append({"name": names[id(entry)], **entry.definition})
    if len(schedules) > MAX_ENTRIES:
        raise input_error(
            "file",
            len(schedules),
            "is too many entries",
            rule=f"at most {MAX_ENTRIES}",
            fix="split the file",
        )
    return Imported(schedules=tuple(schedules), fields=tuple(fields))


def not_imported(reports: Iterable[FieldReport]) -> list[FieldReport]:
    """Return the reports of an entry that is not imported: each field is lost, whatever it was."""
    return [
        one if one.status is Fidelity.LOST else replace(one, status=Fidelity.LOST, note=ENTRY_LOST)
        for one in reports
        if not one.field.startswith("(") or one.status is Fidelity.LOST
    ]


def read_documents(file: str, text: str, *, rule: str) -> list[tuple[str, Any]]:
    """Return the YAML or JSON documents of a file that are not empty, each with its place."""
    found: list[tuple[str, Any]] = []

    def add(document: YamlItem) -> None:
        if document.value is not None:
            found.append((f"{file}:{document.line}", document.value))

    try:
        read_yaml_documents(text, add)
    except InvalidYaml as error:
        place = f"{file}:{error.line}"
        fix = error.fix or f"correct line {error.line}"
        raise input_error(place, text, str(error), rule=rule, fix=fix) from None
    return found


def clean_name(text: str, *, fallback: str) -> str:
    """Return a schedule name from any text: lower case, with `-` for everything unusual."""
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-.")[:MAX_NAME_CHARS].strip("-.") or fallback


def shell_target(command: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return a shell target; variables that a target may not set, such as PATH, are set by `env`."""
    env = {name: value for name, value in variables.items() if may_set_variable(name)}
    rest = [f"{name}={value}" for name, value in variables.items() if name not in env]
    words = ["/usr/bin/env", *rest, *command] if rest else list(command)
    return {"kind": "shell", "command": words, **({"env": env} if env else {})}


def duration_text(seconds: float) -> str:
    """Return a number of seconds as a duration: `1h30m`."""
    return format_duration(timedelta(seconds=seconds))


def _unique(name: str, used: set[str]) -> str:
    found, number = name, 2
    while found in used:
        found, number = f"{name}-{number}", number + 1
    used.add(found)
    return found
