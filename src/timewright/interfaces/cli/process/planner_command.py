"""`timewright planner`: runs the planner for adaptive schedules."""

from __future__ import annotations

import signal
from typing import Any

import click
from msgspec.structs import replace

from timewright.clocks import SystemClock
from timewright.core.moments import format_duration
from timewright.interfaces.cli.commands import Option, SectionedCommand, global_options, option_for
from timewright.interfaces.cli.fields import setting_fields
from timewright.interfaces.cli.options import read_field
from timewright.interfaces.cli.session import Session, serialize
from timewright.interfaces.cli.settings import SERVER_DEFAULTS
from timewright.interfaces.python.stop_signal import StopSignal
from timewright.operations import operations

PLANNER_SETTINGS = frozenset({"planner", "planner_every", "advisor"})


def planner(_: click.Group) -> click.Command:
    """Analyse adaptive schedules periodically and set hints for their intervals."""
    fields = {field.key: field for field in setting_fields(SERVER_DEFAULTS) if field.key in PLANNER_SETTINGS}
    once = Option(["--once"], is_flag=True, help="Run once and exit.")

    @click.pass_obj
    def run_planner(session: Session, /, once: bool, **values: Any) -> int:
        given = {name: read_field(fields[name], value) for name, value in values.items() if value is not None}
        return _run(session, given, once=once)

    params = [once, *(option_for(field) for field in fields.values()), *global_options()]
    text = str(planner.__doc__)
    return SectionedCommand("planner", params=params, callback=run_planner, help=text, short_help=text)


def _run(session: Session, given: dict[str, Any], *, once: bool) -> int:
    from timewright.planner.factory import build_planner

    settings = session.settings(given, strict=True, base=SERVER_DEFAULTS)
    if settings.planner == "off":
        settings = replace(settings, planner="heuristic")
    with session.context(operations["analysis list"], {}) as context:
        planner_loop = build_planner(context, settings, clock=SystemClock(), on_error=session.print_note)
        if once:
            analyses = planner_loop.run_once()
            session.print(
                _format_analyses(analyses)
                if session.output == "table"
                else [serialize(analyses, session.output)]
            )
            return 0
        stop_signal = StopSignal()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop_signal.set())
        planner_loop.start()
        every = format_duration(settings.planner_every)
        session.print_note(f"the {settings.planner} planner runs every {every}; Ctrl-C stops it")
        while not stop_signal.wait():
            continue
        planner_loop.stop()
    return 0


def _format_analyses(analyses: list[dict[str, Any]]) -> list[str]:
    return [f"{one['schedule']}: {one['reasoning']}" for one in analyses] or ["no schedule needs attention"]
