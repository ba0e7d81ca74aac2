"""Steps of workflows that wait: for an answer of a person, or for an event."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from timewright.access.credentials import new_answer_slug, read_answer_slug
from timewright.core.run.run import Run, Succeeded
from timewright.core.workflow import FormField, check_answer, matches_event
from timewright.errors import Forbidden, NotAllowed
from timewright.ledger.run_ends import AttemptResult
from timewright.ledger.settle import settle_results
from timewright.ledger.workflow_runs.records import (
    HELD_BY_WAIT,
    HELD_BY_WORKFLOW,
)
from timewright.ledger.workflow_runs.waits import (
    WaitingStep,
    event_scopes,
    find_waiting_step,
    list_waiting_steps,
)
from timewright.operations.access.authentication import require_auth_cache
from timewright.operations.access.callers import Caller
from timewright.operations.access.permissions import is_agent
from timewright.operations.context import OperationContext
from timewright.operations.lookup import find_run
from timewright.operations.registry import WAITING_RUN, ObjectName, WriteRequest, operations
from timewright.operations.views import RunDetail, RunSummary, build_run_detail, summarize_run
from timewright.ports import Transaction


class PendingAnswer(Struct, frozen=True, kw_only=True):
    """A step that waits for a person: what it asks, whom, with what form and data, and until when."""

    run: str
    workflow: str
    step: str
    workflow_run: str
    question: str
    to: str
    form: dict[str, FormField]
    payload: dict[str, Any]
    since: datetime
    until: datetime | None


class AnswerRun(WriteRequest, frozen=True, kw_only=True):
    """Which run waits, and the answer: an object with the fields of its form, or any value without one."""

    run: ObjectName
    answer: Any = None


class LinkRun(WriteRequest, frozen=True, kw_only=True):
    """Which run waits for an answer."""

    run: ObjectName


class AnswerLink(Struct, frozen=True, kw_only=True):
    """The path of a page with the form; it takes one answer."""

    run: str
    path: str
    until: datetime | None


class SignalEvent(WriteRequest, frozen=True, kw_only=True):
    """The name of an event, and its data, which becomes the result of the steps that wait for it."""

    event: ObjectName
    data: Any = None


class SignalResult(Struct, frozen=True, kw_only=True):
    """The steps that the event has ended; an event that nobody waits for is not kept."""

    event: str
    runs: tuple[RunSummary, ...]


@operations.write(
    "run answer",
    scope="trigger",
    examples=({"run": WAITING_RUN, "answer": {"approved": True}, "reason": "checked the numbers"},),
)
def answer_run(context: OperationContext, tx: Transaction, request: AnswerRun) -> RunDetail:
    """Answer a step that waits for a person; agents cannot answer."""
    if is_agent(context):
        raise Forbidden(
            "agents cannot answer for a person",
            field="run",
            value=request.run,
            rule="a step that waits for an answer is answered by a person",
            fix=f"ask a person: run answer {request.run}",
        )
    waiting = _require_question(tx, find_run(tx, context.namespace, request.run))
    assert waiting.wait.answer is not None
    check_answer(waiting.wait.answer, request.answer)
    # The fence takes only the first answer.
    _settle(context, [waiting.run], request.answer, now=context.now())
    context.audit(tx, "run.answer", waiting.run.id)
    return build_run_detail(tx, find_run(tx, context.namespace, waiting.run.id))


@operations.write("run link", scope="write", examples=({"run": WAITING_RUN},))
def link_run(context: OperationContext, tx: Transaction, request: LinkRun) -> AnswerLink:
    """Make a one-time link with which a person without a key answers a step that waits."""
    keyring = require_auth_cache(context).keyring
    waiting = _require_question(tx, find_run(tx, context.namespace, request.run))
    run = waiting.run
    context.audit(tx, "run.link", run.id)
    return AnswerLink(run=run.id, path=f"/in/{new_answer_slug(keyring, run.id)}", until=waiting.until)


@operations.write("workflow signal", scope="trigger", examples=({"event": "payment", "data": {"order": 7}},))
def signal_event(context: OperationContext, tx: Transaction, request: SignalEvent) -> SignalResult:
    """Send an event: every step that waits for it ends, with the data as its result."""
    now = context.now()
    waiting = list_waiting_steps(tx, context.namespace, event=request.event)
    scopes = event_scopes(tx, waiting, request.data)
    ended = [
        one.run
        for one, scope in zip(waiting, scopes, strict=True)
        if one.wait.event is not None and matches_event(one.wait.event, request.event, scope)
    ]
    _settle(context, ended, request.data, now=now)
    context.audit(tx, "workflow.signal", request.event, after=str(len(ended)))
    after = tx.get_runs([run.id for run in ended])
    runs = tuple(summarize_run(after[run.id], schedule="") for run in ended)
    return SignalResult(event=request.event, runs=runs)


def pending_answers(tx: Transaction, namespace: str) -> list[PendingAnswer]:
    """The steps of a namespace that wait for a person, oldest first."""
    return [pending_answer(one) for one in list_waiting_steps(tx, namespace)]


def pending_answers_of(tx: Transaction, namespace: str, *, run: str, holder: str) -> list[PendingAnswer]:
    """The steps of one workflow run that wait for a person, or the step that the run itself is."""
    if holder not in (HELD_BY_WORKFLOW, HELD_BY_WAIT):
        return []
    return [one for one in pending_answers(tx, namespace) if run in (one.run, one.workflow_run)]


def pending_answer(waiting: WaitingStep) -> PendingAnswer:
    """What a person sees of a step that waits."""
    run, context, answer = waiting.run, waiting.context, waiting.wait.answer
    assert answer is not None
    return PendingAnswer(
        run=run.id,
        workflow=context.workflow,
        step=context.step,
        workflow_run=run.parent,
        question=waiting.question,
        to=answer.to,
        form=answer.form,
        payload=context.input,
        since=run.created_at,
        until=waiting.until,
    )


def open_link(context: OperationContext, slug: str) -> tuple[OperationContext, PendingAnswer] | None:
    """What a link asks, and the context to answer it in; None if there is no such link."""
    run_id = read_answer_slug(context.auth_cache.keyring, slug) if context.auth_cache is not None else None
    run = context.store.read(lambda tx: tx.get_runs([run_id])).get(run_id) if run_id is not None else None
    if run is None:
        return None
    waiting = context.store.read(lambda tx: _require_question(tx, run))
    caller = Caller(actor="link", origin="link", scopes=frozenset({"trigger"}))
    return replace(context, namespace=run.namespace, caller=caller), pending_answer(waiting)


def _require_question(tx: Transaction, run: Run) -> WaitingStep:
    waiting = find_waiting_step(tx, run)
    if waiting.wait.answer is None:
        raise NotAllowed(
            f"run {run.id} waits for an event, not for an answer",
            field="run",
            value=run.id,
            rule="a step with wait.answer takes an answer",
            fix=f"workflow signal {waiting.wait.event.name if waiting.wait.event else 'EVENT'}",
        )
    return waiting


def _settle(context: OperationContext, runs: list[Run], result: Any, *, now: datetime) -> None:
    ends = [
        AttemptResult(run=run, outcome=Succeeded(result=result), started_at=run.leased_at) for run in runs
    ]
    settled = settle_results(context.store, ends, now=now)
    if settled.stale:
        raise NotAllowed(
            f"run {settled.stale[0]} does not wait any more",
            field="run",
            value=settled.stale[0],
            rule="an answer is taken once, while the step waits",
            fix=f"run get {settled.stale[0]} shows its result",
        )
    context.notify(settled.facts)
