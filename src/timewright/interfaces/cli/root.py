"""The root command: nouns, operations and process commands, with suggestions for unknown commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

import click

from timewright.interfaces.cli.commands import command_for, global_options, version_option
from timewright.interfaces.cli.output.errors import EXIT_USAGE, UnknownCommand, exit_code_of, print_error
from timewright.interfaces.cli.process.process_commands import PROCESS_COMMANDS
from timewright.interfaces.cli.session import Session
from timewright.operations import operations
from timewright.operations.registry import VERB_ALIASES

ALIASES = {"explain": "schedule explain", "upcoming": "schedule upcoming"}
# Commands of other programs and ours for the same purpose.
SYNONYMS = {
    "start": "up",
    "init": "up",
    "daemon": "up",
    "server": "up",
    "status": "now",
    "logs": "run logs",
    "version": "--version",
}
MAX_SUGGESTIONS = 3
FREQUENT_COMMANDS = {
    "up": "Start the scheduler, its API and the dashboard.",
    "schedule create": "Create a schedule: --every 15m --call reports.nightly",
    "schedule list": "List the schedules with their next and last runs.",
    "schedule next": "Show the next occurrences of a schedule.",
    "upcoming": "Show what starts next, of all schedules.",
    "schedule run": "Start a run now.",
    "schedule pause": "Stop a schedule until it is resumed.",
    "run list": "List runs; --state failed, --follow.",
    "run logs": "Show the output of a run.",
    "explain": "Say why a schedule ran, or did not.",
    "doctor": "Find problems and what helps.",
}
# Every command under the task that a reader has in mind.
TASKS: dict[str, tuple[str, ...]] = {
    "Schedules and runs": (
        "schedule", "run", "explain", "upcoming", "backfill", "reminder", "group", "calendar", "now",
        "search",
    ),
    "Processes": (
        "up", "worker", "serve", "planner", "mcp", "watch", "dashboard", "demo", "instance", "service",
    ),
    "Files and other schedulers": ("plan", "apply", "diff", "export", "import", "schema"),
    "What would happen": ("simulate", "replay", "forecast", "lint"),
    "Workflows and queues": ("workflow", "queue"),
    "Limits and spending": ("limit", "budget", "provider"),
    "When something is wrong": (
        "doctor", "incident", "alert", "channel", "ping", "overdue", "pause", "resume", "verify", "audit",
        "clock", "health",
    ),
    "Agents and the planner": ("approval", "hint", "analysis"),
    "Keys and tenants": ("key", "secret", "namespace", "session"),
    "Stores": ("backup", "restore", "move", "migrate"),
}  # fmt: skip
NOUN_HELP: dict[str, str] = {
    "incident": "Problems that were found: list, acknowledge and snooze.",
    "alert": "The thresholds at which incidents open.",
    "channel": "Where messages about incidents and events are sent.",
    "ping": "Reports from jobs that Timewright watches but does not run.",
    "schedule": "Create and manage schedules.",
    "run": "Inspect and control runs.",
    "backfill": "Past occurrences that run again: list, pause and cancel.",
    "queue": "Add, lease and complete queue entries.",
    "queue policy": "The limits and retries of a queue.",
    "hint": "Temporary hints about when to run.",
    "approval": "Approve or reject schedules created by agents.",
    "instance": "The instances that share the store.",
    "analysis": "Analyses and proposals of the planner.",
    "limit": "Limits by count, rate and key, shared by schedules and queues.",
    "calendar": "Days and hours that schedules respect.",
    "budget": "Spending limits and their usage.",
    "provider": "Open or close the providers that schedules use.",
    "group": "Groups of schedules.",
    "reminder": "Texts that a channel sends at a time.",
    "audit": "The log of changes.",
    "workflow": "Workflows: steps with dependencies, stored in versions.",
    "namespace": "Namespaces and their quotas.",
    "secret": "Secret values that targets refer to by name.",
    "key": "API keys and their scopes.",
    "session": "Browser sessions: list and end them.",
    "clock": "Accept the clock of the store after a large step.",
}


class NounGroup(click.Group):
    """The commands of one noun; built on demand, because there are more than 100."""

    def __init__(self, path: str, **attributes: Any) -> None:
        super().__init__(path.rpartition(" ")[2] or "timewright", params=global_options(), **attributes)
        self.path = path

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the global options; without arguments show the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(EXIT_USAGE if self.path else 0)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs and the nested nouns."""
        return sorted({name.removeprefix(self.path).split()[0] for name in _names() if self._contains(name)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        full = f"{self.path} {cmd_name}".strip()
        if full in _names():
            return command_for(operations[full])
        if any(name.startswith(f"{full} ") for name in _names()):
            return NounGroup(full, help=NOUN_HELP.get(full, ""))
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; an unknown one raises an error with suggestions."""
        if (
            self.get_command(ctx, args[0]) is None
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
            raise _unknown_command(self, ctx, args[0])
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the commands before the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def _contains(self, name: str) -> bool:
        return not self.path or name.startswith(f"{self.path} ")


class RootGroup(NounGroup):
    """`timewright` itself: the nouns, the operations without a noun, and the process commands."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the global options and --version."""
        return [*super().get_params(ctx), version_option()]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all top-level commands."""
        return sorted({*super().list_commands(ctx), *ALIASES, *PROCESS_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        if cmd_name in ALIASES:
            return command_for(operations[ALIASES[cmd_name]], name=cmd_name)
        if cmd_name in PROCESS_COMMANDS:
            return PROCESS_COMMANDS[cmd_name]
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the most used commands, then all commands by task."""
        with formatter.section("Most used"):
            formatter.write_dl(list(FREQUENT_COMMANDS.items()))
        for title, names in self._by_task(ctx):
            rows = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, NOUN_HELP.get(name) or c.get_short_help_str(limit=70)) for name, c in rows if c]
                )

    def _by_task(self, ctx: click.Context) -> list[tuple[str, list[str]]]:
        """The commands under the title of their task; what has none comes last."""
        names = self.list_commands(ctx)
        placed = {name for group in TASKS.values() for name in group}
        return [
            *((title, [name for name in group if name in names]) for title, group in TASKS.items()),
            ("Other", [name for name in names if name not in placed]),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a reader that left is no error, for which click would exit with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            print_error(error, [])
            return exit_code_of(error)

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        """Run the command line; errors are printed as messages, not as tracebacks."""
        arguments = list(sys.argv[1:] if args is None else args)
        standalone = extra.pop("standalone_mode", True)
        extra.update(standalone_mode=False, prog_name="timewright")
        extra.setdefault("obj", Session())
        code = _run_with_errors(lambda: super(RootGroup, self).main(arguments, **extra), arguments)
        if standalone:
            sys.exit(code)
        return code


def main() -> int:
    """Run the command line and return its exit code."""
    return int(cli.main(standalone_mode=False))


def _run_with_errors(run: Callable[[], Any], arguments: Sequence[str]) -> int:
    try:
        _check_encoding(arguments)
        code = run()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - every error becomes a message here
        print_error(error, arguments)
        return exit_code_of(error)


def _check_encoding(arguments: Sequence[str]) -> None:
    """Raise for arguments that are not valid UTF-8, because they cannot be stored."""
    for position, word in enumerate(arguments, start=1):
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise click.UsageError(
                f"argument {position} is not UTF-8: {word.encode('utf-8', 'backslashreplace').decode()}"
            )


def _names() -> set[str]:
    return {operation.name for operation in operations}


def _unknown_command(group: NounGroup, ctx: click.Context, word: str) -> UnknownCommand:
    """Return the error for an unknown command, with similar commands or verbs as suggestions."""
    here = group.list_commands(ctx)
    synonym = SYNONYMS.get(word, "") if not group.path else ""
    verb = VERB_ALIASES.get(word, word)
    near = [f"{group.path} {name}".strip() for name in ([verb] if verb in here else _similar(word, here))]
    if not group.path:
        first = {"schedule": 0, "run": 1}
        verbs = {one.name: one.verb for one in sorted(operations, key=lambda one: first.get(one.noun, 2))}
        similar = _similar(verb, set(verbs.values()))[:1]
        if not near or (similar and _similarity(verb, similar[0]) > _similarity(word, near[0])):
            near = [name for name, verb in verbs.items() if verb in similar][:MAX_SUGGESTIONS] or near
    what = f"unknown {group.path} command" if group.path else "unknown command"
    near = [synonym] if synonym else near
    suggestions = [f"timewright {name}" for name in near] or [
        f"timewright {group.path} --help".replace("  ", " ")
    ]
    return UnknownCommand(f"{what} {word[:64]!r}", ctx=ctx, tries=" or ".join(suggestions))


def _similar(word: str, names: Iterable[str]) -> list[str]:
    return get_close_matches(word[:64], list(names), n=MAX_SUGGESTIONS, cutoff=0.65)


def _similarity(word: str, name: str) -> float:
    return SequenceMatcher(None, word[:64], name).ratio()


cli = RootGroup(
    "",
    help="A persistent scheduler: every planned occurrence is decided once and every decision is explained.",
)
