"""Reads `on.schedule` of GitHub Actions; the workflow stays on GitHub and is dispatched from here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from timewright.core.imports.cron_text import add_cron
from timewright.core.imports.report import (
    Entry,
    Imported,
    ImportOptions,
    clean_name,
    collect,
    read_documents,
)
from timewright.core.input.input_errors import input_error

_RULE = "a workflow file with on.schedule"
_STAYS = ("run-name", "permissions", "env", "defaults", "concurrency", "jobs")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def import_github_actions(files: Mapping[str, str], options: ImportOptions) -> Imported:
    """Import workflow files; the schedule starts the workflow by a `workflow_dispatch` request."""
    if not _REPOSITORY.fullmatch(options.repository):
        rule = "owner/name of the repository: a workflow file does not name it"
        fix = "--repository acme/shop"
        raise input_error(
            "repository", options.repository, "is missing or not owner/name", rule=rule, fix=fix
        )
    entries: list[Entry] = []
    for file, text in files.items():
        documents = read_documents(file, text, rule=_RULE)
        if len(documents) != 1 or not isinstance(documents[0][1], Mapping):
            raise input_error(
                file, text, "is not a workflow", rule=_RULE, fix="one file of .github/workflows"
            )
        entries += _workflow(file, documents[0][1], options)
    return collect(entries)


def _workflow(file: str, document: Mapping[Any, Any], options: ImportOptions) -> list[Entry]:
    base = file.rpartition("/")[2]
    # `on` is the text "on" here; other YAML readers make it true.
    events = document.get("on", document.get(True))
    crons = events.get("schedule") if isinstance(events, Mapping) else None
    if not isinstance(crons, list) or not crons:
        raise input_error(
            f"{file} on.schedule",
            crons,
            "is missing",
            rule=_RULE,
            fix="on: {schedule: [{cron: '0 3 * * *'}]}",
        )
    title = str(document.get("name") or base.rpartition(".")[0] or base)
    entries = []
    for number, row in enumerate(crons):
        entry = Entry(clean_name(title, fallback="workflow"), place=f"{file} on.schedule[{number}]")
        _add_time(entry, row if isinstance(row, Mapping) else {"cron": row})
        _add_target(entry, base, document, options)
        entries.append(entry)
    _report_file(entries[0], document, events, base)
    return entries


def _add_time(entry: Entry, row: Mapping[str, Any]) -> None:
    text, zone = str(row.get("cron", "")), str(row.get("timezone") or "UTC")
    if problem := add_cron(entry, "on.schedule.cron", text, zone=zone, and_days=False):
        raise input_error(
            f"{entry.place}.cron", text, problem, rule="a cron expression of five fields", fix="0 3 * * *"
        )
    if "timezone" in row:
        entry.add_kept("on.schedule.timezone", zone)
    else:
        entry.add_translated("(zone)", "UTC", "GitHub reads times without a time zone as UTC")
    entry.report_unknown_fields(row, ("cron", "timezone"), prefix="on.schedule.")
    entry.definition |= {"catch_up": "none", "overlap": "allow", "retry": {"max_attempts": 1}}
    entry.add_translated(
        "(behaviour)", "catch_up: none", "GitHub delays or drops starts under load; Timewright does not"
    )


def _add_target(entry: Entry, base: str, document: Mapping[Any, Any], options: ImportOptions) -> None:
    url = f"https://api.github.com/repos/{options.repository}/actions/workflows/{base}/dispatches"
    headers = {"Accept": "application/vnd.github+json", "Authorization": "Bearer secret://github-token"}
    target = {"kind": "http", "method": "POST", "url": url, "headers": headers, "body": {"ref": "main"}}
    note = "a workflow_dispatch request on branch main; store its token: timewright secret set github-token"
    entry.add_translated("(start)", base, note, target=target)
    if document.get("name"):
        entry.add_kept("name", document["name"])


def _report_file(entry: Entry, document: Mapping[Any, Any], events: Mapping[Any, Any], base: str) -> None:
    if "workflow_dispatch" not in events:
        note = f"add `workflow_dispatch:` under `on:` of {base}, or GitHub refuses the request"
        entry.report_lost("on.workflow_dispatch", "not set", note)
    note = f"remove it from {base} once the schedule is applied, or both start the workflow"
    entry.add_translated("on.schedule", len(events["schedule"]), note)
    for word, value in events.items():
        if word not in ("schedule", "workflow_dispatch"):
            entry.add_kept(f"on.{word}", value, "stays in the workflow on GitHub")
    for word in _STAYS:
        if word in document:
            entry.add_kept(word, document[word], "stays in the workflow on GitHub")
    known = (*_STAYS, "name", "on", True)
    entry.report_unknown_fields(
        {str(word): value for word, value in document.items() if word not in known}, ()
    )
