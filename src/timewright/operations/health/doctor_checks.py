"""Doctor checks of the host, the store and the settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from timewright.core.moments import DAY, format_duration
from timewright.ports.host_info import HostInfo, PrivateFile, StoreStatus
from timewright.settings import Settings

CheckStatus = Literal["ok", "warn", "fail"]

MIN_FREE_BYTES = 100 * 1024**2
LOW_FREE_BYTES = 1024**3
LARGE_WAL_BYTES = 256 * 1024**2
WARN_CLOCK_OFFSET_S = 1.0
FAIL_CLOCK_OFFSET_S = 30.0
MAX_BACKUP_AGE = 7 * DAY
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_OTHERS_MASK = 0o077
_WRITE_MASK = 0o022


class DoctorFinding(Struct, frozen=True, kw_only=True):
    """The result of one check: its status, a message and the fix."""

    check: str
    status: CheckStatus
    message: str
    fix: str = ""


def host_findings(host_info: HostInfo, settings: Settings, *, now: datetime) -> Iterator[DoctorFinding]:
    """Check everything that needs no rows of the store."""
    yield DoctorFinding(
        check="version", status="ok", message=f"timewright {host_info.version}, Python {host_info.python}"
    )
    yield from _store(host_info.store_status)
    yield from _schema(host_info.store_status)
    yield from _clock(host_info.store_status, now=now)
    yield zone_data_finding(host_info.zone_data, host_info.bundled_zone_data, now=now)
    for file in host_info.files:
        yield file_finding(file)
    yield _extras(host_info.extras, settings)


def setting_findings(settings: Settings) -> Iterator[DoctorFinding]:
    """Check the settings for risks."""
    if settings.shell:
        yield DoctorFinding(
            check="shell",
            status="warn",
            message="shell targets are on: everyone who may write schedules can run commands as this user",
            fix="set shell: false, unless you trust everyone who may write schedules",
        )
    else:
        yield DoctorFinding(check="shell", status="ok", message="shell targets are off")
    if settings.bind not in LOOPBACK_HOSTS and not settings.tls_cert and not settings.behind_proxy:
        yield DoctorFinding(
            check="bind",
            status="warn",
            message=f"the HTTP server listens on {settings.bind} without TLS: API keys can be intercepted",
            fix="set tls_cert and tls_key, or behind_proxy: true if a proxy terminates TLS",
        )


def _store(condition: StoreStatus) -> Iterator[DoctorFinding]:
    wrong = {
        name: value
        for name, value in condition.settings.items()
        if value != condition.required_settings.get(name, value)
    }
    settings_text = ", ".join(f"{name} {value}" for name, value in condition.settings.items())
    if wrong:
        name, value = next(iter(wrong.items()))
        wanted = condition.required_settings[name]
        yield DoctorFinding(
            check="store",
            status="fail",
            message=f"{condition.engine} runs with {name} = {value}: a power failure loses writes",
            fix=f"set {name} to {wanted} and restart the database",
        )
    else:
        parts = [condition.engine, settings_text, condition.file_system]
        if condition.free_bytes is not None:
            parts.append(f"{format_bytes(condition.free_bytes)} free")
        yield DoctorFinding(check="store", status="ok", message=", ".join(part for part in parts if part))
    yield from _free_space(condition)
    if "fsync" in condition.settings and not condition.pooled:
        yield _notify(condition.notified_after)
    if condition.pooled:
        yield DoctorFinding(
            check="pooler",
            status="warn",
            message="the connection goes through a pooler: NOTIFY does not work, so engines poll",
            fix="connect directly to the server; through the pooler, changes are noticed within two seconds",
        )


def _notify(seconds: float | None) -> DoctorFinding:
    """Check that NOTIFY works; without it engines poll, and notice changes later."""
    if seconds is not None:
        return DoctorFinding(
            check="notify", status="ok", message=f"NOTIFY arrives within {seconds * 1000:.0f} ms"
        )
    return DoctorFinding(
        check="notify",
        status="warn",
        message="NOTIFY does not arrive, so engines poll",
        fix="connect directly, without the pooler or proxy that drops it",
    )


def _free_space(condition: StoreStatus) -> Iterator[DoctorFinding]:
    free, held = condition.free_bytes, condition.store_bytes or 0
    if free is not None and free < LOW_FREE_BYTES:
        is_critical = free < MIN_FREE_BYTES
        yield DoctorFinding(
            check="space",
            status="fail" if is_critical else "warn",
            message=f"{format_bytes(free)} are free on the store's disk; the store uses {format_bytes(held)}",
            fix="free some space, or keep less history: keep_history: 7d",
        )
    log = condition.wal_bytes or 0
    if log > LARGE_WAL_BYTES:
        yield DoctorFinding(
            check="log",
            status="warn",
            message=f"the write-ahead log has {format_bytes(log)}: a long read prevents its truncation",
            fix="end the process with the long read transaction",
        )


def _schema(condition: StoreStatus) -> Iterator[DoctorFinding]:
    missing = condition.pending_migrations
    if missing:
        yield DoctorFinding(
            check="schema",
            status="fail",
            message=f"{len(missing)} migrations are missing: {', '.join(missing)}",
            fix="timewright backup FILE, then timewright migrate",
        )
    else:
        yield DoctorFinding(check="schema", status="ok", message=f"schema {condition.schema}, up to date")


def _clock(condition: StoreStatus, *, now: datetime) -> Iterator[DoctorFinding]:
    offset = condition.clock_offset
    if offset is None:
        return
    ahead = format_duration(timedelta(milliseconds=round(abs(offset) * 1000)))
    if abs(offset) >= WARN_CLOCK_OFFSET_S:
        direction = "ahead of" if offset > 0 else "behind"
        yield DoctorFinding(
            check="clock",
            status="fail" if abs(offset) >= FAIL_CLOCK_OFFSET_S else "warn",
            message=f"the store's clock is {ahead} {direction} this machine's ({now:%Y-%m-%d %H:%M:%S} UTC)",
            fix="synchronise both with NTP, for example chrony or systemd-timesyncd",
        )
    else:
        yield DoctorFinding(
            check="clock", status="ok", message=f"the clocks of the store and this machine agree ({ahead})"
        )


def zone_data_finding(used: str, bundled: str, *, now: datetime) -> DoctorFinding:
    """Check that the time zone data is recent: the system's if present, else the bundled."""
    name = used or bundled
    if not name:
        return DoctorFinding(
            check="zones",
            status="fail",
            message="there is no time zone data",
            fix="pip install --upgrade tzdata",
        )
    if used and bundled and used < bundled:
        return DoctorFinding(
            check="zones",
            status="warn",
            message=f"the system's zone data {used} is older than the bundled {bundled}",
            fix='update the system\'s tzdata, or set PYTHONTZPATH="" to use the bundled data',
        )
    if now.year - int(name[:4]) > 1:
        return DoctorFinding(
            check="zones",
            status="warn",
            message=f"zone data {name} is outdated: rules have changed since {name[:4]}",
            fix="pip install --upgrade tzdata, and update the system's tzdata",
        )
    where = "system" if used else "bundled"
    return DoctorFinding(check="zones", status="ok", message=f"zone data {name} ({where})")


def file_finding(file: PrivateFile) -> DoctorFinding:
    """Check the permissions of a file: settings may be readable by others, keys and stores may not."""
    shared = file.mode & (_WRITE_MASK if file.label == "settings" else _OTHERS_MASK)
    if not file.owned_by_us:
        message, fix = "belongs to another user", f"chown {file.path}"
    elif shared:
        message = "can be written by others" if shared & _WRITE_MASK else "can be read by others"
        fix = f"chmod {'go-w' if file.label == 'settings' else 'go-rwx'} {file.path}"
    else:
        return DoctorFinding(
            check=file.label, status="ok", message=f"{file.label} {file.path}: only its owner has access"
        )
    bad = not file.owned_by_us or shared & _WRITE_MASK or file.label == "key"
    return DoctorFinding(
        check=file.label,
        status="fail" if bad else "warn",
        message=f"{file.label} {file.path} {message}",
        fix=fix,
    )


def _extras(extras: dict[str, bool], settings: Settings) -> DoctorFinding:
    if settings.trace and not extras.get("otel", False):
        return DoctorFinding(
            check="extras",
            status="fail",
            message="trace is on, but the extra for tracing is not installed",
            fix='pip install "timewright[otel]"',
        )
    installed = [name for name, has in extras.items() if has]
    missing = [name for name, has in extras.items() if not has]
    message = f"extras: {', '.join(installed) or 'none'}"
    return DoctorFinding(
        check="extras", status="ok", message=message + (f" (without {', '.join(missing)})" if missing else "")
    )


def format_bytes(count: int) -> str:
    """Return a number of bytes with a unit."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
