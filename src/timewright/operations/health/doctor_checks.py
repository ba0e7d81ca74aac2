"""Doctor checks of the host, the store, the settings and the instances that share the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from timewright.core.finding import Finding, list_names
from timewright.core.moments import DAY, format_duration
from timewright.core.run.needs import HOST
from timewright.core.schedule.shards import parse_shard, uncovered_shards
from timewright.ledger.alerts.findings import CheckScope, checks
from timewright.ledger.leader import current_leader
from timewright.ledger.lookups import load_queue_policies
from timewright.ledger.queues.policies import PolicyFile
from timewright.ledger.records.instances import MAX_INSTANCES, is_alive, read_instances, read_offers
from timewright.ports import Transaction
from timewright.ports.host_info import HostInfo, PrivateFile, StoreStatus
from timewright.ports.rows import LeasedRuns
from timewright.settings import Settings

MIN_FREE_BYTES = 100 * 1024**2
LOW_FREE_BYTES = 1024**3
LARGE_WAL_BYTES = 256 * 1024**2
WARN_CLOCK_OFFSET_S = 1.0
FAIL_CLOCK_OFFSET_S = 30.0
MAX_BACKUP_AGE = 7 * DAY
# A backup or a report may take minutes; while a snapshot is open, the server removes no dead row.
MAX_SNAPSHOT_AGE_S = 300.0
# Fewer dead rows, or fewer live ones without statistics, cost nothing.
MIN_DEAD_ROWS = 10_000
MIN_ROWS_WITH_STATISTICS = 1_000
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_OTHERS_MASK = 0o077
_WRITE_MASK = 0o022

MAX_NAMES_SHOWN = 3
MIN_HOST_RUNS = 10


def host_findings(host_info: HostInfo, settings: Settings, *, now: datetime) -> Iterator[Finding]:
    """Check everything that needs no rows of the store."""
    yield Finding.ok("version", f"timewright {host_info.version}, Python {host_info.python}")
    yield from _store(host_info.store_status)
    yield from _schema(host_info.store_status)
    yield from _clock(host_info.store_status, now=now)
    yield zone_data_finding(host_info.zone_data, host_info.bundled_zone_data, now=now)
    for file in host_info.files:
        yield file_finding(file)
    yield _extras(host_info.extras, settings)


@checks.add()
def check_host(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Check host and store, where this process can see them, and the settings."""
    if scope.host is not None:
        yield from host_findings(scope.host, scope.settings, now=scope.now)
    with_shell = sum(bool(one.offer.programs) for one in read_offers(tx) if is_alive(one.seen, now=scope.now))
    yield from setting_findings(scope.settings, with_shell=with_shell)


def setting_findings(settings: Settings, *, with_shell: int) -> Iterator[Finding]:
    """Check the settings for risks; `with_shell` is how many running instances allow commands."""
    if settings.shell:
        yield Finding.warn(
            "shell",
            "shell targets are on: everyone who may write schedules can run commands as this user",
            remedy="set shell: false, unless you trust everyone who may write schedules",
        )
    elif with_shell:
        where = "1 instance that runs" if with_shell == 1 else f"{with_shell} instances that run"
        yield Finding.warn(
            "shell",
            f"shell targets are on in {where}: everyone who may write schedules can run commands there",
            remedy="start it without shell, unless you trust everyone who may write schedules",
        )
    else:
        yield Finding.ok("shell", "shell targets are off")
    if settings.bind not in LOOPBACK_HOSTS and not settings.tls_cert and not settings.behind_proxy:
        yield Finding.warn(
            "bind",
            f"the HTTP server listens on {settings.bind} without TLS: API keys can be intercepted",
            remedy="set tls_cert and tls_key, or behind_proxy: true if a proxy terminates TLS",
        )


def _store(condition: StoreStatus) -> Iterator[Finding]:
    wrong = {
        name: value
        for name, value in condition.settings.items()
        if value != condition.required_settings.get(name, value)
    }
    settings_text = ", ".join(f"{name} {value}" for name, value in condition.settings.items())
    if wrong:
        name, value = next(iter(wrong.items()))
        wanted = condition.required_settings[name]
        yield Finding.fail(
            "store",
            f"{condition.engine} runs with {name} = {value}: a power failure loses writes",
            remedy=f"set {name} to {wanted} and restart the database",
        )
    else:
        parts = [condition.engine, settings_text, condition.file_system]
        if condition.free_bytes is not None:
            parts.append(f"{format_bytes(condition.free_bytes)} free")
        yield Finding.ok("store", ", ".join(part for part in parts if part))
    yield from _free_space(condition)
    yield from _server(condition)
    if "fsync" in condition.settings and not condition.pooled:
        yield _notify(condition.notified_after)
    if condition.pooled:
        yield Finding.warn(
            "pooler",
            "the connection goes through a pooler: NOTIFY does not work, so engines poll",
            remedy="connect directly to the server; through it, changes are noticed within two seconds",
        )


def _server(condition: StoreStatus) -> Iterator[Finding]:
    """Check what slows a PostgreSQL server down, or makes writes of others less durable than ours."""
    for snapshot in condition.snapshots:
        if snapshot.seconds >= MAX_SNAPSHOT_AGE_S:
            age = format_duration(timedelta(seconds=round(snapshot.seconds)))
            yield Finding.warn(
                "snapshot",
                f"{snapshot.session} has a transaction open for {age}: no dead row can be removed",
                remedy=f"let it end, or {snapshot.end_with}",
            )
    for table in condition.tables:
        if table.dead >= MIN_DEAD_ROWS and table.dead > table.live:
            yield Finding.warn(
                "bloat",
                f"table {table.name} has {table.dead:,} dead rows beside {table.live:,} live ones",
                remedy=f"end old transactions, then VACUUM {table.name}; is autovacuum on?",
            )
        if not table.has_statistics and table.live >= MIN_ROWS_WITH_STATISTICS:
            yield Finding.warn(
                "statistics",
                f"table {table.name} has {table.live:,} rows and no statistics: plans may be slow",
                remedy=f"ANALYZE {table.name}; is autovacuum on?",
            )
    if condition.settings.get("synchronous_commit") == "off":
        yield Finding.warn(
            "synchronous_commit",
            "synchronous_commit is off: Timewright turns it on for itself, others may lose commits",
            remedy="set synchronous_commit = on in postgresql.conf",
        )


def _notify(seconds: float | None) -> Finding:
    """Check that NOTIFY works; without it engines poll, and notice changes later."""
    if seconds is not None:
        return Finding.ok("notify", f"NOTIFY arrives within {seconds * 1000:.0f} ms")
    return Finding.warn(
        "notify",
        "NOTIFY does not arrive, so engines poll",
        remedy="connect directly, without the pooler or proxy that drops it",
    )


def _free_space(condition: StoreStatus) -> Iterator[Finding]:
    free, held = condition.free_bytes, condition.store_bytes or 0
    if free is not None and free < LOW_FREE_BYTES:
        is_critical = free < MIN_FREE_BYTES
        yield Finding(
            kind="space",
            severity="fail" if is_critical else "warn",
            sentence=f"{format_bytes(free)} free on the store's disk; the store uses {format_bytes(held)}",
            remedy="free some space, or keep less history: keep_history: 7d",
        )
    log = condition.wal_bytes or 0
    if log > LARGE_WAL_BYTES:
        yield Finding.warn(
            "log",
            f"the write-ahead log has {format_bytes(log)}: a long read prevents its truncation",
            remedy="end the process with the long read transaction",
        )


def _schema(condition: StoreStatus) -> Iterator[Finding]:
    missing = condition.pending_migrations
    if missing:
        yield Finding.fail(
            "schema",
            f"{len(missing)} migrations are missing: {', '.join(missing)}",
            remedy="timewright backup FILE, then timewright migrate",
        )
    else:
        yield Finding.ok("schema", f"schema {condition.schema}, up to date")


def _clock(condition: StoreStatus, *, now: datetime) -> Iterator[Finding]:
    offset = condition.clock_offset
    if offset is None:
        return
    ahead = format_duration(timedelta(milliseconds=round(abs(offset) * 1000)))
    if abs(offset) >= WARN_CLOCK_OFFSET_S:
        direction = "ahead of" if offset > 0 else "behind"
        yield Finding(
            kind="clock",
            severity="fail" if abs(offset) >= FAIL_CLOCK_OFFSET_S else "warn",
            sentence=f"the store's clock is {ahead} {direction} this machine's ({now:%Y-%m-%d %H:%M:%S} UTC)",
            remedy="synchronise both with NTP, for example chrony or systemd-timesyncd",
        )
    else:
        yield Finding.ok("clock", f"the clocks of the store and this machine agree ({ahead})")


def zone_data_finding(used: str, bundled: str, *, now: datetime) -> Finding:
    """Check that the time zone data is recent: the system's if present, else the bundled."""
    name = used or bundled
    if not name:
        return Finding.fail("zones", "there is no time zone data", remedy="pip install --upgrade tzdata")
    if used and bundled and used < bundled:
        return Finding.warn(
            "zones",
            f"the system's zone data {used} is older than the bundled {bundled}",
            remedy='update the system\'s tzdata, or set PYTHONTZPATH="" to use the bundled data',
        )
    if now.year - int(name[:4]) > 1:
        return Finding.warn(
            "zones",
            f"zone data {name} is outdated: rules have changed since {name[:4]}",
            remedy="pip install --upgrade tzdata, and update the system's tzdata",
        )
    where = "system" if used else "bundled"
    return Finding.ok("zones", f"zone data {name} ({where})")


def file_finding(file: PrivateFile) -> Finding:
    """Check the permissions of a file: settings may be readable by others, keys and stores may not."""
    shared = file.mode & (_WRITE_MASK if file.label == "settings" else _OTHERS_MASK)
    if not file.owned_by_us:
        message, fix = "belongs to another user", f"chown {file.path}"
    elif shared:
        message = "can be written by others" if shared & _WRITE_MASK else "can be read by others"
        fix = f"chmod {'go-w' if file.label == 'settings' else 'go-rwx'} {file.path}"
    else:
        return Finding.ok(file.label, f"{file.label} {file.path}: only its owner has access")
    bad = not file.owned_by_us or shared & _WRITE_MASK or file.label == "key"
    return Finding(
        kind=file.label,
        severity="fail" if bad else "warn",
        sentence=f"{file.label} {file.path} {message}",
        remedy=fix,
    )


def _extras(extras: dict[str, bool], settings: Settings) -> Finding:
    if settings.trace and not extras.get("otel", False):
        return Finding.fail(
            "extras",
            "trace is on, but the extra for tracing is not installed",
            remedy='pip install "timewright[otel]"',
        )
    installed = [name for name, has in extras.items() if has]
    missing = [name for name, has in extras.items() if not has]
    message = f"extras: {', '.join(installed) or 'none'}"
    return Finding.ok("extras", message + (f" (without {', '.join(missing)})" if missing else ""))


def format_bytes(count: int) -> str:
    """Return a number of bytes with a unit."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


@checks.add()
def check_admission(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find out whether instances run, and which shards none admits directly; those are admitted 10 s late."""
    now = scope.now
    alive = [seen.instance for seen in read_instances(tx, limit=MAX_INSTANCES) if is_alive(seen, now=now)]
    if not alive:
        yield Finding.warn("instances", "no instance is running, so nothing starts", remedy="timewright up")
        return
    yield Finding.ok("instances", f"{len(alive)} instance{'s run' if len(alive) > 1 else ' runs'}")
    leader = current_leader(tx, now=now)
    served = [parse_shard(one.shard) for one in alive if one.admit == "any" or one.id == leader]
    if not uncovered_shards(served):
        return
    if not served:
        yield Finding.warn(
            "leader",
            "there is no leader: due schedules are admitted 10 s late until one is elected",
            remedy="check timewright instance list; a leader should be elected within 20 s",
        )
        return
    parts = [f"{which}/{of}" for which, of in uncovered_shards(served)]
    yield Finding.warn(
        "shards",
        f"no instance serves {list_names(parts)}: due runs are 10 s late",
        remedy=f"start timewright worker --shard {parts[0]}, or one without a shard",
    )


@checks.add()
def check_hosts(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Find hosts whose requests take most of what they may take of an instance's capacity."""
    leased = tx.select(LeasedRuns())
    places = {one.instance.id: one.instance.capacity for one in read_instances(tx, limit=MAX_INSTANCES)}
    taken = Counter(
        (run.holder, need.removeprefix(HOST)) for run in leased for need in run.needs if need.startswith(HOST)
    )
    for (holder, host), count in taken.most_common(MAX_NAMES_SHOWN):
        capacity = places.get(holder, 0)
        if count < MIN_HOST_RUNS or 2 * count < capacity:
            continue
        since = min(run.leased_at or scope.now for run in leased if f"{HOST}{host}" in run.needs)
        yield Finding.warn(
            "host",
            f"requests to {host} take {count} of the {capacity} places of {holder}",
            remedy="see whether the host answers; set a shorter timeout, or egress.per_host",
            subject=host,
            since=since,
        )


@checks.add()
def check_policy_file(tx: Transaction, scope: CheckScope) -> Iterator[Finding]:
    """Check that the policy file exists, is valid, and is in force."""
    file = scope.policy_file
    if file is None:
        return
    if file.error is not None:
        yield Finding.fail(
            "policy_file",
            f"no queue leases anything: {file.error.message}",
            remedy=file.error.fix or "correct the file",
        )
    elif file.absent:
        yield Finding.warn(
            "policy_file",
            f"policy file {file.path} does not exist: queues use the default policy",
            remedy="create it, or remove policy_file from the settings",
        )
    else:
        yield _in_force(tx, file, namespace=scope.namespace)


def _in_force(tx: Transaction, file: PolicyFile, *, namespace: str) -> Finding:
    stored = load_queue_policies(tx, [(namespace, name) for name in file.policies])
    different = sorted(
        name for name, policy in file.policies.items() if stored.get((namespace, name)) != policy
    )
    if different:
        return Finding.warn(
            "policy_file",
            f"{file.path} is not in force for {', '.join(different[:MAX_NAMES_SHOWN])}",
            remedy="start an instance with this policy_file",
        )
    message = f"policy file {file.path}: {len(file.policies)} queues"
    return Finding.ok("policy_file", message)
