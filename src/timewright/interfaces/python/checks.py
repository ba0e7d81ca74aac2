"""Argument checks of the Python interface, and hints for names of other schedulers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, get_args

from msgspec.structs import asdict

from timewright.core.calendars import Calendar
from timewright.core.definitions import MAX_OWNER_LENGTH
from timewright.core.input.decode import decode
from timewright.core.input.input_errors import check_name, input_error
from timewright.core.zones import name_of_zone
from timewright.errors import Conflict, InvalidInput, NotAllowed, NotFound, TimewrightError
from timewright.interfaces.python.resources import PLURALS, UnknownMethod
from timewright.operations import operations
from timewright.operations.definitions.programs import EditRule, Program
from timewright.operations.request_parsing import parse_request
from timewright.settings import Settings
from timewright.wiring import is_importing_for_worker

_SCHEDULE_EXAMPLE = '@app.schedule(every("5m")), or app.schedule(every("5m"), name="tidy")(function)'
_CRON_EXAMPLE = '@app.schedule("0 9 * * mon-fri", zone="Europe/Berlin")'
_CALL_EXAMPLE = "app.schedules.{verb}(name)"

# Names of other schedulers and what to use instead.
REPLACEMENTS: dict[str, str] = {
    **dict.fromkeys(
        ("add", "add_job", "add_schedule", "scheduled_job", "every", "periodic", "job"), _SCHEDULE_EXAMPLE
    ),
    **dict.fromkeys(("periodic_task", "cron", "crontab", "repeat_every", "do"), _CRON_EXAMPLE),
    **dict.fromkeys(("get_jobs", "jobs", "get_schedules", "print_jobs"), "app.schedules.list()"),
    **dict.fromkeys(
        ("remove_job", "remove_schedule", "cancel", "delete", "revoke"), _CALL_EXAMPLE.format(verb="delete")
    ),
    **dict.fromkeys(("pause_job", "pause_schedule", "pause"), _CALL_EXAMPLE.format(verb="pause")),
    **dict.fromkeys(("resume_job", "unpause_schedule", "resume"), _CALL_EXAMPLE.format(verb="resume")),
    **dict.fromkeys(("modify_job", "reschedule_job", "update"), _CALL_EXAMPLE.format(verb="update")),
    **dict.fromkeys(("trigger", "trigger_job", "delay", "apply_async", "enqueue"), "app.run_now(name)"),
    **dict.fromkeys(("shutdown", "close", "terminate"), "app.stop()"),
    **dict.fromkeys(
        ("run_pending", "run_forever", "serve", "start_in_background"), "app.run(), or with app:"
    ),
    **dict.fromkeys(("add_listener", "on_event"), '@app.on("failed")'),
    **dict.fromkeys(("on_success", "on_complete", "on_done"), "@app.on_completed"),
    **dict.fromkeys(("on_failure", "on_error"), "@app.on_failed"),
    **dict.fromkeys(("running", "started"), "app.is_running"),
}


def checked_program(name: str, *, declares_all: bool, edits: EditRule) -> Program:
    """Return the program that a scheduler stands for; one that declares all of its schedules needs a name."""
    if edits not in get_args(EditRule):
        raise input_error("edits", edits, "is not a rule", rule="warn or refuse", fix='edits="warn"')
    if declares_all and not name:
        rule = "a program that archives what it no longer declares needs a name, to know what is its own"
        raise input_error("name", name, "is missing", rule=rule, fix='Scheduler(name="payments")')
    name = check_name(name, field="name", max_length=MAX_OWNER_LENGTH) if name else ""
    return Program(name=name, declares_all=bool(declares_all), edits=edits)


def unknown_attribute(thing: object, name: str) -> AttributeError:
    """Return the error for an unknown attribute; it is also an AttributeError."""
    if name.startswith("_"):
        return AttributeError(name)  # Python and its tools probe such names
    known = [one for one in dir(thing) if not one.startswith("_")]
    near = get_close_matches(name, known, n=1, cutoff=0.7)
    fix = (
        REPLACEMENTS.get(name)
        or _operation_named(name)
        or (f"did you mean app.{near[0]}?" if near else "dir(app) lists the attributes")
    )
    return UnknownMethod(
        f"{type(thing).__name__} has no attribute {name!r}",
        field=name,
        value=name,
        rule="an attribute or method of the scheduler",
        fix=fix,
    )


def _operation_named(verb: str) -> str:
    """Return the call of an operation that has this verb, of a schedule or a run if there is one."""
    first = {"schedule": 0, "run": 1}
    known = sorted(operations, key=lambda one: first.get(one.noun, 2))
    if any(one.name == verb for one in known):
        return f'app.call("{verb}")'
    for one in known:
        if one.verb == verb and one.noun in PLURALS:
            return f"app.{PLURALS[one.noun]}.{verb}(…)"
    return ""


def name_for(function: Callable[..., Any], name: str | None) -> str:
    """Return the given schedule name, else the name of the function."""
    if name is not None:
        return check_name(name)
    own = getattr(function, "__name__", "")
    if own and own != "<lambda>":
        return check_name(own)
    shown = "a lambda" if own else f"a {type(function).__name__}"
    raise InvalidInput(
        f"{shown} has no name",
        field="name",
        rule="a schedule is identified by its name when the program restarts",
        fix='pass name="nightly-report"',
    )


def check_options(store: Any, *, clock: Any, observers: Any, namespace: Any) -> None:
    """Check the arguments of a scheduler before anything is opened."""
    if not isinstance(store, str | os.PathLike) or not str(store).strip():
        rule, fix = "a path, sqlite:///file or postgresql://…", 'Scheduler("timewright.db")'
        raise input_error("store", store, "is not a store", rule=rule, fix=fix)
    if clock is not None and not (hasattr(clock, "now") and hasattr(clock, "monotonic")):
        raise input_error(
            "clock", clock, "is not a clock", rule="an object with now() and monotonic()", fix="leave it out"
        )
    for number, one in enumerate(observers):
        if not callable(getattr(one, "notify", None)):
            fix = '@app.on("failed") for a function'
            raise input_error(
                f"observers[{number}]", one, "is not an observer", rule="an object with notify(fact)", fix=fix
            )
    check_name(namespace, field="namespace")


def checked_settings(settings: Any) -> Settings:
    """Return the given settings, validated, or the defaults."""
    if settings is None:
        return Settings()
    if isinstance(settings, Settings):
        return decode(asdict(settings), Settings)
    rule, fix = "a Settings", "settings=Settings(threads=8)"
    raise input_error("settings", settings, "is not a Settings object", rule=rule, fix=fix)


def checked_calendar(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the request that stores a declared calendar; raises at once if it can never be valid."""
    request = {key: name_of_zone(value) for key, value in fields.items()} | {"name": check_name(name)}
    parsed = parse_request(request, operations["calendar put"].request_type)
    decode(parsed.calendar, Calendar, base={"namespace": "default"})
    return request


def schedule_name(schedule: str | Callable[..., Any], registered: Iterable[Any]) -> str:
    """Return the schedule name for a name or a registered function."""
    if isinstance(schedule, str):
        return schedule
    names = [one.name for one in registered if one.function == schedule]
    if len(names) == 1:
        return str(names[0])
    shown = getattr(schedule, "__name__", schedule)
    why = f"is registered as {' and '.join(names[:3])}" if names else "is not registered"
    fix = f"run_now({names[0]!r})" if names else "the name of a schedule"
    raise input_error(
        "schedule", shown, why, rule="a schedule name or a registered function", fix=fix, kind=NotFound
    )


def already_declared(name: str) -> Conflict:
    """Return the error for a second declaration of a name."""
    return Conflict(
        f"a schedule is already declared as {name!r}",
        field="name",
        value=name,
        rule="each declared schedule needs its own name",
        fix="pass another name=, or give one schedule a list of triggers",
    )


def not_saved_yet(name: str) -> NotFound:
    """Return the error for a schedule that is declared but not saved yet."""
    return NotFound(
        f"schedule {name!r} is declared but not saved yet",
        field="schedule",
        value=name,
        rule="declared schedules are saved when the scheduler starts",
        fix="call app.start(), or use `with app:`",
    )


def check_may_start(*, hosted: bool) -> None:
    """Refuse to start a scheduler whose file was imported by `timewright up` or by a worker process."""
    if hosted or is_importing_for_worker():
        raise NotAllowed(
            "this scheduler is run by the process that loads it",
            rule="timewright up --app and worker processes import the file, and the scheduler runs elsewhere",
            fix='call start() only under if __name__ == "__main__":',
        )


def stopped_error(kind: type[TimewrightError] = NotAllowed, detail: str = "") -> TimewrightError:
    """Return the error for a stopped scheduler."""
    return kind(
        f"this scheduler was stopped{detail}",
        rule="a stopped scheduler cannot be used again",
        fix="create a new Scheduler",
    )
