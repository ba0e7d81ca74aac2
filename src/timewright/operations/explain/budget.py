"""Explain runs that wait for a budget or a provider, and the effect on future occurrences."""

from __future__ import annotations

from datetime import datetime

from timewright.core.budgets.budgets import describe_window
from timewright.core.budgets.spending import exhausted_budgets
from timewright.core.moments import MAX_STORED_INSTANT, format_instant
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Run
from timewright.core.schedule.schedule import Schedule
from timewright.operations.explain.reasons import ExplanationPart, remedy
from timewright.ports import Transaction

_REASON_PREFIXES = tuple(
    f"{waits.value}: " for waits in (WaitReason.BUDGET, WaitReason.PROVIDER, WaitReason.PAUSE)
)


def explain_deferral(run: Run, *, now: datetime) -> ExplanationPart | None:
    """Explain a run that waits only for a budget, a provider or the end of a pause; None for other runs."""
    if run.fire_at <= now or not run.reason.startswith(_REASON_PREFIXES):
        return None
    kind, name, why = run.reason.split(": ", 2)
    if kind == WaitReason.PAUSE.value:
        until = "its end" if run.fire_at >= MAX_STORED_INSTANT else format_instant(run.fire_at)
        return ExplanationPart(because=(f"it waits until {until}: {why}",))
    because = (
        f"it waits until {format_instant(run.fire_at)} for {kind} {name}: {why}",
        "waiting does not count as an attempt",
    )
    if kind == WaitReason.PROVIDER.value:
        return ExplanationPart(
            because=because, policy=("provider",), remedies=(remedy("provider open", (kind, name)),)
        )
    return ExplanationPart(
        because=because, policy=("budgets",), remedies=(remedy("budget get", (kind, name)),)
    )


def explain_budget_ahead(
    tx: Transaction, schedule: Schedule, at: datetime | None, *, now: datetime
) -> tuple[str, ...]:
    """Explain what a closed provider or a used-up budget means for a future occurrence."""
    load = tx.read_budgets().budgets_of_schedule(schedule)
    if load is None:
        return ()
    when, sentences = at or now, []
    until = load.window.closed_until(now=now) if load.window is not None else None
    if load.window is not None and until is not None and when < until:
        sentences.append(
            f"provider {load.provider} is {describe_window(load.window)}; its runs wait until then"
        )
    accounts = tx.get_accounts(load.account_keys(when))
    sentences += [
        f"budget {name} is used up until {format_instant(end)}: {why}"
        for name, end, why in exhausted_budgets(load, accounts, {}, now=when)
    ]
    return tuple(sentences)
