"""Named limits: how many runs may run at a time, how quickly they start, per key, and in which shares.

    limits: [{name: crm, key: payload.tenant, max_running: 2, rate: 10/s burst 20, weights: {acme: 3}}]

The key is an expression over the run, evaluated once, when the run is created. Each of its values has its own
count and its own rate, and the values share what can start.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from timewright.core.moments import DAY, HOUR, MINUTE, SECOND
from timewright.core.target import DATA_FIELDS
from timewright.errors import InvalidInput

if TYPE_CHECKING:
    from timewright.core.run.run import Run
    from timewright.core.schedule.schedule import Schedule

# The kind of the stored objects.
LIMIT = "limit"
MAX_LIMIT = 100_000
MAX_WEIGHT = 1000
# How many limits a schedule, a queue or a step may name.
MAX_LIMITS = 16
MAX_WEIGHTS = 1000
MAX_KEY_CHARS = 100
# What the path of a key may begin with.
KEY_ROOTS = ("payload", "schedule", "queue", "namespace", "owner")
# Separates the name of a limit from the value of its key.
KEY_MARK = "#"

_MICROSECOND = timedelta(microseconds=1)
_RATE = re.compile(r"(\d{1,6}) ?(?:/|per) ?(\d{0,4}) ?([a-z]+)(?:,? burst (\d{1,6}))?", re.ASCII)
_PERIODS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
}
_RATE_RULE = "a count and a period of at most a day, and how many may start at once: 10/s, 100/m burst 20"

LimitName = Annotated[str, Meta(min_length=1, max_length=255)]
RateText = Annotated[str, Meta(max_length=64)]
KeyExpression = Annotated[str, Meta(max_length=500)]
Weights = dict[str, Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]]


class Rate(Struct, frozen=True):
    """At most `count` starts in every `period`, evenly spread, and `burst` - 1 more after a pause."""

    count: int
    period: timedelta
    burst: int = 1

    @property
    def interval(self) -> int:
        """Microseconds between two starts, rounded up."""
        return -(-self.period // _MICROSECOND // self.count)


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named limit. Without `key` all runs that name it share it.

    `rate` is such as `10/s burst 20`; a run over it starts later. `weights` are the shares of values of the
    key; a value without one has weight 1.
    """

    name: LimitName
    max_running: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None
    key: KeyExpression = ""
    rate: RateText = ""
    weights: Weights = {}

    def __post_init__(self) -> None:
        if self.max_running is None and not self.rate and not self.key:
            raise _invalid(self.name, "limit", "limits nothing", "max_running, rate or key", "max_running: 5")
        if self.max_running is not None and not 1 <= self.max_running <= MAX_LIMIT:
            raise _invalid(
                self.name,
                "max_running",
                f"cannot be {self.max_running}",
                f"a limit is 1 to {MAX_LIMIT}",
                "max_running: 5",
            )
        if self.rate:
            parse_rate(self.rate)
        if self.key:
            _parse_key(self.key)
        elif self.weights:
            raise _invalid(
                self.name, "weights", "has weights without a key", "shares are between keys", "add a key"
            )
        if len(self.weights) > MAX_WEIGHTS:
            raise _invalid(
                self.name, "weights", "has too many weights", f"at most {MAX_WEIGHTS}", "name fewer"
            )
        if self.is_grouped and KEY_MARK in self.name:
            fix = self.name.replace(KEY_MARK, "-")
            raise _invalid(self.name, "name", "has a #", "no # in the name of a limit with key or rate", fix)

    def __str__(self) -> str:
        count = f"{self.max_running} at a time" if self.max_running is not None else ""
        return ", ".join(filter(None, (count, self.rate, self.key and f"per {self.key}")))

    @property
    def is_grouped(self) -> bool:
        """Whether its runs wait in groups: it has a key or a rate."""
        return bool(self.key or self.rate)

    @property
    def capacity(self) -> int:
        """How many may run at a time."""
        return MAX_LIMIT if self.max_running is None else self.max_running

    @property
    def parsed_rate(self) -> Rate | None:
        """The rate, if it has one."""
        return parse_rate(self.rate) if self.rate else None

    def key_for(self, namespace: str, scope: Mapping[str, Any]) -> str:
        """The limit key of a run with these values; without a key and a rate that of the limit."""
        key = named_limit_key(namespace, self.name)
        if not self.is_grouped:
            return key
        return f"{key}{KEY_MARK}{_key_text(_evaluate(self.key, scope)) if self.key else ''}"


LimitUse = LimitName | Limit


def decode_limit(body: str | bytes) -> Limit:
    """Decode a stored limit."""
    return msgspec.json.decode(body, type=Limit)


def named_limit_key(namespace: str, limit: str) -> str:
    """Return the key of a named limit."""
    return f"limit:{namespace}/{limit}"


def is_grouped_key(limit_key: str) -> bool:
    """Whether runs under this limit key wait in groups."""
    return limit_key.startswith("limit:") and KEY_MARK in limit_key


def shown_limit(limit_key: str) -> tuple[str, str]:
    """The kind and the name of a limit key without its namespace; with a key, `crm[acme]`."""
    kind, _, path = limit_key.partition(":")
    name = path.partition("/")[2]
    if not is_grouped_key(limit_key):
        return kind, name
    name, _, value = name.partition(KEY_MARK)
    return kind, f"{name}[{value}]" if value else name


def limit_of(limit_key: str) -> str:
    """The name of the limit of a key, without its namespace and the value of the key."""
    return limit_key.partition("/")[2].partition(KEY_MARK)[0]


def limit_names(uses: Iterable[LimitUse]) -> list[str]:
    """The names of limits, each once."""
    return sorted({use if isinstance(use, str) else use.name for use in uses})


def resolve_limit_keys(
    run: Run,
    uses: Iterable[LimitUse],
    limits: Mapping[str, Limit],
    *,
    schedule: Schedule | None = None,
    payload: Any = None,
) -> tuple[str, ...]:
    """The limit keys of a new run: those it has, with the value of the key for each limit that has one."""
    names = limit_names(uses)
    if not names:
        return run.limit_keys
    given = payload if payload is not None else run.payload
    if given is None and schedule is not None:
        field = DATA_FIELDS.get(type(schedule.target))
        given = getattr(schedule.target, field) if field is not None else None
    scope = {
        "payload": given,
        "schedule": {"name": schedule.name, "group": schedule.group, "tags": list(schedule.tags)}
        if schedule is not None
        else None,
        "queue": run.queue or None,
        "namespace": run.namespace,
        "owner": (schedule.owner or schedule.created_by if schedule is not None else run.made_by) or None,
    }
    plain = {named_limit_key(run.namespace, name) for name in names}
    others = tuple(key for key in run.limit_keys if key not in plain)
    named = [
        limits[name].key_for(run.namespace, scope) if name in limits else named_limit_key(run.namespace, name)
        for name in names
    ]
    return (*others, *sorted(named, key=is_grouped_key))


def parse_rate(text: str) -> Rate:
    """Read `10/s`, `100/m burst 20` or `5/10s`; raises InvalidInput."""
    found = _RATE.fullmatch(" ".join(text.lower().split()))
    period = _PERIODS.get(found[3]) if found else None
    if found is None or period is None or not int(found[1]) or found[4] == "0":
        raise InvalidInput(
            f"rate {text!r} cannot be read", field="rate", value=text, rule=_RATE_RULE, fix="rate: 10/s"
        )
    rate = Rate(int(found[1]), int(found[2] or 1) * period, int(found[4] or 1))
    if not _MICROSECOND <= rate.period <= DAY or rate.count > rate.period // _MICROSECOND:
        raise InvalidInput(
            f"rate {text!r} is out of range", field="rate", value=text, rule=_RATE_RULE, fix="rate: 10/s"
        )
    return rate


def _parse_key(text: str) -> Any:
    from timewright.core.workflow.grammar import parse_condition

    return parse_condition(text, field="key", roots=KEY_ROOTS, error_type=InvalidInput)


def _evaluate(text: str, scope: Mapping[str, Any]) -> Any:
    from timewright.core.workflow.expression import evaluate

    return evaluate(_parse_key(text), scope)


def _key_text(value: Any) -> str:
    """The value of a key as text: a missing one is empty, a long one is cut and hashed."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    if len(text) <= MAX_KEY_CHARS and text.isprintable():
        return text
    readable = "".join(letter for letter in text[: MAX_KEY_CHARS // 2] if letter.isprintable())
    return f"{readable}~{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _invalid(name: str, field: str, why: str, rule: str, fix: str) -> InvalidInput:
    return InvalidInput(f"limit {name} {why}", field=field, value=name, rule=rule, fix=fix)
