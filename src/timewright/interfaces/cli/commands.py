"""Builds a command from an operation: arguments, options, help and callback."""

from __future__ import annotations

import re
import shlex
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock, system_zone
from timewright.core.moments import format_instant
from timewright.errors import TimewrightError
from timewright.interfaces.cli.data_input import read_texts, resolve_instants
from timewright.interfaces.cli.fields import OptionField, options_of, subject_of
from timewright.interfaces.cli.options import (
    AS_DEFINITIONS,
    command_words,
    definitions_in,
    perform_all,
    requests_of,
)
from timewright.interfaces.cli.output.doctor import exit_code_for, findings_page, pending_migrations
from timewright.interfaces.cli.output.errors import RefusedRequest
from timewright.interfaces.cli.output.times import local_zone, parse_instant_or_none, today_at
from timewright.interfaces.cli.session import Session, serialize
from timewright.operations import Operation, OperationContext, operations
from timewright.operations.health.start_warnings import lacks_engine

OUTPUT_FORMATS = ("table", "json", "yaml")
# The creation instant is on the interval grid but is not an occurrence; the next one is.
NOT_AN_OCCURRENCE = ("not_planned", "unaccounted")
MAX_FOLLOWING = 2
MAX_SECRET_BYTES = 1_048_576
SECTIONS = ("Trigger", "Target", "Policies", "Metadata", "Options", "Settings", "Global")


class Option(click.Option):
    """An option with the section of the help it belongs to."""

    section = "Options"


class SectionedCommand(click.Command):
    """A command whose help has sections."""

    operation: Operation[Any] | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; `--http URL` without a method means GET."""
        end = args.index("--") if "--" in args else len(args)
        given = [word for one in args[:end] for word in _split_http(one)]
        for position in range(len(given) - 1, -1, -1):
            if given[position] == "--http":
                given[position + 1 : position + 3] = _method_and_url(given[position + 1 : position + 3], ctx)
        return super().parse_args(ctx, [*given, *args[end:]])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the summary and, for an operation, its request and examples."""
        super().format_help_text(ctx, formatter)
        if self.operation is None:
            return
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text(" ".join((self.operation.request_type.__doc__ or "").split()))
        with formatter.section("Examples"):
            for example in self.operation.examples:
                typed = shlex.join(command_words(self.operation, example))
                formatter.write(f"{' ' * formatter.current_indent}timewright {typed}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options by section."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        shown = [(getattr(one, "section", "Global"), one.get_help_record(ctx)) for one in options]
        for section in SECTIONS:
            records = [record for part, record in shown if part == section and record is not None]
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


def _split_http(word: str) -> list[str]:
    """Split `--http=URL`, because click would take the next option as its second value."""
    return ["--http", word.removeprefix("--http=")] if word.startswith("--http=") else [word]


def _method_and_url(values: list[str], ctx: click.Context) -> list[str]:
    """Return the values of --http, with GET if there is only a URL. Raises instead of taking an option."""
    first = values[0] if values else ""
    if " " in first:
        return [*first.split(maxsplit=1), *values[1:]]
    if first.lower().startswith(("http://", "https://")):
        return ["GET", *values]
    if len(values) < 2 or values[1].startswith("-"):
        got = f", not {first!r} alone" if first and not first.startswith("-") else ""
        raise click.UsageError(
            f"--http takes METHOD URL or URL{got}; for example --http POST https://api.example.com/run", ctx
        )
    return values


def global_options() -> list[click.Parameter]:
    """Return the options that every command accepts, before or after its name."""
    options = [
        Option(["--store"], metavar="URL", help="The store: a file or postgresql://…  [timewright.db]"),
        Option(["--server"], metavar="URL", help="Use this server instead of the store."),
        Option(["--namespace"], metavar="NAME", help="The namespace.  [default]"),
        Option(["-o", "--output"], type=click.Choice(OUTPUT_FORMATS), help="Output format.  [table]"),
        Option(["--json"], is_flag=True, default=None, help="Same as -o json."),
        Option(
            ["-q", "--quiet"], is_flag=True, default=None, help="Print only names and ids, without notes."
        ),
        Option(
            ["-v", "--verbose"], is_flag=True, default=None, help="Also print which store or server is used."
        ),
        Option(["--config"], metavar="FILE", help="The settings file.  [timewright.toml]"),
        Option(["--debug"], is_flag=True, default=None, help="Show the traceback of an error."),
    ]
    for option in options:
        option.section, option.expose_value, option.callback = "Global", False, _save_global_option
    return [*options]


def version_option() -> click.Option:
    """`timewright --version`."""

    def show_version(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value and not ctx.resilient_parsing:
            from timewright.ports.host_info import package_version

            click.echo(f"timewright {package_version()}")
            ctx.exit()

    return Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show_version,
        help="Show the version.",
    )


def command_for(operation: Operation[Any], *, name: str = "") -> click.Command:
    """Return the command of an operation."""
    subject = subject_of(operation)
    params: list[click.Parameter] = []
    if subject is not None:
        complete = _complete_schedules if subject.key == "schedule" else None
        params.append(click.Argument([subject.key], required=subject.required, shell_complete=complete))
    # What is read in another way, if its option is not given.
    otherwise = {"files", "text", *operation.request_type.redacted_fields}
    for field in options_of(operation):
        if field.kind == "command":
            kind = click.UNPROCESSED
            params.append(click.Argument(["command"], nargs=-1, type=kind, metavar="[-- COMMAND...]"))
        if field.key == "files":
            params.append(click.Argument(["paths"], nargs=-1, metavar="FILE..."))
        if field.key == "text":
            params.append(click.Argument(["text_argument"], required=False, metavar="[TEXT]"))
        is_required = field.required and field.key not in otherwise
        params.append(option_for(field, required=is_required, changes=operation.verb == "update"))
    params += _extra_options(operation)
    command = SectionedCommand(
        name or operation.verb.split()[-1],
        params=[*params, *global_options()],
        callback=_callback_of(operation),
        help=operation.summary,
        # The first clause of the summary.
        short_help=re.split("[;:.]", operation.summary)[0],
    )
    command.operation = operation
    return command


def print_answer(
    session: Session, operation: Operation[Any], answer: Mapping[str, Any], context: OperationContext
) -> None:
    """Print an answer in the requested format."""
    from timewright.interfaces.cli.output.render import answer_lines, answer_names, answer_notes

    if session.output == "yaml" and operation.name in AS_DEFINITIONS:
        session.print([serialize(definitions_in(operation, answer, context), "yaml")])
        for note in answer_notes(operation, answer):
            session.print_note(note)
        return
    if session.output != "table":
        session.print([serialize(answer, session.output)])
        return
    if session.quiet:
        session.print(answer_names(answer))
        return
    session.print(answer_lines(operation, answer, session.screen(context.now())))
    for note in answer_notes(operation, answer):
        session.print_note(note)


def _callback_of(operation: Operation[Any]) -> Callable[..., int]:
    @click.pass_obj
    def perform(session: Session, /, **values: Any) -> int:
        try:
            return _perform(operation, session, **values)
        except TimewrightError as error:
            if values.get("file") or values.get("paths"):
                raise  # a file has fields, not options
            raise RefusedRequest(operation) from error

    return perform


def _perform(operation: Operation[Any], session: Session, /, **values: Any) -> int:
    """Build the request from the options, perform it and print the answer; return the exit code."""
    if values.get("shell") and not values.get("command"):
        raise click.UsageError("--shell needs a command after --, such as: --shell -- ls -l")
    if values.get("command") and not values.get("shell"):
        rule = "a command needs --shell -- before it, a phrase such as 'weekdays at 9am' needs --every"
        raise click.UsageError(f"{values['command'][0]!r} is an unexpected argument; {rule}")
    if values.get("text_argument") is not None:
        if values["text"] is not None:
            raise click.UsageError("the text is given twice, as an argument and with --text")
        values["text"] = values["text_argument"]
    request, *more = requests_of(operation, values)
    if values.get("paths") or (operation.name in ("plan", "apply") and not request.get("files")):
        request["files"] = {**request.get("files", {}), **read_texts(values["paths"], operation.name)}
    request |= _prompt_for_secrets(operation, request)
    if operation.name == "doctor" and (findings := pending_migrations(session)) is not None:
        session.print_data(findings, findings_page(findings, session.screen(SystemClock().now())))
        return exit_code_for(operation.name, findings)
    # A file means the same on every machine, so it does not use this machine's zone.
    session.file_zone = "UTC" if values.get("file") else ""
    with session.context(operation, request) as opened:
        context = replace(opened, system_zone=system_zone(), file_zone=session.file_zone)
        request = resolve_instants(operation, request, context)
        if values.get("follow"):
            _follow(session, operation, context, request)
            return 0
        if operation.name == "run artifacts" and request.get("name") and session.output == "table":
            write_artifact(operation, context, request)
            return 0
        answer = _explain_local_time(operation, context, request)
        answers = [answer] if answer is not None else perform_all(operation, context, [request, *more])
        for answer in answers:
            print_answer(session, operation, answer, context)
        if request.get("dry_run") and session.output == "table":
            session.print_note("note: dry run, nothing was written")
        elif session.output == "table" and lacks_engine(context, operation.name):
            up = session.command("up")
            session.print_note(f"note: no instance is running, so nothing starts; start one: {up}")
    return max(exit_code_for(operation.name, one) for one in answers)


def write_artifact(operation: Operation[Any], context: OperationContext, request: Mapping[str, Any]) -> None:
    """Write the data of an artifact to standard output, part by part."""
    out = sys.stdout.buffer
    offset: int | None = request.get("offset") or 0
    while offset is not None:
        part = operation(context, {**request, "offset": offset})["part"]
        out.write(b64decode(part["data"]))
        offset = part.get("next_offset")
    out.flush()


def _follow(
    session: Session, operation: Operation[Any], context: OperationContext, request: Mapping[str, Any]
) -> None:
    from timewright.interfaces.cli.output.follow import follow_output, follow_runs

    # Ctrl-C ends it without an error.
    with suppress(KeyboardInterrupt):
        (follow_output if operation.name == "run logs" else follow_runs)(session, context, request)


def _explain_local_time(
    operation: Operation[Any], context: OperationContext, request: dict[str, Any]
) -> dict[str, Any] | None:
    """Answer `explain --at 14:02:20`: today in local time, for an occurrence within that second or minute."""
    now = context.now()
    text = request.get("at") if operation.name == "schedule explain" else None
    found = today_at(text, now=now, zone=local_zone(now)) if isinstance(text, str) else None
    if found is None:
        return None
    moment, precision = found
    answer = first = operation(context, {**request, "at": format_instant(moment)})
    for _ in range(MAX_FOLLOWING):
        following = parse_instant_or_none(answer["next_at"])
        if answer["status"] not in NOT_AN_OCCURRENCE or following is None or following >= moment + precision:
            break
        answer = operation(context, {**request, "at": answer["next_at"]})
    return first if answer["status"] in NOT_AN_OCCURRENCE else answer


def _extra_options(operation: Operation[Any]) -> list[click.Parameter]:
    """Return the options that only the command line has."""
    if operation.name == "run list":
        text = "Print runs as they end, until Ctrl-C."
        return [Option(["--follow"], is_flag=True, help=text)]
    if operation.name == "run logs":
        text = "Print the output as it is written, until the run ends."
        return [Option(["--follow"], is_flag=True, help=text)]
    if operation.request_type.flattens is not None:
        text = "Read the fields from a YAML or JSON file, or - for standard input."
        return [Option(["--file"], metavar="FILE", help=text)]
    return []


def option_for(field: OptionField, *, required: bool = False, changes: bool = False) -> click.Option:
    """Return the option of a field; one that `changes` a value has no default."""
    declared = [field.key, f"{field.flag}/--no-{field.flag[2:]}" if field.kind == "switch" else field.flag]
    kinds: dict[str, dict[str, Any]] = {
        "flag": {"is_flag": True, "default": None},
        "switch": {"default": None},
        "command": {"is_flag": True, "default": None},
        "request": {"nargs": 2},
    }
    choices = f" {', '.join(field.choices)}." if field.choices else ""
    choices += f"  [{field.default}]" if field.default and not changes else ""
    metavar: dict[str, Any] = (
        {} if field.kind in ("flag", "switch", "command") else {"metavar": field.metavar}
    )
    option = Option(
        declared,
        multiple=field.repeatable,
        required=required,
        help=f"{field.help}{choices}",
        shell_complete=lambda _ctx, _param, prefix: [one for one in field.choices if one.startswith(prefix)],
        **kinds.get(field.kind, {}),
        **metavar,
    )
    option.section = field.section or "Options"
    return option


def _complete_schedules(ctx: click.Context, _param: click.Parameter, prefix: str) -> list[str]:
    """Return the schedule names with a prefix, for shell completion."""
    session, operation = ctx.obj, operations["schedule list"]
    try:
        with session.context(operation, {}) as context:
            rows = operation(context, {"name_starts": prefix, "limit": 50})["schedules"]
            return [row["name"] for row in rows]
    except (TimewrightError, OSError):
        return []


def _save_global_option(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Save a global option; the last one before the verb's arguments wins."""
    if value is not None and isinstance(ctx.obj, Session):
        name, given = ("output", "json") if param.name == "json" else (str(param.name), value)
        ctx.obj.given[name] = given
    return value


def _prompt_for_secrets(operation: Operation[Any], request: Mapping[str, Any]) -> dict[str, str]:
    """Read the secret fields that were not given, from a hidden prompt or from standard input."""
    missing = [name for name in operation.request_type.redacted_fields if name not in request]
    return {name: _read_secret(name) for name in missing}


def _read_secret(name: str) -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(name, hide_input=True, err=True))
    raw = sys.stdin.buffer.read(MAX_SECRET_BYTES) if sys.stdin is not None else b""
    return raw.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
