"""Deliveries: one run per message and channel that wants it, made in the transaction that makes the fact.

A delivery never changes the outcome of the run that it is about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.alerts.channels import (
    DASHBOARD_URL,
    QUEUE_PREFIX,
    AnySender,
    Command,
    Message,
    Ping,
    Poll,
    digest,
    is_delivery,
)
from timewright.core.facts import Fact
from timewright.core.finding import Severity, command_line
from timewright.core.moments import HOUR, MINUTE, SECOND
from timewright.core.policies.backoff import Ladder
from timewright.core.policies.policies import Exhausted, LeaseTerms, Retry
from timewright.core.run.build import build_standalone_run
from timewright.core.run.run import ExecutionTerms, Reason, Run, RunState
from timewright.core.schedule.schedule import Schedule, queue_limit_key
from timewright.core.target import Deliver, Note
from timewright.ids import TimedIds
from timewright.ledger.fact_builders import new_run_facts
from timewright.ports import Launch, RunFilter, Transaction
from timewright.ports.objects import StoredChannel

CHECK_IN_QUEUE = f"{QUEUE_PREFIX}check-in"
MADE_BY = "timewright"
# How many check-ins are searched for one of the same run or schedule.
MAX_CHECK_INS = 1000
# More messages of one moment than this become one.
MAX_SINGLE_MESSAGES = 5
# What a message shows of the data of a question; the page behind its link shows all of it.
MAX_SHOWN_FIELDS = 20
MAX_SHOWN_CHARS = 500
_NO_FILTER: dict[str, Any] = {"kinds": (), "severities": (), "schedules": (), "groups": ()}
# About a day and a half in all, as Standard Webhooks suggests.
_STEPS = (5 * SECOND, MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR)
DELIVERY_RETRY = Retry(
    max_attempts=len(_STEPS) + 1,
    backoff=Ladder(steps=_STEPS),
    exhausted=Exhausted.PARK,
    max_wait=timedelta(days=2),
)
# A check-in that is an hour late says nothing more. The end of a run waits for the first step while its
# start is being sent.
CHECK_IN_RETRY = Retry(
    max_attempts=4, backoff=Ladder(steps=(SECOND, MINUTE, 5 * MINUTE)), exhausted=Exhausted.FAIL
)
_LEASE = LeaseTerms(length=MINUTE, time_limit=45 * SECOND)
_SEVERITY: dict[str, Severity] = {
    "run-failed": "fail",
    "run-parked": "fail",
    "schedule-parked": "fail",
    "run-succeeded": "ok",
}
_SENTENCES = {
    "run-succeeded": "succeeded",
    "run-failed": "failed",
    "run-will-retry": "failed and will be tried again",
    "run-parked": "is parked until a person acts",
    "run-cancelled": "was cancelled",
    "run-skipped": "was skipped",
    "occurrences-dropped": "missed many occurrences",
    "run-admitted": "was admitted",
    "run-leased": "started",
    "lease-lost": "lost its lease",
    "schedule-parked": "is parked until a person acts",
    "schedule-finished": "has finished",
}
_CHECK_INS: dict[str, Literal["in_progress", "ok", "failed"]] = {
    "run-leased": "in_progress",
    "run-succeeded": "ok",
    "run-failed": "failed",
    "run-parked": "failed",
}


class Payload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored payload of a delivery: the message, and the sender if no channel has it."""

    message: dict[str, Any]
    to: AnySender | Ping | None = None


def deliver_facts(
    tx: Transaction, facts: Sequence[Fact], schedules: Mapping[str, Schedule], *, now: datetime
) -> list[Fact]:
    """Insert the deliveries of facts about runs and schedules, if any; returns the facts about them."""
    channels = _fact_channels(tx.read_channels())
    special = {
        one.id: one
        for one in schedules.values()
        if one.check_in is not None or (isinstance(one.target, Note) and one.target.channel)
    }
    if not channels and not special:
        return []
    runs: list[Run] = []
    for fact in facts:
        tag = str(fact.__struct_config__.tag)
        schedule = special.get(getattr(fact, "schedule_id", ""))
        if schedule is not None:
            runs += _special_runs(fact, tag, schedule, now=now)
        is_silent = is_delivery(getattr(fact, "queue", "")) or getattr(fact, "reason", "") == Reason.QUIET
        if tag in _SENTENCES and channels and not is_silent:
            known = schedules.get(getattr(fact, "schedule_id", ""))
            message = _fact_message(fact, tag, known)
            identity = f"{tag}:{message.run}:{getattr(fact, 'fence', '')}:{getattr(fact, 'schedule_id', '')}"
            runs += _runs_for(tx, channels, [message, *_named(message, known)], identity=identity, now=now)
    return _add(tx, runs, now=now)


def _named(message: Message, schedule: Schedule | None) -> list[Message]:
    """The same fact under the name that subscribers use for it: a missed run, a reminder that is due."""
    if message.type in ("run-skipped", "occurrences-dropped") and message.reason == Reason.MISSED:
        return [replace(message, type="run-missed", sentence=f"{message.subject} was missed")]
    if message.type == "run-succeeded" and schedule is not None and isinstance(schedule.target, Note):
        return [replace(message, type="reminder-due", sentence=schedule.target.text)]
    return []


def is_wanted(tx: Transaction, event: str) -> bool:
    """Whether any channel asks for an event; most events are made only then."""
    return any(one.channel is not None and one.channel.wants(event) for one in tx.read_channels())


def deliver_messages(tx: Transaction, messages: Sequence[Message], *, identity: str, now: datetime) -> None:
    """Insert one delivery per message and channel that wants it; many messages become one."""
    _add(tx, _runs_for(tx, tx.read_channels(), messages, identity=identity, now=now), now=now)


def deliver_questions(
    tx: Transaction, questions: Sequence[tuple[Run, str]], *, to: str, workflow: str, now: datetime
) -> list[Fact]:
    """Insert the deliveries of steps that wait for an answer, to the channel `to` and those that want them.

    The link that takes the answer is made when the message is sent: it is a permission, and is not stored.
    """
    messages = [
        Message(
            type="answer-wanted",
            at=now,
            namespace=run.namespace,
            subject=workflow,
            sentence=question,
            run=run.id,
            remedy=command_line("run", "answer", run.id, namespace=run.namespace),
            others=tuple(
                f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"[
                    :MAX_SHOWN_CHARS
                ]
                for name, value in run.payload.get("input", {}).items()
            )[:MAX_SHOWN_FIELDS],
        )
        for run, question in questions
    ]
    channels = tx.read_channels() if messages else ()
    addressed = tuple(
        one._replace(channel=replace(one.channel, events=("answer-wanted",), **_NO_FILTER))
        if one.channel is not None and one.name == to
        else one
        for one in channels
    )
    identity = f"question:{questions[0][0].id}" if questions else ""
    return _add(tx, _runs_for(tx, addressed, messages, identity=identity, now=now), now=now)


def deliver_to(tx: Transaction, namespace: str, name: str, message: Message, *, now: datetime) -> Run | None:
    """Insert a delivery to one channel, whatever its filter; None if there is no such channel."""
    for stored in tx.read_channels():
        if (stored.namespace, stored.name) == (namespace, name) and stored.channel is not None:
            identity = f"{message.type}:{message.run}:{now}"
            run = _channel_run(stored, message, link=_link(tx, stored), identity=identity, now=now)
            _add(tx, [run], now=now)
            return run
    return None


def _add(tx: Transaction, runs: Sequence[Run], *, now: datetime) -> list[Fact]:
    """Insert deliveries, except those that a first try of the same transaction has inserted."""
    known = tx.get_runs([run.id for run in runs]) if runs else {}
    new = [run for run in runs if run.id not in known]
    if new:
        tx.add_runs(new)
    return [fact for run in new for fact in new_run_facts(run, now=now)]


def check_in_run(sender: Ping, *, namespace: str, message: Message, identity: str, now: datetime) -> Run:
    """The delivery of a check-in."""
    return _run(namespace, CHECK_IN_QUEUE, Payload(message=message.to_json(), to=sender), identity, now=now)


def check_in_turn(tx: Transaction, launch: Launch) -> Literal["now", "later", "never"]:
    """Whether a check-in is sent now: a monitor must get the start before the end, and the newest end last.

    A start is left out once the run has ended. An end waits while the start is being sent, and is left out
    once the end of a later run of the schedule was sent.
    """
    assert isinstance(launch.target, Deliver)
    run_id, to = launch.target.message.run, msgspec.to_builtins(launch.target.to)
    if to["status"] == "in_progress":
        run = tx.get_runs([run_id]).get(run_id)
        return "now" if run is not None and run.state is RunState.LEASED else "never"
    sent = RunFilter(
        namespace=launch.namespace,
        queue=CHECK_IN_QUEUE,
        state=RunState.SUCCEEDED,
        since=launch.planned_at,
        limit=MAX_CHECK_INS,
    )
    for later in tx.find(sent).rows:
        message, other = later.payload["message"], later.payload["to"]
        is_same = message.get("schedule") == launch.target.message.schedule
        if is_same and other["status"] != "in_progress" and later.planned_at > launch.planned_at:
            return "never"
    under_way = RunFilter(queue=CHECK_IN_QUEUE, state=RunState.LEASED, limit=MAX_CHECK_INS)
    payloads = (run.payload for run in tx.find(under_way).rows)
    starts = (one for one in payloads if one["to"].get("status") == "in_progress")
    return "later" if any(one["message"].get("run") == run_id for one in starts) else "now"


def delivery_terms(run: Run, channels: Mapping[tuple[str, str], StoredChannel]) -> ExecutionTerms | None:
    """The terms of a delivery; None if its channel is gone or cannot be read."""
    payload = msgspec.convert(run.payload, Payload)
    message = msgspec.convert(payload.message, Message)
    if payload.to is not None:
        retry = CHECK_IN_RETRY if isinstance(payload.to, Ping) else DELIVERY_RETRY
        return ExecutionTerms(target=Deliver(to=payload.to, message=message), retry=retry, lease=_LEASE)
    stored = channels.get((run.namespace, run.queue.removeprefix(QUEUE_PREFIX)))
    if stored is None or stored.channel is None:
        return None
    return ExecutionTerms(
        target=Deliver(to=stored.channel.to, message=message), retry=DELIVERY_RETRY, lease=_LEASE
    )


def load_channels(tx: Transaction, runs: Iterable[Run]) -> dict[tuple[str, str], StoredChannel]:
    """The channels, if a run is a delivery."""
    if not any(is_delivery(run.queue) and not run.handoff for run in runs):
        return {}
    return {(one.namespace, one.name): one for one in tx.read_channels()}


def _special_runs(fact: Fact, tag: str, schedule: Schedule, *, now: datetime) -> list[Run]:
    """The check-in of a run, and the text of a reminder to its channel."""
    runs: list[Run] = []
    run_id = getattr(fact, "run_id", "")
    if schedule.check_in is not None and tag in _CHECK_INS:
        sender = Ping(check_in=schedule.check_in, status=_CHECK_INS[tag])
        message = _fact_message(fact, tag, schedule)
        identity = f"check-in:{tag}:{run_id}:{getattr(fact, 'fence', '')}"
        runs.append(
            check_in_run(sender, namespace=schedule.namespace, message=message, identity=identity, now=now)
        )
    if isinstance(schedule.target, Note) and schedule.target.channel and tag == "run-succeeded":
        text = schedule.target.text
        message = Message(
            type="reminder",
            at=now,
            namespace=schedule.namespace,
            severity="ok",
            sentence=text,
            run=run_id,
            remedy=command_line("reminder", "snooze", schedule.name, namespace=schedule.namespace),
        )
        queue = f"{QUEUE_PREFIX}{schedule.target.channel}"
        runs.append(
            _run(schedule.namespace, queue, Payload(message=message.to_json()), f"reminder:{run_id}", now=now)
        )
    return runs


def _fact_message(fact: Fact, tag: str, schedule: Schedule | None) -> Message:
    name = schedule.name if schedule is not None else ""
    queue, run_id = getattr(fact, "queue", ""), getattr(fact, "run_id", "")
    subject = name or (f"queue {queue}" if queue else run_id)
    words = ("run", "explain", run_id) if run_id else ("explain", name)
    return Message(
        type=tag,
        at=fact.at,
        namespace=fact.namespace,
        severity=_SEVERITY.get(tag, "warn"),
        subject=subject,
        sentence=f"{subject} {_SENTENCES[tag]}",
        schedule=name,
        group=(schedule.group or "") if schedule is not None else "",
        queue=queue,
        run=run_id,
        reason=getattr(fact, "reason", ""),
        error=getattr(fact, "error", "")[:2000],
        remedy=command_line(*words, namespace=fact.namespace),
    )


def _runs_for(
    tx: Transaction,
    channels: Iterable[StoredChannel],
    messages: Sequence[Message],
    *,
    identity: str,
    now: datetime,
) -> list[Run]:
    runs: list[Run] = []
    for stored in channels:
        channel = stored.channel
        if channel is None:
            continue
        wanted = [one for one in messages if one.namespace == stored.namespace and channel.matches(one)]
        if len(wanted) > MAX_SINGLE_MESSAGES:
            wanted = [digest(wanted)]
        link = _link(tx, stored) if wanted else ""
        runs += [
            _channel_run(
                stored, one, link=link, identity=f"{identity}:{one.type}:{one.incident or one.run}", now=now
            )
            for one in wanted
        ]
    return runs


def _link(tx: Transaction, stored: StoredChannel) -> str:
    """The address of the dashboard: that of the channel, else of the server that was started last."""
    own = stored.channel.link if stored.channel is not None else ""
    return (own or tx.get_meta(DASHBOARD_URL) or "").rstrip("/")


def _channel_run(stored: StoredChannel, message: Message, *, link: str, identity: str, now: datetime) -> Run:
    channel = stored.channel
    assert channel is not None
    if link:
        where = f"runs/{message.run}" if message.run else "incidents"
        message = replace(message, link=f"{link}/#/{where}")
    queue = f"{QUEUE_PREFIX}{stored.name}"
    run = _run(stored.namespace, queue, Payload(message=message.to_json()), identity, now=now)
    if isinstance(channel.to, Poll):
        body = {**message.to_json(), "id": run.id}
        keys = (queue_limit_key(stored.namespace, queue),)
        return replace(run, handoff=True, needs=(), limit_keys=keys, payload=body)
    if isinstance(channel.to, Command):
        return replace(run, needs=(*run.needs, f"shell:{channel.to.command[0]}"))
    return run


def _run(namespace: str, queue: str, payload: Payload, identity: str, *, now: datetime) -> Run:
    """The row of a delivery. Its id follows from what is told to whom, so it is never inserted twice."""
    mark = hashlib.sha256(f"{namespace}/{queue}:{identity}".encode()).digest()[:10]
    run_id = TimedIds(lambda size: mark[:size]).new("run", now=now)
    run = build_standalone_run(
        run_id=run_id,
        namespace=namespace,
        dedupe_scope=run_id,
        planned_at=now,
        fire_at=now,
        queue=queue,
        payload=msgspec.to_builtins(payload),
        created_at=now,
        made_by=MADE_BY,
    )
    return replace(run, handoff=False, limit_keys=(), needs=(f"queue:{queue}",))


def _fact_channels(channels: tuple[StoredChannel, ...]) -> tuple[StoredChannel, ...]:
    """The channels that want facts and not only incidents."""
    return tuple(
        one
        for one in channels
        if one.channel is not None
        and any(event != "incident" and not event.startswith("incident-") for event in one.channel.events)
    )
