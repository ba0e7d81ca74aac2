"""The planner's loop: every few minutes, analyse the schedules of each namespace that are due for it.

One analysis builds the brief, lets the advisor use its tools, and records the result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from timewright.core.moments import DAY, MINUTE, ZERO, format_duration, parse_duration, parse_instant
from timewright.errors import InvalidInput, NotAllowed, NotFound, OverQuota, TimewrightError
from timewright.operations import OperationContext, operations
from timewright.operations.access.authentication import Caller, context_for
from timewright.operations.hints.analyses import FAILURES_INCREASED, read_advisor_key
from timewright.operations.text_safety import sanitize
from timewright.planner.heuristic_advisor import HeuristicAdvisor
from timewright.planner.tool_session import ToolSession, sibling_names
from timewright.ports import Advisor, AdvisorReport, Clock
from timewright.settings import Settings

MAX_DESCRIPTION_CHARS = 2000
MAX_RUNS_READ = 100
MAX_DURATION = timedelta(hours=1)
HEALTH_FIELDS = ("total", "success_rate", "streak", "per_hour", "outcomes")
DEFAULT_INTERVAL = 5 * MINUTE
MAX_SCHEDULES_PER_PASS = 100
MONTH_IS_SPENT = "the token quota of the month is used up: advised by the rules"
# The planner may read and give hints, whatever the rights of its host process are.
PLANNER_CALLER = Caller(actor="planner", origin="agent", scopes=frozenset({"read", "hint"}))


def analyse(
    context: OperationContext,
    schedule: str,
    advisor: Advisor,
    *,
    clock: Clock,
    why: str,
    tokens_left: int = 0,
    notes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Let an advisor analyse one schedule, record the analysis with `notes`, and return it."""
    began = clock.monotonic()
    brief = build_brief(context, schedule, why=why)
    session = ToolSession(context, schedule=brief["schedule"]["id"], group=brief["schedule"]["group"])
    warnings = list(notes)
    try:
        advised = advisor.advise(brief, session.call_tool, tokens_left=tokens_left)
    except Exception as error:  # noqa: BLE001  boundary: an advisor's failure is recorded, not raised
        advised = AdvisorReport(warnings=(f"the advisor failed: {type(error).__name__}: {error}",))
    if session.submitted is None:
        warnings.append("the advisor ended without submit_analysis")
    took = timedelta(seconds=max(clock.monotonic() - began, 0.0))
    record = _record(brief, session, advisor, advised, warnings=[*advised.warnings, *warnings], took=took)
    return _submit(context, record)


def _submit(context: OperationContext, record: dict[str, Any]) -> dict[str, Any]:
    """Submit the record; if it exceeds the namespace's request size, submit it without the tool calls."""
    try:
        return operations["analysis submit"](context, record)
    except OverQuota:
        cut = {
            "tools": [],
            "warnings": [*record["warnings"][:3], "the tool calls did not fit into the record"],
        }
        return operations["analysis submit"](context, {**record, **cut})


def build_brief(context: OperationContext, schedule: str, *, why: str) -> dict[str, Any]:
    """What every advisor gets first: interval and bounds, health over three windows, hints, the last
    analysis.
    """
    detail = operations["schedule get"](context, {"schedule": schedule})
    hinted = operations["hint list"](context, {"schedule": schedule})
    schedule_body = detail["schedule"]
    clamp, terms = schedule_body["clamp"], operations["namespace get"](context, {})["namespace"]
    return {
        "now": operations["health"](context, {})["now"],
        "why": why,
        "schedule": {
            "id": schedule_body["id"],
            "name": sanitize(schedule_body["name"], max_chars=255),
            "description": sanitize(schedule_body["description"], max_chars=MAX_DESCRIPTION_CHARS),
            "group": schedule_body["group"],
            "trigger": detail["trigger"],
            "interval": _interval(schedule_body["trigger"]),
            "min_interval": format_duration(
                max(_bound(clamp["min"]), _bound(terms["agent_shortest_interval"]))
            ),
            "max_interval": format_duration(
                min(_bound(clamp["max"]) or DAY, _bound(terms["agent_longest_hint"]))
            ),
            "has_stretch_cadence": schedule_body["cadence"].get("kind") == "stretch",
            "next_at": hinted["next_at"],
            "source": hinted["source"],
            "without_hints": hinted["without_hints"],
            "last_started_at": detail["progress"]["last_started_at"],
            "own_instant": _own_instant(context, schedule_body, hinted),
        },
        "hints": hinted["hints"],
        "health": _health(context, schedule),
        "siblings": [
            sanitize(name, max_chars=255)
            for name in sibling_names(context, schedule_body["name"], schedule_body["group"])
        ],
        "last_analysis": _last(context, schedule),
    }


def _own_instant(
    context: OperationContext, schedule: Mapping[str, Any], hinted: Mapping[str, Any]
) -> str | None:
    """An instant at which an interval runs by itself; its other instants are whole intervals away from it."""
    if _interval(schedule["trigger"]) is None or schedule["align"] != "now":
        return None if _interval(schedule["trigger"]) is None else hinted["without_hints"]
    hint = hinted["hints"]["interval"]
    if hint is None:
        return str(hinted["next_at"]) if hinted["next_at"] else None
    request = {
        "schedule": schedule["id"],
        "until": hint["since"] or hint["created_at"],
        "limit": MAX_RUNS_READ,
    }
    rows = operations["run list"](context, request)["runs"]
    return next((row["started_at"] for row in rows if row["source"] == "baseline-interval"), None)


def _health(context: OperationContext, schedule: str) -> dict[str, Any]:
    found = operations["schedule health"](context, {"schedule": schedule})
    windows = {
        name: {key: tally[key] for key in HEALTH_FIELDS} | {"duration": tally["duration"]["median"]}
        for name, tally in found["windows"].items()
    }
    return {"failures": found["failures"], "in_flight": found["in_flight"], "windows": windows}


def _last(context: OperationContext, schedule: str) -> dict[str, Any] | None:
    rows = operations["analysis list"](context, {"schedule": schedule, "limit": 1})["analyses"]
    if not rows:
        return None
    return {name: rows[0][name] for name in ("at", "advisor", "reasoning", "proposals", "confidence")}


def _record(
    brief: Mapping[str, Any],
    session: ToolSession,
    advisor: Advisor,
    advised: AdvisorReport,
    *,
    warnings: list[str],
    took: timedelta,
) -> dict[str, Any]:
    end = session.submitted
    text = end.reasoning if end is not None else advised.summary
    record = {
        "schedule": brief["schedule"]["id"],
        "advisor": advisor.name,
        "model": advised.model[:200],
        "tools": session.calls,
        "reasoning": sanitize(text, max_chars=3900) or "the advisor gave no reasoning",
        "proposals": session.proposals,
        "confidence": end.confidence if end is not None else "low",
        "tokens": advised.tokens,
        "cost": advised.cost,
        "took": format_duration(min(took, MAX_DURATION)),
        "warnings": [sanitize(one, max_chars=450) for one in warnings[:16]],
    }
    if end is not None and end.next_analysis_in_minutes is not None:
        record["look_again_in"] = format_duration(end.next_analysis_in_minutes * MINUTE)
    return record


def _interval(trigger: Mapping[str, Any]) -> str | None:
    found = trigger.get("interval") or trigger.get("delay")
    return str(found) if found else None


def _bound(duration: str | None) -> timedelta:
    return parse_duration(duration) if duration else ZERO


class Planner:
    """A loop beside the engine. Its only effect is hints, which are stored and expire."""

    def __init__(
        self,
        context: OperationContext,
        advisor: Advisor,
        *,
        clock: Clock,
        interval: timedelta = DEFAULT_INTERVAL,
        uses_tokens: bool = False,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._advisor = advisor
        self._clock = clock
        self._interval = interval
        self._uses_tokens = uses_tokens
        self._on_error = on_error
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> list[dict[str, Any]]:
        """Analyse every schedule that is due for it; return the analyses made."""
        made: list[dict[str, Any]] = []
        for context in self._contexts():
            due = operations["analysis due"](context, {"limit": MAX_SCHEDULES_PER_PASS})
            left = due["tokens_left"]
            for wanted in due["schedules"]:
                if self._ended.is_set():
                    break
                for one in self._analyse(context, wanted, tokens_left=left):
                    made.append(one)
                    left -= one["tokens"]
        return made

    def start(self) -> None:
        """Analyse now and at every interval, on a thread."""
        self._thread = threading.Thread(target=self._run, name="timewright-planner", daemon=True)
        self._thread.start()

    def stop(self, *, wait: timedelta = MINUTE) -> None:
        """Begin no further analysis, and wait for the one under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(wait.total_seconds())

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.run_once()
            except Exception as error:  # noqa: BLE001  boundary: a failed pass is reported and tried again
                if not self._ended.is_set():
                    self._on_error(f"planner pass failed: {error}")
            self._ended.wait(self._interval.total_seconds())

    def _contexts(self) -> Iterator[OperationContext]:
        """A context for each namespace with the planner's rights; a remote context is used as it is."""
        if self._context.remote is not None:
            yield self._context
            return
        cursor = ""
        while True:
            page = operations["namespace list"](self._context, {"limit": 1000, "cursor": cursor})
            for one in page["namespaces"]:
                yield context_for(self._context, PLANNER_CALLER, one["name"])
            cursor = page["cursor"]
            if not cursor:
                return

    def _analyse(
        self, context: OperationContext, wanted: dict[str, Any], *, tokens_left: int
    ) -> Iterator[dict[str, Any]]:
        try:
            if self._uses_tokens and _was_analysed(context, wanted):
                return
            is_spent = self._uses_tokens and tokens_left <= 0
            yield analyse(
                context,
                wanted["schedule_id"],
                HeuristicAdvisor() if is_spent else self._advisor,
                clock=self._clock,
                why=wanted["why"],
                tokens_left=tokens_left,
                notes=(MONTH_IS_SPENT,) if is_spent else (),
            )
        except (NotFound, NotAllowed):
            return  # it was archived or changed meanwhile
        except TimewrightError as error:
            self._on_error(f"planner could not analyse {wanted['schedule']}: {error.message}")


def _was_analysed(context: OperationContext, wanted: dict[str, Any]) -> bool:
    """Whether another planner analysed it meanwhile; a second analysis would cost tokens again."""
    if wanted["why"] == FAILURES_INCREASED:
        return False
    rows = operations["analysis list"](context, {"schedule": wanted["schedule_id"], "limit": 1})["analyses"]
    now = parse_instant(operations["health"](context, {})["now"])
    return bool(rows) and parse_instant(rows[0]["look_again_at"]) > now


def build_planner(
    context: OperationContext,
    settings: Settings,
    *,
    clock: Clock,
    on_error: Callable[[str], None] = lambda _: None,
) -> Planner:
    """Build the planner of an instance, with the built-in rules or a model as its advisor."""
    return Planner(
        context,
        build_advisor(context, settings),
        clock=clock,
        interval=settings.planner_every,
        uses_tokens=settings.planner == "llm",
        on_error=on_error,
    )


def build_advisor(context: OperationContext, settings: Settings) -> Advisor:
    """Build the advisor that the settings name."""
    if settings.planner != "llm":
        return HeuristicAdvisor()
    from timewright.planner.llm_advisor import LlmAdvisor

    terms = settings.advisor
    if not terms.model:
        raise InvalidInput(
            "no model is set",
            field="advisor.model",
            rule="planner: llm needs a model",
            fix="advisor: {model: NAME, key: env:OPENAI_API_KEY}",
        )
    host = urlsplit(terms.base_url).hostname or ""
    return LlmAdvisor(
        terms, key=lambda: read_advisor_key(context, terms.key, host=host, environment=os.environ)
    )
