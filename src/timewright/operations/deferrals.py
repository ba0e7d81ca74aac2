"""Why a run waits for a budget or a provider, and what they mean for what is to come."""

from __future__ import annotations

from datetime import datetime

from timewright.core.budgets import told_window
from timewright.core.leasing import Waits
from timewright.core.moments import spell_instant
from timewright.core.run import Run
from timewright.core.schedule import Schedule
from timewright.core.spending import used_up
from timewright.operations.reasons import Told, remedy
from timewright.ports import Transaction

_KINDS = tuple(f"{waits.value}: " for waits in (Waits.BUDGET, Waits.PROVIDER))


def tell_deferred(run: Run, *, now: datetime) -> Told | None:
    """What a run waits for that could have started but for a budget or a provider."""
    if run.fire_at <= now or not run.reason.startswith(_KINDS):
        return None
    kind, name, why = run.reason.split(": ", 2)
    because = (
        f"it waits until {spell_instant(run.fire_at)} for {kind} {name}: {why}",
        "that costs no attempt, and it is not failed",
    )
    if kind == Waits.PROVIDER.value:
        return Told(because=because, policy=("provider",), remedies=(remedy("provider open", (kind, name)),))
    return Told(because=because, policy=("budgets",), remedies=(remedy("budget get", (kind, name)),))


def tell_ahead(tx: Transaction, schedule: Schedule, at: datetime | None, *, now: datetime) -> tuple[str, ...]:
    """What a closed provider and budgets that are used up mean for an occurrence to come."""
    load = tx.book().of_schedule(schedule)
    if load is None:
        return ()
    when, told = at or now, []
    until = load.window.closed_until(now=now) if load.window is not None else None
    if load.window is not None and until is not None and when < until:
        told.append(
            f"provider {load.provider} is {told_window(load.window)}; nothing of it starts before then"
        )
    accounts = tx.read_accounts(load.places(when))
    told += [
        f"budget {name} leaves nothing until {spell_instant(end)}: {why}"
        for name, end, why in used_up(load, accounts, {}, now=when)
    ]
    return tuple(told)
