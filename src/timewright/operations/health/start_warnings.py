"""Warnings about what will not start or will fail: no engine, no such function, an address not allowed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from timewright.core.policies.limits import LIMIT, limit_names
from timewright.core.run.needs import needs_of_schedule
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import AnyTarget, Call, Http, Publish, Shell
from timewright.ledger.records.instances import is_alive, read_offers
from timewright.operations.context import OperationContext
from timewright.ports import Transaction
from timewright.settings import Settings

# Operations after which a caller expects that something starts by itself.
NEEDS_ENGINE = frozenset(
    {
        "schedule create", "schedule put", "schedule run", "schedule resume", "schedule backfill",
        "reminder set", "run retry", "run reset", "workflow run", "hint once", "channel test",
    }
)  # fmt: skip


def lacks_engine(context: OperationContext, operation: str) -> bool:
    """Whether the caller of an operation expects a start, and no instance that starts runs is alive.

    A server that is asked instead answers for itself.
    """
    if operation not in NEEDS_ENGINE or context.remote is not None:
        return False
    now = context.now()
    return not any(is_alive(one.seen, now=now) for one in context.store.read(read_offers))


def function_warnings(context: OperationContext, target: AnyTarget, *, now: datetime) -> tuple[str, ...]:
    """Return a warning if no running instance has the function that a target calls.

    It is for callers without functions of their own, such as the command line: a process that has registered
    functions rejects a target with an unknown one.
    """
    own = context.known_functions() if context.known_functions is not None else frozenset[str]()
    if not isinstance(target, Call) or target.name in own:
        return ()
    known = context.store.read(lambda tx: functions_of_live_instances(tx, now=now))
    if known is None or target.name in known:
        return ()
    near = get_close_matches(target.name[:255], known, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]!r}?" if near else "; start one with the --app that has it"
    return (f"no running instance has a function {target.name!r}{suggestion}",)


def run_warnings(context: OperationContext, schedule: Schedule, *, now: datetime) -> Iterator[str]:
    """Yield why runs of a schedule will not start or will fail, as far as it can be known now."""
    target, settings = schedule.target, context.settings
    if isinstance(target, Publish | Shell):
        live = [one.offer for one in context.store.read(read_offers) if is_alive(one.seen, now=now)]
        needs = needs_of_schedule(schedule)
        is_on = settings.shell if isinstance(target, Shell) else bool(settings.publish)
        if all(one.lacks(needs) for one in live) if live else not is_on:
            kind = "shell" if isinstance(target, Shell) else f"publish {target.to}"
            what = "running commands" if isinstance(target, Shell) else f"publishing to {target.to}"
            yield f"{what} is off; allow it where it runs: timewright up --{kind}"
    if isinstance(target, Http):
        yield from guarded_address(settings, target.url)
    if isinstance(target, Shell) and len(target.command) == 1 and " " in target.command[0]:
        yield (
            f"no shell splits {target.command[0]!r}: it is the name of one program;"
            f" if it has arguments, write them after --: --shell -- {target.command[0]}"
        )
    if schedule.limits:
        names = [name for name in limit_names(schedule.limits) if name in schedule.limits]
        rows = context.store.read(lambda tx: tx.get_objects(LIMIT, namespace=schedule.namespace, names=names))
        for name in sorted(set(names) - {row.name for row in rows}):
            yield (
                f"limit {name!r} is not set, so it allows one run at a time;"
                f" set it with: timewright limit set {shlex.quote(name)} --max-running 5"
            )


def guarded_address(settings: Settings, url: str) -> Iterator[str]:
    """Warn about an address that requests may not go to: private, or this machine where that is off."""
    try:
        address = ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return
    allowed = any(address in ip_network(rule.cidr) for rule in settings.egress.allow)
    if not (address.is_global or allowed or (address.is_loopback and settings.local)):
        yield (
            f"requests to {address} are refused, because it is not a public address;"
            f" allow it where it runs: egress = {{allow = [{{cidr = '{address}/{address.max_prefixlen}'}}]}}"
        )


def functions_of_live_instances(tx: Transaction, *, now: datetime) -> frozenset[str] | None:
    """Return the functions of all live instances; None if there is none, or one does not report them."""
    reported = [one.offer.functions for one in read_offers(tx) if is_alive(one.seen, now=now)]
    if not reported or None in reported:
        return None
    return frozenset(name for names in reported for name in names or ())
