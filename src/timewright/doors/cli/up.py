"""One process that runs what is due, and answers: what it says when it begins, stays and ends."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec.structs import replace

from timewright.assembly import (
    HOSTED,
    House,
    doorkeeper_for,
    load_registry,
    new_registry,
    open_store,
    surroundings_for,
)
from timewright.clocks import SystemClock
from timewright.core.moments import spell_duration
from timewright.doors.cli.session import Session, file_of, look, shown_place
from timewright.doors.cli.settings import BASE
from timewright.doors.cli.table import clean, screen_at
from timewright.doors.cli.times import away, instant_in, local_zone, next_time, zone_name
from timewright.doors.ending import Ending
from timewright.doors.http.addresses import is_loopback
from timewright.errors import TimewrightError, UnsafeStore
from timewright.operations import Context, operations
from timewright.ports import Store
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.doors.cli.door import Door
    from timewright.planner.watch import Planner

Role = Literal["up", "serve", "worker"]

OLDEST_CLOCK = datetime(2024, 1, 1, tzinfo=UTC)
AT_ONCE = 1.5
COUNTED = 1000
LONGEST_IMPORT = 10.0


class Engine:
    """An instance, from its first word to its last."""

    def __init__(
        self, session: Session, house: House, *, door: Door | None = None, runs: bool = True
    ) -> None:
        self._session = session
        self._house = house
        self._door = door
        self._runs = runs
        self._asked = 0
        self._ended = Ending()
        self._trouble = ""
        self._planner: Planner | None = None

    @property
    def context(self) -> Context:
        """What an operation needs to look at this instance's store."""
        return replace(self._house.context(), namespace=self._session.namespace)

    def start(self) -> None:
        """Begin to run what is due and to answer; from here on a signal is heard, and not suffered."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._hear)
        if self._door is not None:
            self._session.note(*self._door.open(self._house, engine=self._runs))
        if self._runs:
            self._house.start()
        if self._planner is not None:
            self._planner.start()

    def plan_with(self, settings: Settings) -> None:
        """Let the planner that the settings ask for look beside the engine, once it is started."""
        from timewright.planner.choice import planner_for

        self._planner = planner_for(
            self._house.context(), settings, clock=SystemClock(), trouble=self._session.note
        )

    def stay(self) -> int:
        """Stay until asked to end, then stop gracefully; asked twice, stop at once."""
        while not self._ended.is_near():
            self._tell_trouble()
        left = len(self._house.launcher)
        if left:
            wait = spell_duration(self._house.settings.stop_wait)
            self._session.note(
                f"stopping: {_counted(left, 'run')} under way, for at most {wait}; Ctrl-C again stops at once"
            )
        if self._house.loop.pulse.errors_in_a_row:
            self._session.note("stopping: the store does not answer, so nothing can be given back to it")
        if self._door is not None:
            self._door.close()
        if self._planner is not None:
            self._planner.stop(wait=timedelta(seconds=AT_ONCE))
        undone = self._house.stop()
        if self._asked > 1:
            # Whoever stops at once ends the process, and has the last word.
            threading.Event().wait(2 * AT_ONCE)
        self._session.note(f"stopped — {undone or self._what_is_left()}")
        self._house.close()
        return 0

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        self._ended.say()
        if self._asked == 2:
            threading.Thread(target=self._stop_at_once, daemon=True).start()
        if self._asked > 2:
            os._exit(130)

    def _stop_at_once(self) -> None:
        """Give back what is under way and end what we started; what does not obey is left to its lease."""
        giving_back = threading.Thread(target=self._give_back, daemon=True)
        giving_back.start()
        giving_back.join(AT_ONCE)
        left = "what was under way is taken up when its lease is over"
        self._session.note(f"stopped at once — {left if giving_back.is_alive() else self._what_is_left()}")
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(130)

    def _give_back(self) -> None:
        self._house.loop.stop(wait=timedelta(0))
        self._house.targets.close(grace=timedelta(0))

    def _tell_trouble(self) -> None:
        pulse = self._house.loop.pulse
        trouble = pulse.last_error if pulse.errors_in_a_row else self._policy_trouble()
        if trouble != self._trouble:
            # Also when nobody wants other words; and a closed terminal stops nobody.
            with suppress(OSError):
                click.echo(
                    f"trouble: {clean(trouble)}; it is tried again" if trouble else "going on", err=True
                )
        self._trouble = trouble

    def _policy_trouble(self) -> str:
        """Why nothing is leased from queues, if that is so; an edited file is in force from here on."""
        try:
            refusal = self._house.keep_policies()
        except TimewrightError as error:
            return error.message
        return f"{refusal}; nothing is leased from queues" if refusal else ""

    def _what_is_left(self) -> str:
        try:
            return self._kept()
        except TimewrightError as error:
            return f"{_shown(self._session.place)} does not answer: {error.message}"

    def _kept(self) -> str:
        counts = operations["health"](self.context, {})
        waiting = counts["ready_runs"] + counts["held_runs"]
        parts = [_counted(_schedules(self.context), "schedule")]
        parts += [f"{_counted(waiting, 'run')} that wait"] if waiting else []
        held = counts["leased_runs"]
        parts += [f"{_counted(held, 'run')} that others hold"] if held else []
        return f"{', '.join(parts)} and the history are kept in {_shown(self._session.place)}"


def run_instance(session: Session, *, role: Role, app: str | None, given: Mapping[str, Any]) -> int:
    """Open the store, start what the role asks for, say so, and stay until asked to stop."""
    began = SystemClock().monotonic()
    settings = settings_for(session, given)
    outside = look(session.place)
    registry = _functions(session, settings, app) if role != "serve" else new_registry()
    door = _door(session, settings) if role != "worker" else None
    store = open_store(session.place)
    _check_clock(store.now())
    # Without functions and their modules, nothing here starts processes but our own commands.
    isolated, own_process = len(registry) > 0, app is None and not len(registry)
    house = _house(session, settings, store, registry, door, isolated=isolated, own_process=own_process)
    engine = Engine(session, house, door=door, runs=role != "serve")
    _keep_declared(engine.context, app)
    if role == "up" and settings.planner != "off":
        engine.plan_with(settings)
    age = "existing" if outside.exists else "new"
    about = f"{_shown(session.place)} ({age}, durable)"
    zone = zone_name(local_zone(store.now()))
    session.note(f"timewright {_version()} · {outside.engine} · {about} · zone {zone}")
    engine.start()
    seconds = _age(SystemClock().monotonic(), began)
    ready, *tries = _first_words(session, engine.context, hints=role == "up")
    session.note(f"ready in {seconds:.1f} s — {ready}", *tries)
    return engine.stay()


def settings_for(session: Session, given: Mapping[str, Any]) -> Settings:
    """The settings in force; a door that other machines reach closes our own machine to HTTP targets."""
    settings = session.settings(given, strict=True, base=BASE)
    if is_loopback(settings.bind):
        return settings
    return session.settings(given, strict=True, base=replace(BASE, local=False))


def _door(session: Session, settings: Settings) -> Door:
    from timewright.doors.cli.door import Door
    from timewright.doors.http.events import Hub

    return Door(session, settings, hub=Hub(secrets.token_hex(4)))


def _house(
    session: Session,
    settings: Settings,
    store: Store,
    registry: Any,
    door: Door | None,
    *,
    isolated: bool,
    own_process: bool,
) -> House:
    return House(
        store,
        settings=settings,
        registry=registry,
        isolated=isolated,
        own_process=own_process,
        doorkeeper=doorkeeper_for(session.place, settings),
        surroundings=surroundings_for(session.place, settings, config=session.config),
        observers=[door.hub] if door is not None else [],
        own_ports=[door.server.port] if door is not None else [],
        own_addresses=door.addresses if door is not None else [],
        namespace=session.namespace,
    )


def _first_words(session: Session, context: Context, *, hints: bool) -> list[str]:
    """How much is scheduled, and what to try next."""
    count = _schedules(context)
    if not count:
        text = "nothing scheduled yet"
        ask = session.command("schedule create hello --every 5s --note 'hello'")
        return [f"{text}. Try, in another terminal:", f"  {ask}"] if hints else [text]
    rows = operations["schedule list"](context, {"state": "active", "limit": COUNTED})["schedules"]
    upcoming = min(((row["next_at"], row["name"]) for row in rows if row["next_at"]), default=None)
    text = _counted(count, "schedule")
    moment = instant_in(upcoming[0]) if upcoming is not None else None
    if upcoming is not None and moment is not None:
        now = context.now()
        at = next_time(moment, now=now, zone=screen_at(now).zone)
        text = f"{text}, next {upcoming[1]} {at} ({away(moment, now=now)})"
    ask = session.command("run list --follow")
    return [f"{text}. Look, in another terminal:", f"  {ask}"] if hints else [text]


def _functions(session: Session, settings: Settings, app: str | None) -> Any:
    """What schedules may call here: the functions of the app, and those that installed packages offer."""
    installed = settings.entry_points
    registry = _load(app, place=session.place) if app else new_registry()
    registry.installed = installed
    for name, why in (registry.load_entry_points() if installed else {}).items():
        session.note(f"note: the function {name} of an installed package cannot be used: {why}")
    return registry


def _load(app: str, *, place: str) -> Any:
    """The functions of an app, on our store; it is found where we were started, as with `python -m`."""
    path = file_of(place)
    os.environ[HOSTED] = place if path is None else str(path.absolute())
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return load_registry(app)


def _keep_declared(context: Context, app: str | None) -> None:
    """Keep the schedules that the app declares beside its functions, as it would when it starts itself."""
    if app is None:
        return
    from timewright.doors.python import Scheduler
    from timewright.doors.python_async import AsyncScheduler

    module, _, path = app.partition(":")
    names = vars(sys.modules[module])
    found = [names[path]] if path in names else list(names.values())
    declares = (Scheduler, AsyncScheduler)
    for scheduler in {id(one): one for one in found if isinstance(one, declares)}.values():
        for declared in scheduler.declared:
            operations["schedule put"](context, declared)


def _check_clock(now: datetime) -> None:
    if now < OLDEST_CLOCK:
        raise UnsafeStore(
            f"the clock says {now:%Y-%m-%d}",
            field="clock",
            value=now.isoformat(),
            rule="a clock that was set",
            fix="set the clock of this machine, and start again",
        )


def _schedules(context: Context) -> int:
    return len(operations["schedule list"](context, {"limit": COUNTED})["schedules"])


def _counted(count: int, what: str) -> str:
    many = f"{COUNTED} or more" if count >= COUNTED else str(count)
    return f"{many} {what}{'s' if count != 1 else ''}"


def _shown(place: str) -> str:
    path = file_of(place)
    if path is None:
        return shown_place(place)
    return str(path) if path.is_absolute() else f"./{path}"


def _version() -> str:
    from importlib.metadata import version

    return version("timewright")


def _age(now: float, began: float) -> float:
    """How long ago this process was started, where the system tells; else since we began."""
    try:
        started = int(Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[19])
        age = now - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now - began
    # A container may count from another instant than its processes do.
    return age if now - began <= age <= now - began + LONGEST_IMPORT else now - began
