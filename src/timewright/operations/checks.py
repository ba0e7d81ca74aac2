"""What a doctor says of the surroundings: each finding is good, doubtful or bad, with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import DAY, spell_duration
from timewright.ports.surroundings import Condition, OwnFile, Surroundings
from timewright.settings import Settings

Status = Literal["ok", "warn", "fail"]

LEAST_FREE = 100 * 1024**2
LITTLE_FREE = 1024**3
LARGE_LOG = 256 * 1024**2
DOUBTED_OFFSET = 1.0
WRONG_OFFSET = 30.0
OLD_BACKUP = 7 * DAY
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_OTHERS = 0o077
_WRITE = 0o022


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at: how it is, in words, and what mends it."""

    check: str
    status: Status
    says: str
    fix: str = ""


def surroundings_findings(around: Surroundings, settings: Settings, *, now: datetime) -> Iterator[Finding]:
    """Everything that can be told without asking the store for rows."""
    yield Finding(check="version", status="ok", says=f"timewright {around.version}, Python {around.python}")
    yield from _store(around.condition)
    yield from _schema(around.condition)
    yield from _clock(around.condition, now=now)
    yield zone_data(around.zone_data, around.bundled_zone_data, now=now)
    for file in around.files:
        yield own_file(file)
    yield _extras(around.extras, settings)


def setting_findings(settings: Settings) -> Iterator[Finding]:
    """What the settings let happen."""
    if settings.shell:
        yield Finding(
            check="shell",
            status="warn",
            says="shell targets may run: whoever may write schedules runs commands as this user",
            fix="shell: false, unless everyone who may write schedules may do that",
        )
    else:
        yield Finding(check="shell", status="ok", says="shell targets are off")
    if settings.bind not in LOOPBACK and not settings.tls_cert and not settings.behind_proxy:
        yield Finding(
            check="bind",
            status="warn",
            says=f"the HTTP door answers at {settings.bind} in the clear: keys can be read on the way",
            fix="tls_cert and tls_key, or behind_proxy: true where a proxy speaks TLS",
        )


def _store(condition: Condition) -> Iterator[Finding]:
    odd = {
        name: value
        for name, value in condition.settings.items()
        if value != condition.wanted.get(name, value)
    }
    spelled = ", ".join(f"{name} {value}" for name, value in condition.settings.items())
    if odd:
        name, value = next(iter(odd.items()))
        wanted = condition.wanted[name]
        yield Finding(
            check="store",
            status="fail",
            says=f"{condition.engine} runs with {name} = {value}: a power cut loses what was acknowledged",
            fix=f"set {name} to {wanted} and start the database again",
        )
    else:
        parts = [condition.engine, spelled, condition.file_system]
        if condition.free_bytes is not None:
            parts.append(f"{size(condition.free_bytes)} free")
        yield Finding(check="store", status="ok", says=", ".join(part for part in parts if part))
    yield from _room(condition)
    if "fsync" in condition.settings and not condition.pooled:
        yield _calls(condition.notified_after)
    if condition.pooled:
        yield Finding(
            check="pooler",
            status="warn",
            says="a pooler stands before the server: engines do not hear each other and look for themselves",
            fix="connect past the pooler; without that, what others write is noticed within two seconds",
        )


def _calls(seconds: float | None) -> Finding:
    """Whether instances hear each other; without that they look for themselves, and later."""
    if seconds is not None:
        return Finding(check="notify", status="ok", says=f"NOTIFY comes through in {seconds * 1000:.0f} ms")
    return Finding(
        check="notify",
        status="warn",
        says="NOTIFY does not come through: engines do not hear each other, and look for themselves",
        fix="connect past the pooler or proxy that swallows it",
    )


def _room(condition: Condition) -> Iterator[Finding]:
    free, held = condition.free_bytes, condition.store_bytes or 0
    if free is not None and free < LITTLE_FREE:
        least = free < LEAST_FREE
        yield Finding(
            check="space",
            status="fail" if least else "warn",
            says=f"only {size(free)} are free where the store is, which holds {size(held)}",
            fix="free some space, or keep history for a shorter time: keep_history: 7d",
        )
    if (condition.wal_bytes or 0) > LARGE_LOG:
        yield Finding(
            check="log",
            status="warn",
            says=f"the write-ahead log holds {size(condition.wal_bytes or 0)}: someone reads for a long time",
            fix="end the process that keeps the store open for reading",
        )


def _schema(condition: Condition) -> Iterator[Finding]:
    if condition.waiting:
        yield Finding(
            check="schema",
            status="fail",
            says=f"the schema lacks {len(condition.waiting)} steps: {', '.join(condition.waiting)}",
            fix="timewright backup FILE, then timewright migrate",
        )
    else:
        yield Finding(check="schema", status="ok", says=f"schema {condition.schema}, up to date")


def _clock(condition: Condition, *, now: datetime) -> Iterator[Finding]:
    offset = condition.clock_offset
    if offset is None:
        return
    ahead = spell_duration(timedelta(milliseconds=round(abs(offset) * 1000)))
    if abs(offset) >= DOUBTED_OFFSET:
        way = "ahead of" if offset > 0 else "behind"
        yield Finding(
            check="clock",
            status="fail" if abs(offset) >= WRONG_OFFSET else "warn",
            says=f"the store's clock is {ahead} {way} this machine's, which says {now:%Y-%m-%d %H:%M:%S} UTC",
            fix="let both follow a time server, such as chrony or systemd-timesyncd",
        )
    else:
        yield Finding(
            check="clock", status="ok", says=f"clock: the store's and this machine's agree ({ahead})"
        )


def zone_data(used: str, bundled: str, *, now: datetime) -> Finding:
    """Whether the rules of time zones are recent: the system's if it has some, else those we bring."""
    name = used or bundled
    if not name:
        return Finding(
            check="zones", status="fail", says="there is no zone data", fix="pip install --upgrade tzdata"
        )
    if used and bundled and used < bundled:
        return Finding(
            check="zones",
            status="warn",
            says=f"zone data {used} of the system is older than the bundled {bundled}",
            fix='update the tzdata of the system, or start with PYTHONTZPATH="" to use the bundled',
        )
    if now.year - int(name[:4]) > 1:
        return Finding(
            check="zones",
            status="warn",
            says=f"zone data {name} is from {name[:4]}: rules have changed since",
            fix="pip install --upgrade tzdata, and update the tzdata of the system",
        )
    where = "of the system" if used else "bundled"
    return Finding(check="zones", status="ok", says=f"zone data {name} ({where})")


def own_file(file: OwnFile) -> Finding:
    """Whether a file is only its owner's: settings may be read by others, keys and stores may not."""
    shared = file.mode & (_WRITE if file.what == "settings" else _OTHERS)
    if not file.mine:
        says, fix = "belongs to somebody else", f"chown {file.path}"
    elif shared:
        says = "may be written by others" if shared & _WRITE else "may be read by others"
        fix = f"chmod {'go-w' if file.what == 'settings' else 'go-rwx'} {file.path}"
    else:
        return Finding(check=file.what, status="ok", says=f"{file.what} {file.path}: only its owner's")
    bad = not file.mine or shared & _WRITE or file.what == "key"
    return Finding(
        check=file.what, status="fail" if bad else "warn", says=f"{file.what} {file.path} {says}", fix=fix
    )


def _extras(extras: dict[str, bool], settings: Settings) -> Finding:
    if settings.trace and not extras.get("otel", False):
        return Finding(
            check="extras",
            status="fail",
            says="trace is on, and tracing is not installed",
            fix='pip install "timewright[otel]"',
        )
    there = [name for name, has in extras.items() if has]
    missing = [name for name, has in extras.items() if not has]
    says = f"extras: {', '.join(there) or 'none'}"
    return Finding(
        check="extras", status="ok", says=says + (f" (without {', '.join(missing)})" if missing else "")
    )


def size(count: int) -> str:
    """So many bytes, as people say it."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
