"""Checks of the rows that incidents are decided from: each row past its threshold becomes an alert."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from timewright.core.alerts.incidents import (
    DEFAULT_RULES,
    MIN_LATE,
    Alert,
    AlertRules,
    CheckIn,
    Incident,
    IncidentKey,
)
from timewright.core.finding import HOME_NAMESPACE, command_line
from timewright.core.moments import DAY, HOUR, SECOND, format_duration
from timewright.core.run.needs import Offer, needs_of_schedule
from timewright.core.schedule.pauses import Pause, PauseScope
from timewright.core.schedule.schedule import Schedule
from timewright.errors import UnreadableRow
from timewright.ledger.pauses import ACCEPT_CLOCK, CLOCK, PauseLookup
from timewright.ledger.records.instances import OFFER, InstanceRecord
from timewright.ports import ScheduleRecord, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE, AlertRow, AlertRows

ALERTS = "alerts"
INSTALLATION_RULES, NAMESPACE_RULES, GROUP_RULES = "installation", "namespace", "group:"
MAX_ROWS = 1000
# A missed occurrence is a finding for this long.
MISSED_WINDOW = HOUR
SILENT_AFTER = 50 * SECOND
_SCHEDULE_SOURCES = ("failing", "late", "missed", "parked_schedule", "parked_run", "ready", "watched")
_KINDS = {
    "failing": ("failed",),
    "late": ("late", "no_instance"),
    "missed": ("missed",),
    "parked_schedule": ("parked",),
    "parked_run": ("parked",),
    "ready": ("no_instance",),
    "handoff": ("queue_age",),
    "budget": ("over_budget",),
    "watched": ("not_finished", "slow"),
    "instance": ("instance_gone", "clock_stepped", "store_full"),
    "key": ("key_expiring",),
}


class ExpiringKey(Struct, frozen=True, kw_only=True):
    """The part of a stored API key that says when it ends."""

    prefix: str
    name: str
    namespaces: tuple[str, ...] = ()
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_replaced(self, keys: Iterable[ExpiringKey]) -> bool:
        """Whether a key of the same name is valid for longer, as after a rotation with an overlap."""
        return self.expires_at is not None and any(
            (one.name, one.namespaces, one.revoked_at) == (self.name, self.namespaces, None)
            and (one.expires_at is None or one.expires_at > self.expires_at)
            for one in keys
        )


class AlertSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored rules of an installation, a namespace or a group."""

    rules: AlertRules = AlertRules()
    check_in: CheckIn | None = None
    revision: int = 1


class AlertInput:
    """The rows of one check, with the rules and schedules that they need."""

    def __init__(self, tx: Transaction, *, now: datetime) -> None:
        self.now = now
        rows = tx.select(
            AlertRows(late=now - MIN_LATE, missed=now - MISSED_WINDOW, recent=now - DAY, max_rows=MAX_ROWS)
        )
        self.rows: dict[str, list[AlertRow]] = defaultdict(list)
        for row in rows:
            self.rows[row.source].append(row)
        self._rules = {
            (row.namespace, row.subject): msgspec.json.decode(row.extra, type=AlertSettings)
            for row in self.rows[ALERTS]
        }
        self.incidents = _newest(self.rows["incident"])
        self.instances = [
            (row.at, msgspec.json.decode(row.extra, type=InstanceRecord)) for row in self.rows["instance"]
        ]
        self.replaced = _find_replaced(tx, self.instances)
        ids = {row.subject for source in _SCHEDULE_SOURCES for row in self.rows[source] if row.subject}
        self.records = read_schedules(tx, sorted(ids))
        self.pauses = PauseLookup([_pause(row) for row in self.rows["pause"]], now=now)

    @property
    def installation(self) -> AlertSettings:
        """The settings of the installation."""
        return self._rules.get((GLOBAL_NAMESPACE, INSTALLATION_RULES), AlertSettings())

    def rules(self, namespace: str, *, group: str = "", schedule: Schedule | None = None) -> AlertRules:
        """The rules in force: those of the schedule, over its group, its namespace and the installation."""
        found = self.installation.rules.over(DEFAULT_RULES)
        names = [NAMESPACE_RULES, *([f"{GROUP_RULES}{group}"] if group else [])]
        for name in names:
            stored = self._rules.get((namespace, name))
            found = stored.rules.over(found) if stored is not None else found
        own = schedule.alerts if schedule is not None else None
        return own.over(found) if own is not None else found

    def unchecked_kinds(self) -> frozenset[str]:
        """The kinds of which not all rows were read, because there are too many."""
        full: set[str] = set()
        for source, kinds in _KINDS.items():
            # Rows of runs are grouped and counted; a failing schedule counts its failures instead.
            read = sum(1 if source == "failing" else max(row.number, 1) for row in self.rows[source])
            full |= set(kinds) if read >= MAX_ROWS else set()
        return frozenset(full)


def find_alerts(found: AlertInput) -> Iterator[Alert]:
    """Every alert of the rows that were read."""
    yield from _failing(found)
    yield from _late(found)
    yield from _waiting(found)
    yield from _parked(found)
    yield from _missed(found)
    yield from _queues(found)
    yield from _instances(found)
    yield from _keys(found)


def _find_replaced(tx: Transaction, instances: Sequence[tuple[datetime, InstanceRecord]]) -> set[str]:
    """The instances that fell silent before another one started for the same program on that host.

    `instances` has each with the time of its last heartbeat. Each replaces one, so that of two workers that
    died and one that came back, one is still missing.
    """
    unused = sorted((one for _, one in instances), key=lambda one: one.started_at)
    offers = _read_offers(tx, instances)
    replaced: set[str] = set()
    for last_seen, old in sorted(instances, key=lambda pair: pair[1].started_at):
        if old.stopped:
            continue
        later = (new for new in unused if new.started_at > last_seen and _replaces(new, old, offers))
        if (successor := next(later, None)) is not None:
            unused.remove(successor)
            replaced.add(old.id)
    return replaced


def _read_offers(tx: Transaction, found: Sequence[tuple[datetime, InstanceRecord]]) -> Mapping[str, Offer]:
    """What instances offer, by id, if one fell silent before another with a different offer started."""
    newest = max((one.started_at for _, one in found), default=None)
    names = sorted({one.offer for _, one in found} - {""})
    is_needed = any(not one.stopped and newest is not None and newest > at for at, one in found)
    rows = tx.get_objects(OFFER, namespace=GLOBAL_NAMESPACE, names=names) if is_needed and names else ()
    return {row.name: msgspec.json.decode(row.body, type=Offer) for row in rows}


def _replaces(new: InstanceRecord, old: InstanceRecord, offers: Mapping[str, Offer]) -> bool:
    """Whether two instances are of one program: a new version still has some of its functions."""
    if (old.host, old.admit, old.shard) != (new.host, new.admit, new.shard):
        return False
    before, after = offers.get(old.offer), offers.get(new.offer)
    if old.offer == new.offer or before is None or after is None:
        return old.offer == new.offer
    is_same_place = (before.queues, before.labels) == (after.queues, after.labels)
    return is_same_place and not {*(before.functions or ())}.isdisjoint(after.functions or ())


def read_schedules(tx: Transaction, ids: Sequence[str]) -> Mapping[str, ScheduleRecord]:
    """Schedules by id, without those that cannot be read."""
    try:
        return tx.get_schedules(ids) if ids else {}
    except UnreadableRow:
        if len(ids) == 1:
            return {}
        return {**read_schedules(tx, ids[: len(ids) // 2]), **read_schedules(tx, ids[len(ids) // 2 :])}


def schedule_alert(
    found: AlertInput, kind: str, record: ScheduleRecord, sentence: str, *, since: datetime, run: str = ""
) -> Alert:
    """An alert about a schedule."""
    schedule = record.schedule
    return Alert(
        key=IncidentKey(schedule.namespace, kind, schedule.id),
        sentence=f"{schedule.name} {sentence}",
        remedy=command_line("explain", schedule.name, namespace=schedule.namespace),
        since=since,
        schedule=schedule.name,
        schedule_id=schedule.id,
        group=schedule.group or "",
        run=run,
        rules=found.rules(schedule.namespace, group=schedule.group or "", schedule=schedule),
    )


def span(length: timedelta) -> str:
    """A duration in whole seconds."""
    return format_duration(timedelta(seconds=round(length.total_seconds())))


def _of_schedules(found: AlertInput, source: str) -> Iterator[tuple[AlertRow, ScheduleRecord, AlertRules]]:
    for row in found.rows[source]:
        record = found.records.get(row.subject)
        if record is not None:
            schedule = record.schedule
            rules = found.rules(schedule.namespace, group=schedule.group or "", schedule=schedule)
            if rules.enabled:
                yield row, record, rules


def _failing(found: AlertInput) -> Iterator[Alert]:
    for row, record, rules in _of_schedules(found, "failing"):
        # A finished schedule will not recover by itself: a day is enough.
        over = row.extra == "archived" or (row.extra == "finished" and found.now - row.at > DAY)
        if not over and row.number >= (rules.failed or 1):
            times = "failed" if row.number == 1 else f"failed {row.number} times in a row"
            since = record.progress.failing_since or row.at
            yield schedule_alert(found, "failed", record, times, since=since)


def _late(found: AlertInput) -> Iterator[Alert]:
    """Schedules that are due: no engine admits them, or none that is alive can run them."""
    for row, record, rules in _of_schedules(found, "late"):
        late = found.now - row.at
        if found.pauses.describe(record.schedule):
            continue
        if row.extra and late >= (rules.no_instance or MIN_LATE):
            needs = needs_of_schedule(record.schedule)
            what = f"was due {span(late)} ago: no live instance can run it ({', '.join(needs) or 'label'})"
            yield schedule_alert(found, "no_instance", record, what, since=row.at)
        elif not row.extra and late >= (rules.late or MIN_LATE):
            what = f"was due {span(late)} ago: no engine runs, or none keeps up"
            alert = schedule_alert(found, "late", record, what, since=row.at)
            yield msgspec.structs.replace(alert, remedy="timewright up")


def _waiting(found: AlertInput) -> Iterator[Alert]:
    live = any(not one.stopped and found.now - at <= SILENT_AFTER for at, one in found.instances)
    why = "instances are busy, cannot run it, or a limit holds it back" if live else "no instance is alive"
    late = {row.subject for row in found.rows["late"] if row.extra}
    for row, record, rules in _of_schedules(found, "ready"):
        waited = found.now - row.at
        is_paused = found.pauses.describe(record.schedule)
        if waited >= (rules.no_instance or MIN_LATE) and row.subject not in late and not is_paused:
            what = f"has a run that is ready for {span(waited)}: {why}"
            yield schedule_alert(found, "no_instance", record, what, since=row.at, run=row.extra)


def _parked(found: AlertInput) -> Iterator[Alert]:
    for row, record, rules in _of_schedules(found, "parked_schedule"):
        if rules.parked:
            alert = schedule_alert(found, "parked", record, f"is parked: {row.extra}"[:500], since=row.at)
            name, namespace = record.schedule.name, record.schedule.namespace
            remedy = command_line("schedule", "resume", name, namespace=namespace)
            yield msgspec.structs.replace(alert, remedy=remedy)
    parked = {row.subject for row in found.rows["parked_schedule"]}
    for row in found.rows["parked_run"]:
        owner = found.records.get(row.subject)
        group = (owner.schedule.group if owner is not None else None) or ""
        schedule = owner.schedule if owner is not None else None
        rules = found.rules(row.namespace, group=group, schedule=schedule)
        if row.subject in parked or not (rules.parked and rules.enabled):
            continue
        runs = "1 run is parked" if row.number == 1 else f"{row.number} runs are parked"
        remedy = command_line("run", "reset", row.extra, namespace=row.namespace)
        if owner is not None:
            alert = schedule_alert(found, "parked", owner, runs, since=row.at, run=row.extra)
            sentence = f"{owner.schedule.name}: {runs}"
            yield msgspec.structs.replace(alert, remedy=remedy, sentence=sentence)
        else:
            where = f"queue {row.name}" if row.name else "workflow steps"
            yield _plain(
                found, row, ("parked", where), f"{where}: {runs}", rules=rules, remedy=remedy, run=row.extra
            )


def _missed(found: AlertInput) -> Iterator[Alert]:
    for row, record, rules in _of_schedules(found, "missed"):
        if row.number >= (rules.missed or 1):
            what = "missed an occurrence" if row.number == 1 else f"missed {row.number} occurrences"
            yield schedule_alert(found, "missed", record, what, since=row.at, run=row.extra)


def _queues(found: AlertInput) -> Iterator[Alert]:
    for row in found.rows["handoff"]:
        rules = found.rules(row.namespace)
        waited = found.now - row.at
        if found.pauses.active_for(row.namespace, queue=row.name, schedule=None):
            continue
        if rules.enabled and waited >= (rules.queue_age or HOUR):
            what = f"queue {row.name}: the oldest of {row.number} entries is ready for {span(waited)}"
            remedy = command_line("queue", "plan", row.name, namespace=row.namespace)
            yield _plain(found, row, ("queue_age", f"queue {row.name}"), what, rules=rules, remedy=remedy)
    budgets: dict[IncidentKey, Alert] = {}
    for row in found.rows["budget"]:
        rules = found.rules(row.namespace)
        name = row.name.split(": ", 2)[1].removesuffix(":")
        if rules.enabled and rules.over_budget:
            what = f"budget {name} is used up: runs wait for its next period"
            remedy = command_line("budget", "get", name, namespace=row.namespace)
            alert = _plain(found, row, ("over_budget", f"budget {name}"), what, rules=rules, remedy=remedy)
            budgets.setdefault(alert.key, alert)
    yield from budgets.values()


def _instances(found: AlertInput) -> Iterator[Alert]:
    rules = found.rules(HOME_NAMESPACE)
    for row in found.rows["pause"]:
        if row.group == CLOCK and not row.number and rules.enabled and rules.clock is not None:
            home = row._replace(namespace=HOME_NAMESPACE)
            key = ("clock_stepped", "installation")
            yield _plain(found, home, key, row.extra, rules=rules, remedy=ACCEPT_CLOCK)
    for row, (at, one) in zip(found.rows["instance"], found.instances, strict=True):
        if one.stopped or not rules.enabled:
            continue
        silent, home = found.now - at, row._replace(namespace=HOME_NAMESPACE)
        if silent >= (rules.instance_gone or SILENT_AFTER) and one.id not in found.replaced:
            what = f"instance {one.id} on {one.host} has sent no heartbeat for {span(silent)}"
            yield _plain(
                found, home, ("instance_gone", one.id), what, rules=rules, remedy="timewright instance list"
            )
        if silent > SILENT_AFTER:
            continue
        if rules.clock is not None and abs(one.clock_offset) >= rules.clock:
            way = "behind" if one.clock_offset > timedelta(0) else "ahead of"
            what = f"the clock of {one.host} is {span(abs(one.clock_offset))} {way} the store's"
            remedy = "synchronise the clock with NTP, for example chrony or systemd-timesyncd"
            yield _plain(found, home, ("clock_stepped", one.host), what, rules=rules, remedy=remedy)
        free = one.store_free_mb
        if free is not None and rules.store_free_mb is not None and free < rules.store_free_mb:
            what = f"{free} MiB are free where the store of {one.host} is"
            remedy = "free some space, or keep less history: keep_history: 7d"
            yield _plain(found, home, ("store_full", one.host), what, rules=rules, remedy=remedy)


def _keys(found: AlertInput) -> Iterator[Alert]:
    rules = found.rules(HOME_NAMESPACE)
    keys = [msgspec.json.decode(row.extra, type=ExpiringKey) for row in found.rows["key"]]
    for row, key in zip(found.rows["key"], keys, strict=True):
        if key.expires_at is None or key.revoked_at is not None or not rules.enabled or key.is_replaced(keys):
            continue
        left = key.expires_at - found.now
        if rules.key_expires is not None and -DAY < left < rules.key_expires:
            when = f"expires in {span(left)}" if left > timedelta(0) else "has expired"
            is_home = not key.namespaces or HOME_NAMESPACE in key.namespaces
            namespace = HOME_NAMESPACE if is_home else key.namespaces[0]
            remedy = command_line("key", "rotate", key.name, "--overlap", "1d", namespace=namespace)
            what, home = f"the key {key.name} {when}", row._replace(namespace=HOME_NAMESPACE)
            yield _plain(found, home, ("key_expiring", key.prefix), what, rules=rules, remedy=remedy)


def _plain(
    found: AlertInput,
    row: AlertRow,
    key: tuple[str, str],
    sentence: str,
    *,
    rules: AlertRules,
    remedy: str,
    run: str = "",
) -> Alert:
    kind, subject = key
    return Alert(
        key=IncidentKey(row.namespace, kind, subject),
        severity="fail" if kind in ("instance_gone", "store_full") else "warn",
        sentence=sentence,
        remedy=remedy,
        since=min(row.at, found.now),
        run=run,
        rules=rules,
    )


def _pause(row: AlertRow) -> Pause:
    """A pause that holds, or that ended so recently that what waited for its end may not be decided yet."""
    scope = msgspec.convert(row.subject, PauseScope)
    return Pause(
        id="", scope=scope, namespace=row.namespace, name=row.name, actor="", origin=row.group, at=row.at
    )


def _newest(rows: Iterable[AlertRow]) -> dict[IncidentKey, Incident]:
    """The newest incident of each key; an open one is newer than every closed one."""
    decoded = sorted((msgspec.json.decode(row.extra, type=Incident) for row in rows), key=lambda one: one.id)
    return {one.key: one for one in sorted(decoded, key=lambda one: one.closed_at is None)}
