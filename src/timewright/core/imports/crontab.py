"""Reads crontabs: those of a user, and those of the system, which have a user column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from timewright.core.imports.cron_text import add_cron, cron_problem
from timewright.core.imports.report import (
    Entry,
    Imported,
    ImportOptions,
    clean_name,
    collect,
    shell_target,
)
from timewright.core.input.input_errors import input_error
from timewright.core.target import may_set_variable

# What FreeBSD and Debian know beyond the usual shorthands.
_EVERY_WORDS = {"@every_minute": "* * * * *", "@every_second": "@every 1s"}
SHORTHANDS = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_ASSIGNMENT = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z_][A-Za-z0-9_]*))\s*=\s*(.*?)\s*""")
_FIELDS = re.compile(r"\s*(-?)((?:\S+\s+){5})(.+)")
_NICKNAME = re.compile(r"\s*(-?)(@\w+)\s+(.+)")
_EVERY = re.compile(r"\s*(-?)@every\s+(\S+)\s+(.+)", re.IGNORECASE)
# FreeBSD writes user:group/class.
_USER = re.compile(r"([A-Za-z_][\w.$-]*(?::[\w./-]+)?)\s+(.+)")
# Comments that say nothing about the line after them: a disabled line, and the heading of the columns.
_NO_DESCRIPTION = re.compile(r"[\d*@-]\S*(?:\s+[\w*/,~-]+){4}\s.*|@\w+\s.*|m\s+h\s+dom.*")
_RULE = "comments, NAME=value, or a time and a command"
# Words before the program, which say nothing about it.
_WRAPPERS = frozenset(
    {"cd", "nice", "ionice", "sudo", "env", "exec", "flock", "timeout", "chronic", "bash", "sh"}
)
_SETUP = frozenset({"cd", ".", "source", "test", "[", "sleep", "umask", "export"})
_MAIL = {
    "MAILTO": "Timewright sends no mail for output; it is kept with each run (`timewright run logs`)",
    "MAILFROM": "Timewright sends no mail for output",
    "CONTENT_TYPE": "it describes mail, and Timewright sends none",
    "CONTENT_TRANSFER_ENCODING": "it describes mail, and Timewright sends none",
    "START_HOURS_RANGE": "it is a setting of anacron; give the command a time within those hours",
    "LOGNAME": "cron does not let a crontab change it either",
    "USER": "cron does not let a crontab change it either",
}


def import_crontab(files: Mapping[str, str], options: ImportOptions) -> Imported:
    """Import the crontabs of users (`crontab -l`)."""
    return _import(files, options, has_user=False)


def import_system_crontab(files: Mapping[str, str], options: ImportOptions) -> Imported:
    """Import `/etc/crontab` and files of `/etc/cron.d`, where a user precedes the command."""
    return _import(files, options, has_user=True)


def _import(files: Mapping[str, str], options: ImportOptions, *, has_user: bool) -> Imported:
    entries = [
        entry
        for name, text in files.items()
        for entry in _Crontab(name, options, has_user=has_user).read(text)
    ]
    return collect(entries)


class _Crontab:
    """One crontab: its variables apply to the lines after them."""

    def __init__(self, name: str, options: ImportOptions, *, has_user: bool) -> None:
        self.name = name.rpartition("/")[2]
        self.zone = options.zone
        self.has_user = has_user
        self.variables: dict[str, str] = {}
        self.shell = "/bin/sh"
        self.jitter = ""
        self.comment: list[str] = []

    def read(self, text: str) -> Iterator[Entry]:
        """Read all lines; variables become entries that only report."""
        defaults = Entry(self.name, place=self.name)
        defaults.is_report_only = True
        defaults.add_translated("(zone)", self.zone, "the zone of the schedules; a crontab does not name it")
        note = "cron repeats nothing it missed, starts a run beside a running one and does not retry"
        defaults.add_translated("(behaviour)", "catch_up, overlap, retry", note)
        yield defaults
        for number, line in enumerate(text.splitlines(), start=1):
            place = f"{self.name}:{number}"
            stripped = line.strip()
            if not stripped or stripped.startswith("#"):
                comment = stripped.lstrip("#").strip()
                is_text = comment and not _NO_DESCRIPTION.fullmatch(comment)
                self.comment = [*self.comment, comment] if is_text else []
                continue
            assigned = _ASSIGNMENT.fullmatch(line)
            if assigned is not None:
                yield from self._assign(assigned, place)
            else:
                yield self._entry(line, place)
            self.comment = []

    def _assign(self, match: re.Match[str], place: str) -> Iterator[Entry]:
        name = match[1] or match[2] or match[3] or ""
        value = match[4]
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        setting = Entry(self.name, place=place)
        setting.is_report_only = True
        if name in _MAIL and (name != "MAILTO" or value):
            setting.report_lost(name, value, _MAIL[name])
        elif name == "MAILTO":
            setting.add_kept(name, value, "no mail is sent")
        elif name == "CRON_TZ":
            self._check_zone(value, place)
            self.zone = value
            setting.add_translated(name, value, "the zone of the schedules below it")
        elif name == "SHELL":
            self.shell = value
            setting.add_translated(name, value, "the program that runs the commands below it")
        elif name == "RANDOM_DELAY" and value.isdigit():
            self.jitter = f"{int(value)}m" if int(value) else ""
            setting.add_translated(name, value, "jitter of the schedules below it")
        elif not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            setting.report_lost(name, value, "the name of a variable has letters, digits and _")
        else:
            self.variables[name] = value
            note = "a variable of the commands below it"
            note += "" if may_set_variable(name) else ", set by env, because a target may not set it"
            note += "; cron does not expand variables in it, nor does Timewright" if "$" in value else ""
            (setting.add_kept if may_set_variable(name) else setting.add_translated)(name, value, note)
        yield setting

    def _check_zone(self, zone: str, place: str) -> None:
        if problem := cron_problem("0 0 * * *", zone=zone):
            rule, fix = "an IANA zone such as Europe/Berlin", "correct CRON_TZ"
            raise input_error(f"{place} CRON_TZ", zone, f"is not a zone: {problem}", rule=rule, fix=fix)

    def _entry(self, line: str, place: str) -> Entry:
        when, quiet, command = _split(line, place)
        user = ""
        if self.has_user:
            named = _USER.fullmatch(command)
            if named is None:
                rule = "a time, a user and a command"
                fix = "without a user column, import it as crontab"
                raise input_error(place, line, "has no user", rule=rule, fix=fix)
            user, command = named[1], named[2]
        text, stdin = _split_input(command)
        entry = Entry(_name_of(text), place=place)
        self._add_time(entry, when, place, line)
        self._add_command(entry, text, stdin, command)
        if quiet:
            entry.report_lost("-", "-", "runs are always recorded; cron would not log this one")
        if user:
            note = f"commands run as the user of the worker; run one as {user}, or call sudo in the command"
            entry.report_lost("user", user, note)
        if self.comment:
            text = " ".join(self.comment)[:1000]
            entry.add_translated("comment", text, "the description", description=text)
        if self.jitter:
            entry.add_translated("RANDOM_DELAY", self.jitter, "jitter", jitter=self.jitter)
        policies = {"catch_up": "none", "overlap": "allow", "retry": {"max_attempts": 1}}
        entry.definition |= policies
        return entry

    def _add_time(self, entry: Entry, when: str, place: str, line: str) -> None:
        word = _EVERY_WORDS.get(when.lower(), when.lower())
        if word == "@reboot":
            note = "run_at_start: it runs when an instance starts, which is not only at boot"
            entry.add_translated("time", when, note, trigger={"kind": "manual"}, run_at_start=True)
            return
        if word.startswith("@") and not word.startswith("@every ") and word not in SHORTHANDS:
            entry.drop_entry("time", when, f"not one of {', '.join((*SHORTHANDS, '@reboot'))}")
            return
        if word.startswith("@every "):
            entry.add_kept("time", when, trigger={"kind": "every", "interval": word.split()[1]})
            return
        text = word if when.startswith("@") else when
        # Vixie's rule: where a day field begins with `*`, both day fields must match.
        starred = any(day.startswith("*") for day in text.split()[2::2])
        if problem := add_cron(entry, "time", text, zone=self.zone, and_days=starred):
            raise input_error(
                place, line, f"is not a crontab line: {problem}", rule=_RULE, fix="correct the line"
            )

    def _add_command(self, entry: Entry, text: str, stdin: str | None, raw: str) -> None:
        script = text
        if stdin is not None:
            mark = "END_OF_INPUT"
            while mark in stdin.splitlines():
                mark += "_"
            script = f"{{ {text}\n}} <<'{mark}'\n{stdin}\n{mark}"
        target = shell_target([self.shell, "-c", script], self.variables)
        if "HOME" in self.variables:
            target["cwd"] = self.variables["HOME"]
        if stdin is not None:
            entry.add_translated("%", raw, "the text after % is the standard input, as a here-document")
        elif text != raw:
            entry.add_translated("%", raw, r"\% is a plain % here")
        note = f"run by {self.shell} -c, as cron does"
        if not self.has_user and raw.startswith("root "):
            note += "; if root is a user and not a program, import the file as system-crontab"
        entry.add_kept("command", text, note, target=target)


def _split(line: str, place: str) -> tuple[str, str, str]:
    """Return the time, `-` if logging is off, and the rest of a line."""
    for pattern in (_EVERY, _NICKNAME):
        match = pattern.fullmatch(line)
        if match is not None:
            word = f"@every {match[2]}" if pattern is _EVERY else match[2]
            return word, match[1], match[3].strip()
    match = _FIELDS.fullmatch(line)
    if match is None:
        raise input_error(
            place, line.strip(), "is not a crontab line", rule=_RULE, fix="0 3 * * * /usr/bin/backup"
        )
    return " ".join(match[2].split()), match[1], match[3].strip()


def _split_input(command: str) -> tuple[str, str | None]:
    r"""Split a command at its first plain `%`; further ones are line ends, and `\%` is a percent sign."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", command)]
    return parts[0].rstrip() if len(parts) > 1 else parts[0], "\n".join(parts[1:]) if len(parts) > 1 else None


def _name_of(command: str) -> str:
    """Return a name from the first program of a command, without its path and suffix."""
    for part in re.split(r"&&|\|\||[;|]", command):
        words = [word for word in part.split() if not re.match(r"[A-Za-z_]\w*=|-", word)]
        if words[:1] == ["flock"]:
            # The first argument is the lock.
            words = words[2:]
        for word in words:
            base = word.strip("\"'(){}").rpartition("/")[2]
            if base and base not in _WRAPPERS and not base.isdigit() and part.split()[0] not in _SETUP:
                return clean_name(re.sub(r"\.(sh|py|pl|rb|php)$", "", base), fallback="job")
    return "job"
