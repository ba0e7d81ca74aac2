"""A command from an operation: its arguments and options, its help, and how it is carried out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from timewright.clocks import SystemClock
from timewright.core.moments import spell_instant
from timewright.doors.cli.doctor import exit_code_for, findings_page, seen_from_outside
from timewright.doors.cli.fields import Field, options_of, subject_of
from timewright.doors.cli.hidden import hidden_of
from timewright.doors.cli.moments import instants_said
from timewright.doors.cli.options import payload_of, takes_a_command, takes_a_text, words_of
from timewright.doors.cli.session import Session, as_text
from timewright.doors.cli.table import screen_at
from timewright.doors.cli.times import instant_in, local_zone, today_at
from timewright.errors import TimewrightError
from timewright.operations import Context, Operation, operations

OUTPUTS = ("table", "json", "yaml")
# The instant of creation is on the grid, and no occurrence; the one after it is.
NO_OCCURRENCE = ("not_planned", "unaccounted")
MOST_LOOKS = 2
SECTIONS = ("When", "What", "Policies", "Itself", "Options", "Settings", "Global")


class Option(click.Option):
    """An option that knows the part of the help it belongs to."""

    section = "Options"


class Ask(click.Command):
    """A command whose help has parts."""

    operation: Operation[Any] | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; a request without its method is one that only looks."""
        ends = args.index("--") if "--" in args else len(args)
        for place in range(ends - 1, 0, -1):
            if args[place - 1] == "--http" and args[place].lower().startswith(("http://", "https://")):
                args.insert(place, "GET")
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What it does, and if it is an operation, what it takes and how it is typed."""
        super().format_help_text(ctx, formatter)
        if self.operation is None:
            return
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text(" ".join((self.operation.request.__doc__ or "").split()))
        with formatter.section("Examples"):
            for example in self.operation.examples:
                typed = shlex.join(words_of(self.operation, example))
                formatter.write(f"{' ' * formatter.current_indent}timewright {typed}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each part of the options under its title."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        shown = [(getattr(one, "section", "Global"), one.get_help_record(ctx)) for one in options]
        for section in SECTIONS:
            records = [record for part, record in shown if part == section and record is not None]
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


def global_options() -> list[click.Parameter]:
    """What every command takes, before or behind its name."""
    made = [
        Option(["--store"], metavar="PLACE", help="A file, or postgresql://…  [timewright.db]"),
        Option(["--server"], metavar="URL", help="A server to ask instead of the store."),
        Option(["--namespace"], metavar="NAME", help="Whose things are meant.  [default]"),
        Option(["-o", "--output"], type=click.Choice(OUTPUTS), help="How the answer looks.  [table]"),
        Option(["--json"], is_flag=True, default=None, help="The same as -o json."),
        Option(["-q", "--quiet"], is_flag=True, default=None, help="Only names and ids, and no notes."),
        Option(["-v", "--verbose"], is_flag=True, default=None, help="Also say who is asked."),
        Option(["--config"], metavar="FILE", help="A file with settings.  [timewright.toml]"),
        Option(["--debug"], is_flag=True, default=None, help="Show the traceback of a fault."),
    ]
    for option in made:
        option.section, option.expose_value, option.callback = "Global", False, _keep
    return [*made]


def version_option() -> click.Option:
    """`timewright --version`."""

    def show_version(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value and not ctx.resilient_parsing:
            from importlib.metadata import version

            click.echo(f"timewright {version('timewright')}")
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
    """The command of an operation."""
    subject = subject_of(operation)
    params: list[click.Parameter] = []
    if subject is not None:
        complete = _schedules if subject.key == "schedule" else None
        params.append(click.Argument([subject.key], required=subject.required, shell_complete=complete))
    if takes_a_command(operation):
        params.append(
            click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
        )
    if takes_a_text(operation):
        params.append(click.Argument(["said"], required=False, metavar="[TEXT]"))
    params += [
        _option(
            field,
            changes=operation.verb == "update",
            asked=field.key in operation.request.hides or (field.key == "text" and takes_a_text(operation)),
        )
        for field in options_of(operation)
    ]
    params += _beside(operation)
    command = Ask(
        name or operation.verb.split()[-1],
        params=[*params, *global_options()],
        callback=_performing(operation),
        help=operation.summary,
        # Up to the first stop that is half a one: enough to choose by.
        short_help=re.split("[;:.]", operation.summary)[0],
    )
    command.operation = operation
    return command


def show(session: Session, operation: Operation[Any], answer: Mapping[str, Any], context: Context) -> None:
    """Show an answer as it was asked for."""
    from timewright.doors.cli.answers import lines_of, names_in, notes_of

    if session.output != "table":
        session.say([as_text(answer, session.output)])
        return
    if session.quiet:
        session.say(names_in(answer))
        return
    session.say(lines_of(operation, answer, screen_at(context.now())))
    for note in notes_of(operation, answer, context.settings):
        session.note(note)


def option_for(field: Field) -> click.Option:
    """An option for a field that stands for itself."""
    return _option(field, changes=False)


def _performing(operation: Operation[Any]) -> Callable[..., int]:
    @click.pass_obj
    def perform(session: Session, /, **values: Any) -> int:
        if values.get("command") and not values.get("shell"):
            raise click.UsageError(
                f"{values['command'][0]!r} is one argument too many; a command needs --shell"
            )
        if values.get("said") is not None:
            if values["text"] is not None:
                raise click.UsageError("the text is said twice, as an argument and behind --text")
            values["text"] = values["said"]
        request = payload_of(operation, values)
        request |= hidden_of(operation, request)
        if operation.name == "doctor" and (early := seen_from_outside(session)) is not None:
            session.say(_said(session, early))
            return exit_code_for(operation.name, early)
        with session.context(operation, request) as context:
            request = instants_said(operation, request, now=context.now())
            if values.get("follow"):
                _follow(session, operation, context, request)
                return 0
            answer = _explained(operation, context, request)
            if answer is None:
                answer = operation(context, request)
            show(session, operation, answer, context)
        return exit_code_for(operation.name, answer)

    return perform


def _said(session: Session, answer: Mapping[str, Any]) -> list[str]:
    if session.output != "table":
        return [as_text(answer, session.output)]
    return findings_page(answer, screen_at(SystemClock().now()))


def _follow(
    session: Session, operation: Operation[Any], context: Context, request: Mapping[str, Any]
) -> None:
    from timewright.doors.cli.follow import follow
    from timewright.doors.cli.listen import listen

    with _until_interrupted():
        (listen if operation.name == "run logs" else follow)(session, context, request)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """To be interrupted is how following ends."""
    try:
        yield
    except KeyboardInterrupt:
        return


def _explained(operation: Operation[Any], context: Context, request: dict[str, Any]) -> dict[str, Any] | None:
    """`explain --at 14:02:20`: today, here, and the occurrence that a clock would show so."""
    now = context.now()
    said = request.get("at") if operation.name == "schedule explain" else None
    meant = today_at(said, now=now, zone=local_zone(now)) if isinstance(said, str) else None
    if meant is None:
        return None
    moment, finer = meant
    answer = first = operation(context, {**request, "at": spell_instant(moment)})
    for _ in range(MOST_LOOKS):
        following = instant_in(answer["next_at"])
        if answer["fate"] not in NO_OCCURRENCE or following is None or following >= moment + finer:
            break
        answer = operation(context, {**request, "at": answer["next_at"]})
    return first if answer["fate"] in NO_OCCURRENCE else answer


def _beside(operation: Operation[Any]) -> list[click.Parameter]:
    """Options that only this door has."""
    if operation.name == "run list":
        text = "Tell about runs as they end, until Ctrl-C."
        return [Option(["--follow"], is_flag=True, help=text)]
    if operation.name == "run logs":
        text = "Go on with what it says while it runs, until it is over."
        return [Option(["--follow"], is_flag=True, help=text)]
    if operation.request.spreads is not None:
        text = "Read the fields from a YAML or JSON file; - is the standard input."
        return [Option(["--file"], metavar="FILE", help=text)]
    return []


def _option(field: Field, *, changes: bool, asked: bool = False) -> click.Option:
    declared = [field.key, f"{field.flag}/--no-{field.flag[2:]}" if field.kind == "switch" else field.flag]
    kinds: dict[str, dict[str, Any]] = {
        "flag": {"is_flag": True, "default": None},
        "switch": {"default": None},
        "command": {"is_flag": True, "default": None},
        "request": {"nargs": 2},
    }
    shown = f" {', '.join(field.choices)}." if field.choices else ""
    shown += f"  [{field.default}]" if field.default and not changes else ""
    more: dict[str, Any] = {} if field.kind in ("flag", "switch", "command") else {"metavar": field.metavar}
    option = Option(
        declared,
        multiple=field.several,
        required=field.required and not asked,
        help=f"{field.help}{shown}",
        shell_complete=lambda _ctx, _param, begun: [one for one in field.choices if one.startswith(begun)],
        **kinds.get(field.kind, {}),
        **more,
    )
    option.section = field.section or "Options"
    return option


def _schedules(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """The names of schedules that begin so, for a shell that asks while someone types."""
    session, operation = ctx.obj, operations["schedule list"]
    try:
        with session.context(operation, {}) as context:
            rows = operation(context, {"name_starts": begun, "limit": 50})["schedules"]
            return [row["name"] for row in rows]
    except (TimewrightError, OSError):
        return []


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Remember a global option, wherever it stood; the one nearest to the verb counts."""
    if value is not None and isinstance(ctx.obj, Session):
        name, said = ("output", "json") if param.name == "json" else (str(param.name), value)
        ctx.obj.given[name] = said
    return value
