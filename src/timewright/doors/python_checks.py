"""What is refused at the embedded door, and what people type there who come from another scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from msgspec.structs import asdict

from timewright.core.names import check_name
from timewright.core.refusals import refused
from timewright.core.vocabulary import decode
from timewright.doors.nouns import NoVerb
from timewright.errors import Conflict, InvalidInput, NotAllowed, NotFound, TimewrightError
from timewright.settings import Settings

_DECORATE = '@app.schedule(every("5m")), or app.schedule(every("5m"), name="tidy")(function)'
_CRON = '@app.schedule("0 9 * * mon-fri", zone="Europe/Berlin")'
_KEEP = "app.schedules.{verb}(name)"

SAID_HERE: dict[str, str] = {
    **dict.fromkeys(
        ("add", "add_job", "add_schedule", "scheduled_job", "every", "periodic", "job"), _DECORATE
    ),
    **dict.fromkeys(("periodic_task", "cron", "crontab", "repeat_every", "do"), _CRON),
    **dict.fromkeys(("get_jobs", "jobs", "get_schedules", "print_jobs"), "app.schedules.list()"),
    **dict.fromkeys(
        ("remove_job", "remove_schedule", "cancel", "delete", "revoke"), _KEEP.format(verb="delete")
    ),
    **dict.fromkeys(("pause_job", "pause_schedule", "pause"), _KEEP.format(verb="pause")),
    **dict.fromkeys(("resume_job", "unpause_schedule", "resume"), _KEEP.format(verb="resume")),
    **dict.fromkeys(("modify_job", "reschedule_job", "update"), _KEEP.format(verb="update")),
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


def no_such_name(thing: object, name: str) -> AttributeError:
    """The answer to an attribute that a scheduler does not have, also in the words of Python."""
    if name.startswith("_"):
        return AttributeError(name)  # Python itself and its tools ask for such names
    known = [one for one in dir(thing) if not one.startswith("_")]
    near = get_close_matches(name, known, n=1, cutoff=0.7)
    fix = SAID_HERE.get(name) or (f"did you mean app.{near[0]}?" if near else "dir(app) lists what there is")
    return NoVerb(
        f"a {type(thing).__name__} has no {name!r}",
        field=name,
        value=name,
        rule="a name of the embedded door",
        fix=fix,
    )


def name_for(function: Callable[..., Any], name: str | None) -> str:
    """The name of a schedule: the one that was given, else the function's own if it has one."""
    if name is not None:
        return check_name(name)
    own = getattr(function, "__name__", "")
    if own and own != "<lambda>":
        return check_name(own)
    shown = "a lambda" if own else f"a {type(function).__name__}"
    raise InvalidInput(
        f"{shown} has no name of its own",
        field="name",
        rule="a schedule is known again by its name when the program restarts",
        fix='name="nightly-report" beside the trigger',
    )


def check_options(store: Any, *, clock: Any, observers: Any, namespace: Any) -> None:
    """Refuse what no scheduler could be made of, before anything is opened."""
    if not isinstance(store, str | os.PathLike):
        rule, fix = "a path, sqlite:///file or postgresql://…", 'Scheduler("timewright.db")'
        raise refused("store", store, "is no place", rule=rule, fix=fix)
    if clock is not None and not (hasattr(clock, "now") and hasattr(clock, "monotonic")):
        raise refused(
            "clock", clock, "shows no time", rule="what has now() and monotonic()", fix="leave it out"
        )
    for number, one in enumerate(observers):
        if not callable(getattr(one, "note", None)):
            fix = '@app.on("failed") for a function'
            raise refused(f"observers[{number}]", one, "cannot be told", rule="what has note(fact)", fix=fix)
    check_name(namespace, field="namespace")


def read_settings(settings: Any) -> Settings:
    """The settings that were given, each value checked; without any those of everyone."""
    if settings is None:
        return Settings()
    if isinstance(settings, Settings):
        return decode(asdict(settings), Settings)
    rule, fix = "a Settings", "settings=Settings(threads=8)"
    raise refused("settings", settings, "are none", rule=rule, fix=fix)


def schedule_of(schedule: str | Callable[..., Any], registered: Iterable[Any]) -> str:
    """The name of a schedule that is meant by its name, or by its function."""
    if isinstance(schedule, str):
        return schedule
    names = [one.name for one in registered if one.function == schedule]
    if len(names) == 1:
        return str(names[0])
    shown = getattr(schedule, "__name__", schedule)
    why = f"is registered as {' and '.join(names[:3])}" if names else "is registered under no name here"
    fix = f"run_now({names[0]!r})" if names else "the name of a schedule"
    raise refused("schedule", shown, why, rule="a name, or a function that has one", fix=fix, kind=NotFound)


def already_declared(name: str) -> Conflict:
    """The refusal of a second declaration."""
    return Conflict(
        f"a schedule is already declared as {name!r}",
        field="name",
        value=name,
        rule="a name means one schedule, and what was declared first would be lost",
        fix="give one of them another name=, or one schedule a list of triggers",
    )


def not_kept_yet(name: str) -> NotFound:
    """The refusal for a schedule that is only declared."""
    return NotFound(
        f"the schedule {name!r} is declared, and not kept yet",
        field="schedule",
        value=name,
        rule="what a program declares is kept when its scheduler starts",
        fix="app.start(), or with app: around it",
    )


def was_stopped(kind: type[TimewrightError] = NotAllowed, more: str = "") -> TimewrightError:
    """The refusal after the end."""
    return kind(
        f"this scheduler was stopped{more}",
        rule="stop closes the store, and is the end",
        fix="make a new Scheduler",
    )
