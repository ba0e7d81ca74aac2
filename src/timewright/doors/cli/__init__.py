"""The command line: every operation as a command, made from the one list, and a few that join the parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

import click

from timewright.doors.cli.commands import command_for, global_options, version_option
from timewright.doors.cli.faults import USAGE, Mistyped, exit_code_of, told
from timewright.doors.cli.joins import JOINS
from timewright.doors.cli.session import Session
from timewright.doors.cli.words import NOUNS
from timewright.operations import operations
from timewright.operations.registry import OTHER_VERBS

__all__ = ["cli", "main"]

ALIASES = {"explain": "schedule explain"}
# What others call our commands.
OTHERS = {"start": "up", "init": "up", "daemon": "up", "server": "up", "status": "now", "logs": "run logs"}
MOST_TRIES = 3


class Noun(click.Group):
    """What can be done with one kind of thing; commands are made when they are asked for."""

    def __init__(self, path: str, **attributes: Any) -> None:
        super().__init__(path.rpartition(" ")[2] or "timewright", params=global_options(), **attributes)
        self.path = path

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read our own options; who says nothing further is shown what there is to say."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(USAGE if self.path else 0)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, and the nouns below."""
        return sorted({name.removeprefix(self.path).split()[0] for name in _names() if self._is_mine(name)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or nothing."""
        full = f"{self.path} {cmd_name}".strip()
        if full in _names():
            return command_for(operations[full])
        if any(name.startswith(f"{full} ") for name in _names()):
            return Noun(full, help=NOUNS.get(full, ""))
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; a mistyped one is refused with those that are like it."""
        if (
            self.get_command(ctx, args[0]) is None
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
            raise _mistyped(self, ctx, args[0])
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What can be done first, how to say it after that."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def _is_mine(self, name: str) -> bool:
        return not self.path or name.startswith(f"{self.path} ")


class Root(Noun):
    """`timewright` itself: the nouns, the operations without one, and what joins the parts."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The global options, and the version."""
        return [*super().get_params(ctx), version_option()]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The nouns, then the others."""
        return sorted({*super().list_commands(ctx), *ALIASES, *JOINS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or nothing."""
        if cmd_name in ALIASES:
            return command_for(operations[ALIASES[cmd_name]], name=cmd_name)
        if cmd_name in JOINS:
            return JOINS[cmd_name](self)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nouns with their verbs, then the commands without."""
        nouns = [name for name in self.list_commands(ctx) if name in NOUNS]
        with formatter.section("Nouns"):
            formatter.write_dl([(name, NOUNS[name]) for name in nouns])
        others = [name for name in self.list_commands(ctx) if name not in NOUNS]
        commands = [(name, self.get_command(ctx, name)) for name in others]
        with formatter.section("Commands"):
            formatter.write_dl([(n, c.get_short_help_str(limit=70)) for n, c in commands if c is not None])

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        """Run the command line; whatever happens is told in words, and never as a traceback."""
        words = list(sys.argv[1:] if args is None else args)
        standalone = extra.pop("standalone_mode", True)
        extra.update(standalone_mode=False, prog_name="timewright")
        extra.setdefault("obj", Session())
        code = _guarded(lambda: super(Root, self).main(words, **extra), words)
        if standalone:
            sys.exit(code)
        return code


def main() -> int:
    """Run the command line; its exit code is ours."""
    return int(cli.main(standalone_mode=False))


def _guarded(run: Callable[[], Any], words: Sequence[str]) -> int:
    try:
        _refuse_unreadable(words)
        code = run()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one place where faults become words
        told(error, words)
        return exit_code_of(error)


def _refuse_unreadable(words: Sequence[str]) -> None:
    """Refuse arguments that are not text: what cannot be shown cannot be stored."""
    for place, word in enumerate(words, start=1):
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise click.UsageError(
                f"argument {place} is not UTF-8: {word.encode('utf-8', 'backslashreplace').decode()}"
            )


def _names() -> set[str]:
    return {operation.name for operation in operations}


def _mistyped(group: Noun, ctx: click.Context, word: str) -> Mistyped:
    """`no command 'schedul'` with what is like it: here, or a verb of some noun."""
    here = group.list_commands(ctx)
    meant = OTHERS.get(word, "") if not group.path else ""
    verb = OTHER_VERBS.get(word, word)
    near = [f"{group.path} {name}".strip() for name in ([verb] if verb in here else _like(word, here))]
    if not group.path:
        verbs = {one.name: one.verb for one in sorted(operations, key=lambda one: one.noun != "schedule")}
        like = _like(verb, set(verbs.values()))[:1]
        if not near or (like and _likeness(verb, like[0]) > _likeness(word, near[0])):
            near = [name for name, verb in verbs.items() if verb in like][:MOST_TRIES] or near
    what = f"{group.path} has no verb" if group.path else "no command"
    near = [meant] if meant else near
    tries = [f"timewright {name}" for name in near] or [f"timewright {group.path} --help".replace("  ", " ")]
    return Mistyped(f"{what} {word[:64]!r}", ctx=ctx, tries=" or ".join(tries))


def _like(word: str, names: Iterable[str]) -> list[str]:
    return get_close_matches(word[:64], list(names), n=MOST_TRIES, cutoff=0.6)


def _likeness(word: str, name: str) -> float:
    return SequenceMatcher(None, word[:64], name).ratio()


cli = Root(
    "", help="A persistent scheduler: every planned occurrence decided once, and every decision explained."
)
