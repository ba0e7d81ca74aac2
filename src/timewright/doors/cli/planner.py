"""The command that advises adaptive schedules, beside engines on the same store or through a server."""

from __future__ import annotations

import signal
from typing import Any

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock
from timewright.core.moments import spell_duration
from timewright.doors.cli.commands import Ask, Option, global_options, option_for
from timewright.doors.cli.fields import setting_fields
from timewright.doors.cli.options import read_field
from timewright.doors.cli.session import Session, as_text
from timewright.doors.cli.settings import BASE
from timewright.doors.ending import Ending
from timewright.operations import operations

OWN = frozenset({"planner", "planner_every", "advisor"})


def planner(_: click.Group) -> click.Command:
    """Look every few minutes who deserves attention, and wish for a better pace where answers ask for it."""
    fields = {field.key: field for field in setting_fields(BASE) if field.key in OWN}
    once = Option(["--once"], is_flag=True, help="One pass, then end.")

    @click.pass_obj
    def advising(session: Session, /, once: bool, **values: Any) -> int:
        said = {name: read_field(fields[name], value) for name, value in values.items() if value is not None}
        return _advise(session, said, once=once)

    params = [once, *(option_for(field) for field in fields.values()), *global_options()]
    text = str(planner.__doc__)
    return Ask("planner", params=params, callback=advising, help=text, short_help=text)


def _advise(session: Session, given: dict[str, Any], *, once: bool) -> int:
    from timewright.planner.choice import planner_for

    settings = session.settings(given, strict=True, base=BASE)
    if settings.planner == "off":
        settings = replace(settings, planner="heuristic")
    with session.context(operations["analysis list"], {}) as context:
        advising = planner_for(context, settings, clock=SystemClock(), trouble=session.note)
        if once:
            made = advising.look()
            session.say(_shown(made) if session.output == "table" else [as_text(made, session.output)])
            return 0
        ended = Ending()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.say())
        advising.start()
        every = spell_duration(settings.planner_every)
        session.note(f"the {settings.planner} planner looks every {every}; Ctrl-C ends it")
        while not ended.is_near():
            continue
        advising.stop()
    return 0


def _shown(made: list[dict[str, Any]]) -> list[str]:
    return [f"{one['schedule']}: {one['reasoning']}" for one in made] or ["nobody deserves a look"]
