"""Every parser of outside input takes linear steps, or refuses input beyond a small size.

PARSERS lists every parser. A function whose name begins with one of PREFIXES must be on it, or in EXEMPT with
the reason; so a new parser fails this test until its steps are counted.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.project import MODULES, SOURCE
from tests.promises.parser_steps import MAX_STEPS, CountedText, count_steps
from timewright.core.input.decode import decode_schedule
from timewright.core.moments import EPOCH
from timewright.core.policies.policies import QueuePolicy
from timewright.core.workflow import FormField
from timewright.errors import InvalidInput
from timewright.interfaces.cli.fields import OptionField
from timewright.interfaces.http.routing import routes_of
from timewright.operations import operations
from timewright.operations.calendars.sources import read_ical
from timewright.operations.workflows.waits import PendingAnswer
from timewright.settings import Settings

# Ten times the input may take at most this many times the steps: linear, with some tolerance for allocation.
MAX_GROWTH = 12
SMALL = 200
# A parser that refuses long input may take this many steps at most, whatever the input: some milliseconds.
MAX_BOUNDED_STEPS = 500_000

PREFIXES = ("parse", "read", "decode", "split", "expand")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Text(NamedTuple):
    """A parser of text: examples, which the test inflates, and the length beyond which it refuses.

    `call` takes the parser and returns a function of one text. `shapes` return a text with n units.
    """

    examples: tuple[str, ...]
    call: Callable[..., Any] | None = None
    limit: int = 0
    shapes: tuple[Callable[[int], str], ...] = ()
    units: int = 50
    max_inflations: int = 48
    max_steps: int = MAX_BOUNDED_STEPS


class Data(NamedTuple):
    """A parser of decoded JSON: functions that return data of size n."""

    shapes: tuple[Callable[[int], Any], ...]
    call: Callable[..., Any] | None = None
    units: int = 50


def key(number: int) -> CountedText:
    return CountedText(f"key-{number}")


def wide(count: int) -> dict[str, Any]:
    return {key(number): CountedText(f"value {number}") for number in range(count)}


def wide_below(*path: str) -> Callable[[int], Any]:
    """Return a shape with many keys below a path of fields."""
    return lambda count: functools.reduce(lambda inner, name: {name: inner}, reversed(path), wide(count))


def long_key(count: int) -> dict[str, Any]:
    """Half of the size is one key, the other half the values below it."""
    return {"k" * (count * 4): [{"a": number} for number in range(count)]}


def schedule(**fields: Any) -> dict[str, Any]:
    return {"name": "report", "every": "1h", "note": "hello", **fields}


def workflow(count: int) -> dict[str, Any]:
    steps = [
        {
            "name": CountedText(f"step-{number}"),
            "target": {"note": "hello"},
            "needs": [CountedText(f"step-{number - 1}")] if number else [],
            "when": f"steps.step-{number - 1}.state == 'succeeded'" if number else None,
        }
        for number in range(count)
    ]
    return {"name": "chain", "steps": steps}


def queue_entries(count: int) -> dict[str, Any]:
    rows = [{"id": key(number), "enqueuedAt": "2026-11-16T12:00:00Z"} for number in range(count)]
    return {"schemaVersion": 1, "entries": rows}


def repeat(unit: Any) -> Callable[[int], Any]:
    return lambda count: [unit] * count


def event(*lines: str, day: str = "20261225") -> str:
    return "\r\n".join(("BEGIN:VEVENT", "UID:1", f"DTSTART;VALUE=DATE:{day}", *lines, "END:VEVENT", ""))


def ical(*events: str) -> str:
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\n{''.join(events)}END:VCALENDAR\r\n"


def ical_days(count: int) -> list[str]:
    return [f"{EPOCH + timedelta(days=20_500 + number):%Y%m%d}" for number in range(count)]


def with_duplicate_key(count: int) -> str:
    """Return an object with `count` keys, the last two of them equal."""
    names = [*(f"key-{number}" for number in range(count - 1)), f"key-{count - 2}"]
    return "{" + ", ".join(f'"{name}": 0' for name in names) + "}"


def option(kind: Any) -> Any:
    field = OptionField(key="metadata", flag="--metadata", kind=kind, section="")
    return lambda read: lambda text: read(field, (text,) if field.repeatable else text)


def type_of(into: Any) -> Any:
    return msgspec.inspect.type_info(into)


SCHEDULE = decode_schedule(schedule(), id="schedule-1", now=NOW)
LITERAL: Any = next(
    field.type for field in type_of(Settings).fields if isinstance(field.type, msgspec.inspect.LiteralType)
)
QUESTION = PendingAnswer(
    run="run-1",
    workflow="ask",
    step="check",
    workflow_run="run-2",
    question="Send it?",
    to="ops",
    form={"approved": FormField(type="boolean"), "amount": FormField(type="number"), "note": FormField()},
    payload={},
    since=NOW,
    until=None,
)
ROUTE = next(routes_of(operations["run list"]))
JSON_TEXTS = (
    '{"name": "report", "tags": ["a", "b"], "n": -1.5e3, "t": "\\u00e9\\n", "ok": [true, null, {}]}',
    '{"metadata": {"a": {"b": [[1]]}}}',
)
YAML_TEXTS = ("name: report\ntags: [a, b]\nnested:\n  - a: 'x'\n  - \"y\"\n",)
CRONS = ("*/5 9-17 1,15,L JAN-DEC MON#2,FRIL", "0 0 9 LW * ? 2026-2030", "H(0-29)/10 H * * *", "@daily")
RULES = ("FREQ=MONTHLY;INTERVAL=2;BYDAY=MO,-1FR;BYMONTHDAY=1,15;BYSETPOS=1;UNTIL=20261231T180000Z",)
PHRASES = (
    "every 2nd and last tuesday of january and july at 9:30am and 17:00 Europe/Berlin",
    "every 15 minutes between 09:00 and 17:00 on weekdays except holidays",
    "cron 0 9 * * 1-5 (at 09:00), Europe/Berlin",
)
MOMENTS = ("tomorrow at 09:00", "in 2 hours and 30 minutes", "2026-12-25T09:00+01:00", "next friday at noon")
DURATIONS = ("1h30m", "1.5h", "PT1H30M", "5 minutes 30 seconds", "7d")
INSTANTS = ("2026-03-10T12:00:00.123456+01:00", "2026-03-10T12:00:00Z")
URLS = (
    "https://api.example.com:8443/a/b/%20c?x=1&y=2",
    "http://[2001:db8::1]/",
    "https://bücher.example/",
    "https://user:pass@example.com/",
)
CONDITIONS = (
    'steps.fetch.result.count > 0 and not (input.region in [\'eu\', "us"]) or item[0]["a"] == -1.5',
)

# Every parser of outside input, by module below timewright and name.
PARSERS: dict[str, Text | Data] = {
    # JSON, YAML and files
    "core.input.strict_json:read_json": Text(JSON_TEXTS, shapes=(with_duplicate_key,), max_inflations=40),
    "core.input.strict_yaml:read_yaml": Text(
        YAML_TEXTS + JSON_TEXTS, shapes=(with_duplicate_key,), max_inflations=40
    ),
    "core.input.strict_yaml:read_yaml_documents": Text(
        ("name: report\ntags: [a, b]\n", "a: 1\n---\nb: [x, {y: z}]\n"),
        lambda read: lambda text: read(text, lambda item: item.value),
        max_inflations=40,
    ),
    "core.definitions:read_definitions": Text(
        ("schedules:\n  - {name: report, every: 1h, note: hello}\n",),
        lambda read: lambda text: read(text, name="ops.yaml"),
        shapes=(
            lambda n: (
                "schedules:\n" + "".join(f"  - {{name: s{i}, every: 1h, note: hi}}\n" for i in range(n))
            ),
        ),
        max_inflations=20,
    ),
    "core.imports.report:read_documents": Text(
        ("kind: CronJob\nspec: {schedule: '0 9 * * *'}\n---\nkind: Job\n",),
        lambda read: lambda text: read("jobs.yaml", text, rule="YAML"),
        max_inflations=40,
    ),
    "core.alerts.channels:parse_sender": Text(
        (
            "command:notify 'a b' --now",
            "mailto:ops@example.com?host=mail:25&from=a",
            "https://example.com/hook",
        ),
        max_inflations=20,
    ),
    "interfaces.mcp.toolsets:parse_toolsets": Text(("core,operate, plan",)),
    "interfaces.http.request:read_body": Text(
        JSON_TEXTS,
        lambda read: lambda text: read(text.encode(), "application/json"),
        shapes=(with_duplicate_key,),
        max_inflations=40,
    ),
    "interfaces.cli.data_input:read_data": Text(
        JSON_TEXTS + YAML_TEXTS,
        lambda read: lambda text: read(text, field="payload"),
        shapes=(with_duplicate_key,),
        max_inflations=40,
    ),
    "interfaces.cli.data_input:read_data_or_text": Text(
        (*JSON_TEXTS, "plain words"), lambda read: lambda text: read(text, field="payload"), max_inflations=20
    ),
    "interfaces.cli.data_input:parse_number": Text(("-12.5e-10",), limit=40),
    "interfaces.cli.options:read_field": Text(("team=finance", '{"team": "a"}'), option("pairs")),
    "ledger.queues.policies:parse_policy_file": Text(
        (
            '{"mail": {"max_running": 5}, "reports": {"max_attempts": 1}}',
            '{"mail": {"max_running": "x"}}',
        ),
        lambda read: lambda text: read(text, path="queues.json").check(),
        shapes=(with_duplicate_key,),
    ),
    "ledger.queues.policies:decode_policies": Data((lambda n: {key(i): {} for i in range(n)}, wide)),
    "planner.api_dialects:parse_tool_call": Text(('{"tool": "x", "arguments": {"a": [1, 2]}}', "{{{{")),
    "planner.response_metrics:parse_fields": Text(
        ('{"cpu": 1.5, "a": {"b": "x"}, "ok": true, "t": "', '"a": 1, ')
    ),
    "planner.tool_session:decode_arguments": Data(
        (
            lambda n: {f"key-{i}": i for i in range(n)},
            lambda n: {"reasoning": "a", "actions_taken": ["a"] * n},
        ),
        lambda decode: lambda data: decode("submit_analysis", data),
    ),
    "access.keyring:parse_secret_keys": Text(
        ("a" * 43 + "\n", "0f" * 32 + "\n# comment\n"),
        lambda parse: lambda text: parse(text, source="the file"),
    ),
    # Decoded JSON
    "core.input.decode:decode": Data(
        (wide, long_key), lambda decode: lambda data: decode(data, dict[str, Any], field="metadata")
    ),
    "core.input.decode:decode_schedule": Data(
        (
            wide,
            lambda n: schedule(metadata=wide(n)),
            lambda n: schedule(metadata={"a": long_key(n)}),
            lambda n: schedule(tags=[key(i) for i in range(n)]),
            lambda n: {"name": "a", "note": "b", "triggers": [f"{i % 60} * * * *" for i in range(n)]},
            lambda n: {"name": "a", "note": "b", "cron": "every a" + " " * n + "\nb"},
            lambda n: {"name": "a", "note": "b", "every": "week on mon" + " " * n + "\nb"},
            lambda n: {"name": "a", "every": "1h", "http": "POST https://example.com/" + "a" * n},
            lambda n: {"name": "a", "every": "1h", "shell": "echo " + "a " * n},
            lambda n: schedule(calendar="except " + "a" + " " * n + "\nb"),
            lambda n: schedule(needs=["load:" + " " * n + "2h"]),
            lambda n: schedule(needs=[f"load-{i}:2h" for i in range(n)]),
        ),
        lambda decode: lambda data: decode(data, id="schedule-1", now=NOW),
    ),
    "core.input.decode:decode_changes": Data(
        (
            wide,
            lambda n: {"metadata": wide(n)},
            lambda n: {"trigger": wide(n)},
            lambda n: {"target": wide(n)},
        ),
        lambda decode: lambda data: decode(data, of=SCHEDULE, now=NOW),
    ),
    "core.input.decode:decode_policy": Data((wide, wide_below("backoff"))),
    "core.input.queue_file:decode_queue_file": Data((queue_entries, wide)),
    "core.workflow.checks:decode_workflow": Data(
        (
            workflow,
            wide,
            lambda n: {**workflow(1), "input": wide(n)},
            lambda n: {**workflow(1), "input": long_key(n)},
            lambda n: {"name": "a", "steps": [{"name": "a", "target": {"call": "b"}, "input": long_key(n)}]},
        )
    ),
    "operations.request_parsing:parse_request": Data(
        (wide, lambda n: schedule(metadata=wide(n))),
        lambda parse: lambda data: parse(data, operations["schedule create"].request_type),
    ),
    # Fields of decoded JSON
    "core.input.struct_decoder:read_value": Data(
        (wide, wide_below("backoff")), lambda read: lambda data: read(data, type_of(QueuePolicy), "policy")
    ),
    "core.input.struct_decoder:read_struct": Data(
        (wide,), lambda read: lambda data: read(data, QueuePolicy, "")
    ),
    "core.input.scalars:read_json_value": Data(
        (wide, long_key, repeat("a"), repeat(1)), lambda read: lambda data: read(data, "metadata")
    ),
    "core.input.scalars:read_text": Text(
        ("text",), lambda read: lambda text: read(text, type_of(str), "name")
    ),
    "core.input.scalars:read_bool": Text(("true",), lambda read: lambda text: read(text, "f")),
    "core.input.scalars:read_null": Text(("null",), lambda read: lambda text: read(text, "f")),
    "core.input.scalars:read_number": Text(("12",), lambda read: lambda text: read(text, type_of(int), "f")),
    "core.input.scalars:read_date": Text(
        ("2026-12-25",), lambda read: lambda text: read(text, "f"), limit=10
    ),
    "core.input.scalars:read_duration": Text(DURATIONS, lambda read: lambda text: read(text, "f"), limit=64),
    "core.input.scalars:read_instant": Text(INSTANTS, lambda read: lambda text: read(text, "f"), limit=40),
    "core.input.scalars:read_choice": Text(
        ("skip", "Queue"),
        lambda read: lambda text: read(text, type_of(import_module("timewright").Overlap), "f"),
        limit=64,
    ),
    "core.input.scalars:read_literal": Text(
        ("any", "leader"), lambda read: lambda text: read(text, LITERAL, "f")
    ),
    "core.input.shorthand:expand_trigger": Data(
        (
            wide,
            lambda n: "every a" + " " * n + "\nb",
            lambda n: {"cron": "every a" + " " * n + "\nb"},
            lambda n: {"every": "2 weeks on mon" + " " * n + "\nb"},
            lambda n: {"after": "a" + " " * n},
        ),
        lambda expand: lambda data: expand(data, "trigger"),
    ),
    "core.input.shorthand:expand_target": Data(
        (wide, lambda n: "POST https://" + "a" * n), lambda expand: lambda data: expand(data, "target")
    ),
    "core.input.struct_decoder:expand_need": Text(
        ("nightly load : 2h on success wait 1h else skip", "load within 2h"),
        lambda expand: lambda text: expand(text, "needs"),
        limit=512,
    ),
    "core.input.shorthand:expand_backoff": Data(
        (wide, repeat("1s")), lambda expand: lambda data: expand(data, "f")
    ),
    "core.input.shorthand:expand_cadence": Data(
        (wide, repeat("1s")), lambda expand: lambda data: expand(data, "f")
    ),
    "core.input.struct_decoder:expand_outcome": Data(
        (wide, lambda n: "a" * n), lambda expand: lambda data: expand(data, "f")
    ),
    # Times
    "core.moments:parse_instant": Text(INSTANTS, limit=40),
    "core.moments:parse_duration": Text(DURATIONS, limit=64),
    "core.recurrence.cron.grammar:parse": Text(
        CRONS, lambda parse: lambda text: parse(text, "key"), limit=256
    ),
    "core.recurrence.rrule.grammar:parse_rule": Text(RULES, limit=1_000),
    "core.recurrence.phrases:parse_recurrence": Text(
        PHRASES, limit=256, max_inflations=10, max_steps=2_000_000
    ),
    "core.recurrence.phrases:parse_moment": Text(
        MOMENTS,
        lambda parse: lambda text: parse(text, now=NOW, zone="UTC"),
        limit=256,
        max_inflations=10,
        max_steps=2_000_000,
    ),
    "core.input.instant_text:read_instant_text": Text(
        MOMENTS,
        lambda read: lambda text: read(text, now=NOW, zone="UTC", field="at"),
        limit=256,
        max_inflations=10,
        max_steps=2_000_000,
    ),
    "interfaces.cli.output.times:parse_instant_or_none": Text(INSTANTS),
    "interfaces.cli.output.times:parse_duration_or_none": Text(DURATIONS, limit=64),
    "operations.calendars.sources:parse_years": Text(
        ("2026 - 2028",), lambda parse: lambda text: parse(text, now=NOW)
    ),
    "targets.http.response:parse_retry_after": Text(
        ("120", "Wed, 21 Oct 2026 07:28:00 GMT"), lambda parse: lambda text: parse(text, now=NOW), limit=64
    ),
    # Calendars
    "core.calendars:parse_rule_phrase": Text(
        ("except holidays, quiet days",), lambda parse: lambda text: parse(text, "calendar"), limit=1_024
    ),
    "core.calendars:parse_hours_phrase": Text(
        ("mon-fri, sun 09:00 - 17:00",), lambda parse: lambda text: parse(text, "hours"), limit=200
    ),
    "operations.calendars.sources:read_ical": Text(
        (
            ical(event("DTEND;VALUE=DATE:20261227", "SUMMARY:A \\, b")),
            ical(
                event("RRULE:FREQ=YEARLY", "EXDATE;VALUE=DATE:20271225,20281225", "RDATE;VALUE=DATE:20271226")
            ),
        ),
        lambda read: lambda text: read(text, zone="UTC", years=(2026, 2028), now=NOW),
        shapes=(
            lambda n: ical(*(event(day=day) for day in ical_days(n))),
            lambda n: ical(*(event(f"SUMMARY:Name {number}") for number in range(n))),
            lambda n: ical(*(event("RRULE:FREQ=MONTHLY") for _ in range(n))),
            lambda n: ical(event("RRULE:FREQ=DAILY", *(f"EXDATE;VALUE=DATE:{day}" for day in ical_days(n)))),
            lambda n: ical(event(f"EXDATE;VALUE=DATE:{','.join(ical_days(n))}")),
            lambda n: ical(event("SUMMARY:a" + "\r\n b" * n)),
            lambda n: "BEGIN:VCALENDAR\r\n" * n,
        ),
        units=10,
        max_inflations=10,
    ),
    # Expressions
    "core.workflow.grammar:parse_condition": Text(CONDITIONS, limit=500),
    "core.workflow.step_input:parse_template": Text(("run.planned_at", *CONDITIONS), limit=500),
    "core.workflow.step_input:parse_reference": Text(('steps.fetch.result["a b"][0].c',), limit=500),
    "core.workflow:parse_match": Text(('event.region == "eu" and event.count > 1',), limit=500),
    "core.workflow:expand_wait": Data(
        (
            lambda n: {"wait": {"answer": {"form": {key(i): "boolean" for i in range(n)}}}},
            lambda n: {"wait": {"answer": {"form": {"a": [key(i) for i in range(n)]}}}},
            lambda n: {"wait": wide(n)},
        )
    ),
    "core.workflow.grammar:parse_path": Text(('steps.fetch.result["a b"][0].c',), limit=500),
    # Requests: queries with filters, cursors, headers
    "interfaces.http.request:read_query": Text(
        ("state=failed&schedule=a%20b&limit=10", 'since=2026-03-10T12:00:00Z&a=[1, {"b": 2}]'),
        lambda read: lambda text: read(text, ROUTE),
    ),
    "interfaces.http.endpoints:read_answer": Text(
        ("approved=yes&amount=12.5&note=a%20b", "answer=a+b"),
        lambda read: lambda text: read(QUESTION, text, "application/x-www-form-urlencoded"),
        max_inflations=20,
    ),
    "interfaces.http.request:split_query": Text(("state=failed&schedule=a%20b&limit=10",)),
    "operations.pagination:decode_cursor": Text(
        ("YWJjZGVmMDEyMzQ1NmFiYw",), lambda decode: lambda text: decode(text, checksum="abcdef012345")
    ),
    "operations.runs.logs:parse_cursor": Text(("1-200",)),
    "interfaces.http.authentication:parse_authority": Text(
        ("api.example.com:8080", "[::1]:80", "a_b.example."), limit=262
    ),
    "interfaces.http.authentication:read_cookie": Text(
        ('a=b; timewright_7411=abc.1.def; c="d\\"e"',),
        lambda read: lambda text: read(text, "timewright_7411"),
    ),
    # URLs, addresses and references
    "targets.http.egress:parse_url": Text(URLS, limit=8_192, max_inflations=20),
    "targets.http.egress:parse_ip": Text(("192.168.0.1", "2001:db8::1%eth0", "::ffff:10.0.0.1")),
    "targets.publish.protocol:parse_broker_url": Text(
        ("amqp://user:pass@rabbit.example.com:5672/vhost", "amqp://[::1]/"),
        lambda parse: lambda text: parse(text, schemes=("amqp",), fix="amqp://host"),
        limit=8_192,
    ),
    "targets.secret_references:parse_reference": Text(("Bearer secret://team/crm-token",)),
    "interfaces.mcp.resources:read_resource": Text(
        ("timewright://docs/learn/first", "timewright://schedule/a%20b"),
        lambda read: lambda text: read(None, text.replace("schedule", "nothing")),
    ),
    # Numbers
    "core.budgets.costs:parse_tokens": Text((" 12 ",)),
    "core.budgets.costs:parse_money": Text(("12.50", "1e-5")),
    "core.schedule.shards:parse_shard": Text(("2/4",)),
    "core.policies.limits:parse_rate": Text(("10/s", "100/m burst 20", "5 per 10 seconds, burst 3")),
}

# Functions with the name of a parser that read no outside input, or only what a listed parser gives them.
EXEMPT = {
    "core.run.due_verdicts:split_skipped": "instants that we planned",
    "access.credentials:read_keys": "rows of the store",
    "access.credentials:read_sessions": "rows of the store",
    "core.policies.limits:decode_limit": "rows of the store",
    "core.alerts.channels:expand_sender": "calls parse_sender once",
    "core.imports.celery_entries:read_expression": "a syntax tree that `ast` made of a bounded file",
    "interfaces.cli.data_input:read_texts": "reads bounded files",
    "interfaces.cli.options:read_schedules": "reads a bounded file with read_data",
    "wiring.process_identity:read_own_identity": "/proc",
    "ledger.alerts.alert_checks:read_schedules": "rows of the store",
    "ledger.snapshot:read_fleet": "rows of the store",
    "operations.definitions.plan:read_files": "calls read_definitions for each file",
    "operations.health.pauses:read_pauses": "rows of the store",
    "operations.definitions.schedules:decode_call": "calls decode once",
    "access.keyring:read_private": "reads a file of at most 64 KiB; its text goes to listed parsers",
    "access.secret_records:read_secret_value": "rows of the store",
    "core.recurrence.cron.fields:parse_number": "one item of a cron expression, which `parse` bounds",
    "core.recurrence.cron.fields:parse_value": "one item of a cron expression, which `parse` bounds",
    "core.recurrence.cron.parse_errors:parse_error": "builds the error of `parse`, and is counted with it",
    "interfaces.cli.data_input:read_file": "reads a bounded file for read_data",
    "interfaces.cli.data_input:read_text": "reads a bounded file",
    "operations.access.keys:read_local_key": "a private file that we wrote",
    "interfaces.cli.process.server_file:read_server_file": "a private file of at most 4 KiB that we wrote",
    "operations.calendars.sources:read_events": "the second half of read_ical",
    "operations.calendars.sources:read_holidays": "a country code, looked up in a table",
    "operations.health.verify:read_history": "rows of the store",
    "operations.hints.analyses:read_advisor_key": "looks up a secret by name",
    "access.credentials:read_answer_slug": "one regular expression over an address of the link route",
    "operations.queues.leases:read_activity": "rows of the store",
    "operations.runs.logs:read_parts": "yields the bytes of an artifact, and parses nothing",
    "operations.schedules.writes:read_schedule_detail": "rows of the store",
    "ports.attempt_output:read_output": "the output of our own targets",
    "ports.attempt_output:read_report": "the reports of our own targets",
    "access.credentials:read_run_token": "one pattern of fixed length over a header of limited length",
    "targets.call.messages:decode_for_worker": "messages of our own processes, decoded by msgspec",
    "targets.call.messages:decode_from_worker": "messages of our own processes, decoded by msgspec",
    "targets.call.signature:read_signature": "a Python function",
    "targets.http.response:read_response": "reads at most max_bytes; msgspec decodes the body",
    "targets.processes.child:read_exit_status": "the state of a process",
    "targets.processes.table:read_mark": "/proc",
    "targets.processes.table:read_process": "/proc",
    "targets.processes.table:read_table": "/proc",
}
EXEMPT_PACKAGES = {
    "core.recurrence.phrases.": "parts of parse_recurrence and parse_moment, and counted with them",
    "ledger.budgets.": "rows of the store",
    "ledger.dependencies.": "rows of the store",
    "ledger.records.": "rows of the store",
    "ledger.workflow_runs.": "rows of the store",
    "stores.": "rows of the store",
    "testing.": "for tests",
    "verification.": "rows of the store",
}
# Calls of library parsers of JSON, TOML, YAML and cookies, and the modules that may contain them.
LIBRARY_PARSERS = re.compile(
    r"json\.loads?\(|JSONDecoder|tomllib\.loads?\(|yaml\.(?:parse|load)|SimpleCookie"
)
LIBRARY_PARSER_MODULES = {
    "core.imports.apscheduler": "JSON that our export script wrote, in a bounded file",
    "core.imports.celery": "a bounded file",
    "core.input.strict_json": "read_json",
    "core.input.strict_yaml": "read_yaml",
    "interfaces.cli.output.errors": "arguments that we wrote",
    "interfaces.cli.process.server_file": "a private file that we wrote",
    "interfaces.cli.settings": "the operator's settings, at most 64 KiB",
    "interfaces.cli.api_client": "answers of our own server",
    "interfaces.http.openid": "answers of the operator's sign-in provider, at most 1 MiB",
    "interfaces.mcp.server": "JSON that we wrote",
    "ledger.queues.policies": "rows of the store",
    "operations.access.service_tokens": "the operator's key file",
    "planner.api_dialects": "parse_tool_call; answers of the operator's model endpoint, at most 2 MB",
    "targets.shell.target": "arguments that we wrote",
}


def test_every_parser_is_listed() -> None:
    found = set(functions_named_like_parsers())

    assert found - set(PARSERS) - set(EXEMPT) == set(), (
        "add these parsers to PARSERS, or to EXEMPT with a reason"
    )
    assert set(EXEMPT) - found == set(), "these functions of EXEMPT do not exist any more"
    assert not set(EXEMPT) & set(PARSERS)


def functions_named_like_parsers() -> Iterator[str]:
    listed = {name.partition(":")[0] for name in PARSERS}
    for path in MODULES:
        module = module_name(path)
        if f"{module}.".startswith(tuple(EXEMPT_PACKAGES)) and module not in listed:
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""
            if name.split("_")[0] in PREFIXES:
                yield f"{module}:{name}"


def test_modules_that_call_a_library_parser_are_known() -> None:
    found = {module_name(path) for path in MODULES if LIBRARY_PARSERS.search(path.read_text("utf-8"))}

    assert {one for one in found if not one.startswith(tuple(EXEMPT_PACKAGES))} == set(LIBRARY_PARSER_MODULES)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", PARSERS)
def test_ten_times_the_input_takes_at_most_about_ten_times_the_steps(name: str) -> None:
    parser = PARSERS[name]
    module, _, function = name.partition(":")
    parse = getattr(import_module(f"timewright.{module}"), function)
    call = parser.call(parse) if parser.call is not None else parse
    if isinstance(parser, Data):
        for shape in parser.shapes:
            check_growth(call, shape, parser.units)
        return
    for shape in parser.shapes:
        check_growth(call, shape, parser.units)
    for example in parser.examples:
        measure(call, example)
        shapes = list(inflations(example))
        for shape in shapes[:: len(shapes) // parser.max_inflations + 1]:
            if parser.limit:
                check_bounded(call, shape, parser)
            else:
                check_growth(call, shape, SMALL)


def test_events_that_repeat_and_overlap_are_bounded() -> None:
    text = ical(*(event("RRULE:FREQ=DAILY", "DURATION:P400D") for _ in range(100)))

    with pytest.raises(InvalidInput, match="on more than 100000 days"):
        read_ical(text, zone="UTC", years=(2026, 2045), now=NOW)


def test_the_counter_sees_quadratic_work() -> None:
    """The counter counts what opcodes do not show: regular expressions, comparisons, slices and methods."""
    quadratic: list[Callable[[int], Any]] = [
        lambda n: re.fullmatch(r"a.*?\s*", "a" + " " * n + "\n!"),
        lambda n: first_duplicate(keys(n)),
        lambda n: [text.partition("b") for text in ["a" * n] * n],
        lambda n: [len_of("a" * (n + i)) for i in range(n)],
    ]
    for work in quadratic:
        few, many = (count_steps(functools.partial(work, n)) for n in (40, 400))
        assert many > 2 * MAX_GROWTH * few


def check_growth(call: Callable[[Any], Any], shape: Callable[[int], Any], size: int) -> None:
    few, many = measure(call, shape(size)), measure(call, shape(10 * size))
    assert many < MAX_STEPS, f"{few} steps grow to more than {MAX_STEPS}: {str(shape(20))[:300]!r}"
    assert many <= MAX_GROWTH * few, f"{few} steps grow to {many}: {str(shape(20))[:300]!r}"


def check_bounded(call: Callable[[Any], Any], shape: Callable[[int], str], parser: Text) -> None:
    limit = parser.limit
    at_limit, beyond = measure(call, shape(limit)[:limit]), measure(call, shape(10 * limit))
    assert at_limit <= parser.max_steps, f"{at_limit} steps at the limit: {shape(20)!r}"
    assert beyond <= parser.max_steps, f"{beyond} steps beyond the limit: {shape(20)!r}"


def first_duplicate(names: list[CountedText]) -> CountedText | None:
    """Search as the HTTP interface once did: each key among all keys before it."""
    return next((name for i, name in enumerate(names) if name in names[:i]), None)


def keys(count: int) -> list[CountedText]:
    return [key(number) for number in range(count)]


def len_of(text: str) -> int:
    return len(text)


def measure(call: Callable[[Any], Any], given: Any) -> int:
    clear_text_caches()
    return count_steps(lambda: call(given), ignore=(Exception,))


def clear_text_caches() -> None:
    """Clear the caches of parsers; caches without a limit hold types, which stay."""
    for cached in text_caches():
        cached.cache_clear()


@functools.cache
def text_caches() -> list[Any]:
    modules = [module for name, module in sys.modules.items() if name.startswith("timewright.")]
    found = {id(value): value for module in modules for value in vars(module).values()}.values()
    return [one for one in found if hasattr(one, "cache_parameters") and one.cache_parameters()["maxsize"]]


def inflations(example: str) -> Iterator[Callable[[int], str]]:
    """Yield functions that repeat one part of an example, two parts or a space; with an invalid end too."""
    parts = re.findall(r"[A-Za-z]+|[0-9]+|\s+|.", example, re.DOTALL)
    for index in range(len(parts)):
        before, after = "".join(parts[: index + 1]), "".join(parts[index + 1 :])
        for unit in dict.fromkeys((parts[index], "".join(parts[max(index - 1, 0) : index + 1]), " ")):
            for end in ("", "\n!"):
                yield functools.partial(inflate, before, unit, after + end)


def inflate(before: str, unit: str, after: str, size: int) -> str:
    return before + unit * (size // len(unit)) + after
