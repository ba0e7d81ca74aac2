"""Reads systemd timers and the services that they start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from timewright.core.imports.cron_text import NotTranslatable, calendar_to_cron, span_seconds
from timewright.core.imports.report import (
    Entry,
    Imported,
    ImportOptions,
    clean_name,
    collect,
    duration_text,
    shell_target,
)
from timewright.core.input.input_errors import input_error

Unit = dict[str, dict[str, list[str]]]

_RULE = "a unit file: [Section] and Key=value"
_TRUE = frozenset({"1", "yes", "true", "on", "y", "t"})
_SECTION = re.compile(r"\[([A-Za-z0-9-]+)\]")
_SPECIFIER = re.compile(r"%[a-zA-Z]")
_LOST = {
    "WakeSystem": "a worker cannot wake a machine that sleeps",
    "OnClockChange": "Timewright has no such trigger",
    "OnTimezoneChange": "Timewright has no such trigger",
    "RemainAfterElapse": "it is about unit objects in memory, which Timewright does not have",
    "DeferReactivation": "an occurrence during a run is always skipped",
    "Documentation": "there is no such field; put a link into the description",
    "User": "commands run as the user of the worker",
    "Group": "commands run as the group of the worker",
    "EnvironmentFile": "the worker reads no files of variables; set env of the target",
    "Restart": "set retry of the schedule",
    "RestartSec": "set retry.backoff of the schedule",
}
# In the order in which they run.
_COMMANDS = ("ExecStartPre", "ExecStart", "ExecStartPost")
_SERVICE_LIMITS = ("TimeoutStartSec", "RuntimeMaxSec", "TimeoutSec")
_RELATIVE = ("OnUnitActiveSec", "OnUnitInactiveSec")
_AT_START = ("OnBootSec", "OnStartupSec", "OnActiveSec")


def import_systemd(files: Mapping[str, str], options: ImportOptions) -> Imported:
    """Import timers; a service that is given too supplies the command, else the unit is started by name."""
    units: dict[str, Unit] = {}
    # Drop-ins (NAME.timer.d/*.conf) come after the unit that they change, in the order of their names.
    for name, text in sorted(files.items(), key=lambda one: (_is_drop_in(one[0]), one[0])):
        unit = name.split("/")[-2].removesuffix(".d") if _is_drop_in(name) else name.rpartition("/")[2]
        _read_unit(name, text, units.setdefault(unit, {}))
    timers = [name for name, unit in units.items() if "Timer" in unit]
    if not timers:
        found = ", ".join(units) or "no file"
        raise input_error("file", found, "has no [Timer] section", rule=_RULE, fix="give the .timer file")
    return collect([_timer(name, units, options) for name in timers])


def _is_drop_in(name: str) -> bool:
    return re.search(r"\.(timer|service)\.d/[^/]+$", name) is not None


def _read_unit(name: str, text: str, unit: Unit) -> None:
    """Read a file into a unit; a key may occur several times, and an empty value clears the earlier ones."""
    section: dict[str, list[str]] | None = None
    joined = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.endswith("\\") and line.lstrip()[:1] not in ("#", ";"):
            joined += line[:-1].strip() + " "
            continue
        stripped, joined = (joined + line.strip()).strip(), ""
        if not stripped or stripped[0] in "#;":
            continue
        header = _SECTION.fullmatch(stripped)
        if header is not None:
            section = unit.setdefault(header[1], {})
            continue
        key, sign, value = stripped.partition("=")
        if not sign or section is None or not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", key.strip()):
            raise input_error(
                f"{name}:{number}", stripped, "is not a line of a unit", rule=_RULE, fix="Key=value"
            )
        values = section.setdefault(key.strip(), [])
        if value.strip():
            values.append(value.strip())
        else:
            values.clear()


def _timer(name: str, units: Mapping[str, Unit], options: ImportOptions) -> Entry:
    unit = units[name]
    stem = name.removesuffix(".timer")
    entry = Entry(clean_name(stem, fallback="timer"), place=name)
    if stem.endswith("@"):
        note = f"a template; copy the file to {stem}INSTANCE.timer, and write the instance instead of %i"
        entry.drop_entry("(name)", name, note)
    timer = {key: values for key, values in unit["Timer"].items() if values}
    _add_triggers(entry, timer, options)
    _add_policies(entry, timer)
    _add_description(entry, unit)
    service = timer.get("Unit", [f"{stem}.service"])[-1]
    if "Unit" in timer:
        entry.add_kept("Timer.Unit", service)
    _add_service(entry, service, units.get(service))
    known = {*_RELATIVE, *_AT_START, "OnCalendar", "Unit", "Persistent", "AccuracySec"}
    known |= {"RandomizedDelaySec", "RandomizedOffsetSec", "FixedRandomDelay"}
    _lose(entry, timer, known, prefix="Timer.")
    _add_sections(entry, unit, "Timer")
    return entry


def _add_sections(entry: Entry, unit: Unit, own: str, *, prefix: str = "") -> None:
    """Report the sections of a unit beside `[Unit]` and its own."""
    for section in unit:
        if section not in (own, "Unit", "Install"):
            entry.report_lost(prefix + section, list(unit[section]), "not a section that this importer knows")
    for key, values in unit.get("Install", {}).items():
        field, value = f"{prefix}Install.{key}", values[-1] if values else ""
        if key in ("WantedBy", "RequiredBy", "Also", "Alias"):
            entry.add_translated(field, value, "a schedule is active once applied")
        else:
            entry.report_lost(field, value, "not a field that this importer knows")


def _add_triggers(entry: Entry, timer: Mapping[str, list[str]], options: ImportOptions) -> None:
    triggers: list[dict[str, Any]] = []
    for text in timer.get("OnCalendar", ()):
        try:
            expression, zone = calendar_to_cron(text)
        except NotTranslatable as error:
            entry.drop_entry("Timer.OnCalendar", text, str(error))
            return
        trigger = {"kind": "cron", "expression": expression, "zone": zone or options.zone, "dst": "skip_once"}
        triggers.append(trigger)
        where = "the zone it names" if zone else f"the zone of the machine, taken as {options.zone}"
        entry.add_translated("Timer.OnCalendar", text, f"cron {expression}, {where}")
    for key in _RELATIVE:
        for text in timer.get(key, ()):
            seconds = _span(entry, f"Timer.{key}", text)
            if not seconds:
                return
            interval = duration_text(seconds)
            if key == "OnUnitActiveSec":
                entry.add_translated(
                    f"Timer.{key}", text, "every, counted from the start of the last run", align="from_now"
                )
                triggers.append({"kind": "every", "interval": interval})
            else:
                entry.add_translated(f"Timer.{key}", text, "after the end of the last run")
                triggers.append({"kind": "after", "delay": interval})
    starts = [(key, text) for key in _AT_START for text in timer.get(key, ())]
    for key, text in starts:
        if triggers:
            entry.report_lost(
                f"Timer.{key}", text, "the first run comes one interval after the schedule is created"
            )
        else:
            note = "run_at_start: it runs when an instance starts, without the delay"
            entry.add_translated(f"Timer.{key}", text, note, run_at_start=True)
    if not triggers and not starts:
        entry.drop_entry("Timer", list(timer), "it has no time")
    if len({one["kind"] for one in triggers} & {"after"}) and len(triggers) > 1:
        entry.drop_entry("Timer", list(timer), "a delay after the end cannot be combined with other times")
    entry.definition["trigger"] = triggers[0] if len(triggers) == 1 else triggers or {"kind": "manual"}


def _add_policies(entry: Entry, timer: Mapping[str, list[str]]) -> None:
    entry.definition |= {"overlap": "skip", "catch_up": "none", "retry": {"max_attempts": 1}}
    entry.add_translated(
        "(behaviour)", "overlap", "systemd does not start a unit that is active: overlap: skip"
    )
    persistent = timer.get("Persistent", ["no"])[-1]
    if persistent.lower() in _TRUE:
        note = "catch_up: last, without a window"
        entry.add_translated("Timer.Persistent", persistent, note, catch_up="last", catch_up_window=None)
    elif "Persistent" in timer:
        entry.add_translated("Timer.Persistent", persistent, "catch_up: none")
    if "AccuracySec" in timer:
        entry.report_lost(
            "Timer.AccuracySec",
            timer["AccuracySec"][-1],
            "occurrences start at their instant; nothing is coalesced",
        )
    for key in ("RandomizedDelaySec", "RandomizedOffsetSec"):
        seconds = _span(entry, f"Timer.{key}", timer[key][-1]) if key in timer else None
        if seconds:
            fixed = key == "RandomizedOffsetSec" or timer.get("FixedRandomDelay", ["no"])[-1].lower() in _TRUE
            more = {"offset": "stable"} if fixed else {}
            note = "jitter, the same for every occurrence" if fixed else "jitter"
            entry.add_translated(f"Timer.{key}", timer[key][-1], note, jitter=duration_text(seconds), **more)
    if "FixedRandomDelay" in timer:
        entry.add_translated(
            "Timer.FixedRandomDelay", timer["FixedRandomDelay"][-1], "offset: stable, or none"
        )


def _add_description(entry: Entry, unit: Unit, *, prefix: str = "") -> None:
    """Take the description, of the timer rather than of its service, and report the rest of `[Unit]`."""
    for key, values in unit.get("Unit", {}).items():
        field, value = f"{prefix}Unit.{key}", values[-1] if values else ""
        if key != "Description":
            why = _LOST.get(key, "units do not depend on each other here; see `after` and `needs`")
            entry.report_lost(field, value, why)
        elif "description" in entry.definition:
            entry.report_lost(field, value, "the timer has a description too, which is taken")
        elif value:
            entry.add_kept(field, value, description=value)


def _add_service(entry: Entry, name: str, unit: Unit | None) -> None:
    if unit is None:
        start = {"kind": "shell", "command": ["systemctl", "start", name]}
        entry.add_translated(
            "(service)", name, "its file was not given, so the unit is started by name", target=start
        )
        return
    service = {key: values for key, values in unit.get("Service", {}).items() if values}
    commands = [text for key in _COMMANDS for text in service.get(key, ())]
    if not service.get("ExecStart"):
        entry.drop_entry("Service.ExecStart", name, "the service has no command")
        return
    env = dict(
        pair.partition("=")[::2]
        for line in service.get("Environment", ())
        for pair in _words(line, f"{name} Environment")
    )
    if env:
        entry.add_kept("Service.Environment", sorted(env))
    target = shell_target(_command(entry, commands, name), env)
    folder = service.get("WorkingDirectory", [""])[-1].lstrip("-")
    if folder.startswith("/"):
        entry.add_kept("Service.WorkingDirectory", folder)
        target["cwd"] = folder
    elif folder:
        entry.report_lost(
            "Service.WorkingDirectory", folder, "only an absolute path can be a working directory"
        )
    entry.definition["target"] = target
    _add_time_limit(entry, service)
    if "Type" in service:
        note = "the run ends when the command ends, as with oneshot"
        entry.add_translated("Service.Type", service["Type"][-1], note)
    known = {*_COMMANDS, *_SERVICE_LIMITS, "Environment", "WorkingDirectory", "Type"}
    _lose(entry, service, known, prefix="Service.")
    _add_description(entry, unit, prefix=f"{name} ")
    _add_sections(entry, unit, "Service", prefix=f"{name} ")


def _add_time_limit(entry: Entry, service: Mapping[str, list[str]]) -> None:
    """Set the time limit from the shortest of the limits of a service."""
    limits: list[float] = []
    for key in _SERVICE_LIMITS:
        if key not in service:
            continue
        text = service[key][-1]
        seconds = _span(entry, f"Service.{key}", text)
        if seconds:
            limits.append(seconds)
            limit = {"time_limit": duration_text(min(limits))}
            entry.add_translated(f"Service.{key}", text, "lease.time_limit; the shortest counts", lease=limit)
        elif text.strip() in ("infinity", "0"):
            entry.add_kept(f"Service.{key}", text, "no time limit")


def _words(text: str, field: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        rule, fix = "words, with quotation marks in pairs", "close the quotation"
        raise input_error(field, text, f"cannot be split into words: {error}", rule=rule, fix=fix) from None


def _command(entry: Entry, commands: list[str], unit: str) -> list[str]:
    """Return the command of a service; a shell runs several, one with variables, or one that may fail."""
    texts, needs_shell = [], len(commands) > 1
    for text in commands:
        command = text.lstrip("-@:+!|")
        prefix, command = text[: len(text) - len(command)], command.strip()
        if _SPECIFIER.search(command.replace("%%", "")):
            entry.report_lost(
                "Service.ExecStart", text, "specifiers such as %i are not replaced; write their value"
            )
        command = command.replace("%%", "%")
        if prefix.replace("-", ""):
            entry.report_lost("Service.ExecStart", prefix, 'only the prefix "-" is known here')
        may_fail = "-" in prefix
        needs_shell = needs_shell or may_fail or "$" in command
        # In braces, because `a && b || true && c` goes on to c although a failed.
        texts.append(f"{{ {command} || true; }}" if may_fail else command)
    if not needs_shell:
        entry.add_kept("Service.ExecStart", texts[0])
        return _words(texts[0], f"{unit} ExecStart")
    script = " && ".join(texts)
    entry.add_translated(
        "Service.ExecStart", script, "run by /bin/sh, because of several commands, a prefix or variables"
    )
    return ["/bin/sh", "-c", script]


def _span(entry: Entry, field: str, text: str) -> float | None:
    try:
        return span_seconds(text)
    except NotTranslatable as error:
        entry.report_lost(field, text, str(error))
        return None


def _lose(entry: Entry, given: Mapping[str, list[str]], known: set[str], *, prefix: str) -> None:
    for key, values in given.items():
        if key not in known:
            why = _LOST.get(key, "not a field that this importer knows")
            entry.report_lost(f"{prefix}{key}", values[-1], why)
