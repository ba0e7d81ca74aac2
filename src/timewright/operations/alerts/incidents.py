"""Incidents: list, acknowledge, snooze; and the thresholds at which they open."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct, field

from timewright.core.alerts.incidents import DEFAULT_RULES, AlertRules, CheckIn, Incident
from timewright.core.input.decode import decode
from timewright.core.moments import HOUR, check_duration
from timewright.errors import InvalidInput
from timewright.ledger.alerts.alert_checks import (
    ALERTS,
    GROUP_RULES,
    INSTALLATION_RULES,
    NAMESPACE_RULES,
    AlertSettings,
)
from timewright.ledger.alerts.incidents import acknowledge, snooze
from timewright.operations.access.callers import require_scope
from timewright.operations.context import OperationContext
from timewright.operations.lookup import not_found
from timewright.operations.pagination import paginate
from timewright.operations.registry import (
    INCIDENT,
    ListRequest,
    ObjectName,
    OperationRequest,
    WriteRequest,
    operations,
)
from timewright.ports import Page, StoredObject, Transaction
from timewright.ports.objects import GLOBAL_NAMESPACE
from timewright.ports.rows import IncidentFilter


class ListIncidents(ListRequest, frozen=True, kw_only=True):
    """List open incidents; `closed` includes those that ended."""

    closed: bool = False


class IncidentList(Struct, frozen=True, kw_only=True):
    """A page of incidents, newest first."""

    incidents: tuple[Incident, ...]
    cursor: str = ""


class GetIncident(OperationRequest, frozen=True, kw_only=True):
    """Which incident, by its id."""

    incident: ObjectName


class AcknowledgeIncident(WriteRequest, frozen=True, kw_only=True):
    """Which incident, by its id."""

    incident: ObjectName


class SnoozeIncident(WriteRequest, frozen=True, kw_only=True):
    """Which incident, by its id, and for how long it is not repeated."""

    incident: ObjectName
    length: timedelta = HOUR


class GetAlertRules(OperationRequest, frozen=True, kw_only=True):
    """Whose thresholds: those of a group, of the installation, or by default of the namespace."""

    group: Annotated[str, Meta(max_length=255)] = ""
    installation: bool = False


class SetAlertRules(WriteRequest, frozen=True, kw_only=True):
    """Whose thresholds, and which; a threshold that is left out keeps its value.

    `check_in` is for the installation: a URL that is called every minute while somebody looks for incidents.
    """

    flattens: ClassVar[tuple[str, type[Struct]]] = ("rules", AlertRules)

    group: Annotated[str, Meta(max_length=255)] = ""
    installation: bool = False
    check_in: Annotated[str, Meta(max_length=2000)] | None = None
    rules: dict[str, Any] = field(default_factory=dict)


class AlertRulesDetail(Struct, frozen=True, kw_only=True):
    """The thresholds that were set here, and those that are in force."""

    scope: str
    set: AlertRules
    in_force: AlertRules
    check_in: CheckIn | None = None
    revision: int = 0


@operations.read("incident list", scope="read", examples=({}, {"closed": True}))
def list_incidents(context: OperationContext, tx: Transaction, request: ListIncidents) -> IncidentList:
    """List incidents, newest first: what is wrong, since when, and what would help."""

    def find(limit: int, place: str) -> Page:
        which = IncidentFilter(
            namespace=context.namespace, open_only=not request.closed, limit=limit, cursor=place
        )
        return tx.find(which)

    rows, cursor = paginate(context, request, find)
    return IncidentList(incidents=tuple(rows), cursor=cursor)


@operations.read("incident get", scope="read", examples=({"incident": INCIDENT},))
def get_incident(context: OperationContext, tx: Transaction, request: GetIncident) -> Incident:
    """Show an incident."""
    which = IncidentFilter(namespace=context.namespace, incident_id=request.incident)
    found: tuple[Incident, ...] = tx.find(which).rows
    if not found:
        raise not_found("incident", request.incident, (), list_command="incident list", field="incident")
    return found[0]


@operations.write("incident acknowledge", scope="trigger", examples=({"incident": INCIDENT},))
def acknowledge_incident(
    context: OperationContext, tx: Transaction, request: AcknowledgeIncident
) -> Incident:
    """Say that you take care of an incident: it is not repeated; its end is still told."""
    now = context.now()
    return acknowledge(tx, request.incident, namespace=context.namespace, by=context.by, now=now)


@operations.write("incident snooze", scope="trigger", examples=({"incident": INCIDENT, "length": "4h"},))
def snooze_incident(context: OperationContext, tx: Transaction, request: SnoozeIncident) -> Incident:
    """Repeat an incident no earlier than after a while."""
    now = context.now()
    until = now + check_duration(request.length, field="length")
    return snooze(tx, request.incident, namespace=context.namespace, until=until, by=context.by, now=now)


@operations.read("alert get", scope="read", examples=({}, {"group": "billing"}, {"installation": True}))
def get_alert_rules(context: OperationContext, tx: Transaction, request: GetAlertRules) -> AlertRulesDetail:
    """Show the thresholds at which incidents open."""
    return _detail(tx, context.namespace, request)


@operations.write(
    "alert set", scope="write", examples=({"failed": 3, "repeat": "12h"}, {"group": "billing", "late": "1m"})
)
def set_alert_rules(context: OperationContext, tx: Transaction, request: SetAlertRules) -> AlertRulesDetail:
    """Set thresholds for a group, the namespace or the installation; a schedule has its own in `alerts`."""
    if request.installation:
        require_scope(context.caller, "admin", operation="alert set --installation")
    if request.check_in and not request.installation:
        raise InvalidInput(
            "check_in here is for the installation",
            field="check_in",
            value=request.check_in[:60],
            rule="a schedule has a check_in of its own",
            fix="installation: true",
        )
    now = context.now()
    target = GetAlertRules(group=request.group, installation=request.installation)
    namespace, name = _place(context.namespace, target)
    before = _stored(tx, namespace, name) or AlertSettings(revision=0)
    rules = decode(request.rules, AlertRules, field="alerts", base=before.rules)
    check_in = before.check_in
    if request.check_in is not None:
        check_in = decode({"url": request.check_in}, CheckIn) if request.check_in else None
    after = AlertSettings(rules=rules, check_in=check_in, revision=before.revision + 1)
    body = msgspec.json.encode(after)
    row = StoredObject(
        kind=ALERTS, namespace=namespace, name=name, revision=after.revision, body=body, at=now
    )
    tx.put_objects([row], replaces={name: before.revision})
    context.audit(tx, "alert.set", name, after=body.decode())
    return _detail(tx, context.namespace, target)


def _place(namespace: str, request: GetAlertRules) -> tuple[str, str]:
    if request.installation:
        return GLOBAL_NAMESPACE, INSTALLATION_RULES
    return namespace, f"{GROUP_RULES}{request.group}" if request.group else NAMESPACE_RULES


def _stored(tx: Transaction, namespace: str, name: str) -> AlertSettings | None:
    rows = tx.get_objects(ALERTS, namespace=namespace, names=[name])
    return msgspec.json.decode(rows[0].body, type=AlertSettings) if rows else None


def _detail(tx: Transaction, namespace: str, request: GetAlertRules) -> AlertRulesDetail:
    place = _place(namespace, request)
    own = _stored(tx, *place) or AlertSettings(revision=0)
    in_force = DEFAULT_RULES
    for one in ((GLOBAL_NAMESPACE, INSTALLATION_RULES), (namespace, NAMESPACE_RULES), place):
        stored = _stored(tx, *one)
        in_force = stored.rules.over(in_force) if stored is not None else in_force
        if one == place:
            break
    return AlertRulesDetail(
        scope=place[1], set=own.rules, in_force=in_force, check_in=own.check_in, revision=own.revision
    )
