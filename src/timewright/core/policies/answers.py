"""Rules over an answer: which answers of the work count as success, failure, nothing new, or not yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.core.target import AnyTarget, Call, Handoff, Http, Shell, Workflow
from timewright.errors import InvalidInput

if TYPE_CHECKING:
    from timewright.core.workflow.expression import Expression, ValuePath

# What a path of a rule may begin with.
ROOTS = ("result", "status", "body", "exit", "output", "ok", "error", "state", "seen")
MAX_RULES = 20
Condition = Annotated[str, Meta(min_length=1, max_length=500)]


class Verdict(StrEnum):
    """What an answer counts as."""

    SUCCESS = "success"
    FAILURE = "failure"
    QUIET = "quiet"
    LATER = "later"


class AnswerRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """If a condition over the answer holds, what the answer counts as. The first rule that holds decides."""

    condition: Condition = field(name="if")
    then: Verdict

    def __post_init__(self) -> None:
        _parse(self.condition, name="rules.if")


class _ShortForm(AnswerRule, frozen=True, kw_only=True):
    """A rule that another field stands for, and its message if it decides."""

    why: str


class ChangeWatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer is news only if the value at a path has changed since the last; `once` ends the schedule."""

    changed: Condition
    once: bool = False

    def __post_init__(self) -> None:
        _parse(f"changed({self.changed})", name="watch.changed")


class AnswerRules(Struct, frozen=True, kw_only=True):
    """All rules of a schedule as one list, and its watch."""

    rules: tuple[AnswerRule, ...] = ()
    watch: ChangeWatch | None = None


class Judgement(Struct, frozen=True, kw_only=True):
    """An answer after the rules: the outcome, whether it is nothing new, and the values seen with it."""

    outcome: Outcome
    quiet: bool = False
    seen: Mapping[str, Any] | None = None


def check_answer_fields(succeed_if: str, check: AnyTarget | None, target: AnyTarget) -> None:
    """Refuse a condition that cannot be read, and a check that cannot run before its target."""
    if succeed_if:
        _parse(succeed_if, name="succeed_if")
    wrong = check if check is not None and not isinstance(check, Call | Http | Shell) else None
    if check is not None and isinstance(target, Handoff | Workflow):
        wrong = target
    if wrong is not None:
        kind = str(type(wrong).__struct_config__.tag)
        raise InvalidInput(
            f"a {kind} cannot {'be' if wrong is check else 'have'} a check",
            field="check",
            value=kind,
            rule="a check is a call, an HTTP request or a command; handoffs and workflows have none",
            fix="check: {http: HEAD https://example.com/orders}",
        )


def collect_rules(
    rules: tuple[AnswerRule, ...],
    succeed_if: str,
    exit_codes: Mapping[str, Verdict],
    empty: Literal["succeed", "fail", "quiet"],
    watch: ChangeWatch | None,
) -> AnswerRules:
    """Return what a schedule says about answers as one list of rules."""
    found: list[AnswerRule] = [
        _ShortForm(condition=f"exit == {code}", then=then, why=f"exit_codes says that {code} is {then}")
        for code, then in exit_codes.items()
    ]
    if empty != "succeed":
        nothing = (
            "ok and (empty(result) or (status != null and empty(body)) or (exit != null and empty(output)))"
        )
        then = Verdict.QUIET if empty == "quiet" else Verdict.FAILURE
        found.append(_ShortForm(condition=nothing, then=then, why=f"the answer is empty (empty: {empty})"))
    found += rules
    if succeed_if:
        found += [
            AnswerRule(condition=succeed_if, then=Verdict.SUCCESS),
            _ShortForm(condition="true", then=Verdict.FAILURE, why=f"succeed_if does not hold: {succeed_if}"),
        ]
    return AnswerRules(rules=tuple(found), watch=watch)


def judge(
    rules: AnswerRules, outcome: Outcome, *, seen: Mapping[str, Any], state: Any, now: datetime
) -> Judgement:
    """Return what an answer counts as. Only answers of the work are judged, not losses and cancels."""
    is_answer = isinstance(outcome, Succeeded) or (
        isinstance(outcome, Failed) and not (outcome.unresolved or outcome.unknown)
    )
    if not is_answer:
        return Judgement(outcome=outcome)
    scope = _scope(outcome, seen=seen, state=state)
    rule = next((one for one in rules.rules if _holds(one.condition, scope)), None)
    verdict = rule.then if rule is not None else Verdict.SUCCESS if scope["ok"] else Verdict.FAILURE
    if verdict is Verdict.SUCCESS and rules.watch is not None:
        verdict = Verdict.SUCCESS if _holds(f"changed({rules.watch.changed})", scope) else Verdict.QUIET
    remembered = _remember(rules, scope)
    if verdict is Verdict.QUIET:
        quiet = Succeeded(outcome_label="noop", result=outcome.result, cost=outcome.cost)
        return Judgement(outcome=quiet, quiet=True, seen=remembered)
    if verdict is Verdict.SUCCESS:
        done = outcome if scope["ok"] else Succeeded(result=outcome.result, cost=outcome.cost)
        return Judgement(outcome=done, seen=remembered)
    if rule is None:
        return Judgement(outcome=outcome)
    why = rule.why if isinstance(rule, _ShortForm) else f"the rule {rule.condition!r} holds"
    if verdict is Verdict.LATER:
        later = Failed(error=why, not_before=now, result=outcome.result, cost=outcome.cost)
        return Judgement(outcome=later)
    error = f"{outcome.error}; {why}" if isinstance(outcome, Failed) else why
    failed = Failed(error=error, result=outcome.result, cost=outcome.cost)
    return Judgement(outcome=replace(outcome, error=error) if isinstance(outcome, Failed) else failed)


def _scope(outcome: Outcome, *, seen: Mapping[str, Any], state: Any) -> dict[str, Any]:
    """Return the values of a rule's paths: `status` and `body` of HTTP, `exit` and `output` of commands."""
    result = outcome.result
    parts = result if isinstance(result, Mapping) else {}
    # A function that printed something has its text beside its value.
    is_wrapped = parts.keys() == {"value", "output"}
    return {
        "result": parts["value"] if is_wrapped else result,
        "status": parts.get("status"),
        "body": parts.get("body"),
        "exit": parts.get("exit"),
        "output": parts.get("output"),
        "ok": isinstance(outcome, Succeeded),
        "error": outcome.error if isinstance(outcome, Failed) else "",
        "state": state,
        "seen": seen,
    }


def _remember(rules: AnswerRules, scope: Mapping[str, Any]) -> dict[str, Any] | None:
    from timewright.core.workflow.expression import MISSING, fingerprint, resolve_path

    found = {name: resolve_path(path, scope) for name, path in _paths_to_remember(rules)}
    values = {name: fingerprint(None if value is MISSING else value) for name, value in found.items()}
    return {**scope["seen"], **values} if values else None


@lru_cache(maxsize=1024)
def _paths_to_remember(rules: AnswerRules) -> tuple[tuple[str, ValuePath], ...]:
    """The paths in `changed` of the rules; cached, because every answer of a schedule needs them."""
    from timewright.core.workflow.expression import changed_paths

    watched = [f"changed({rules.watch.changed})"] if rules.watch is not None else []
    conditions = [rule.condition for rule in rules.rules] + watched
    found = {str(path): path for text in conditions for path in changed_paths(_parse(text))}
    return tuple(found.items())


def _holds(condition: str, scope: Mapping[str, Any]) -> bool:
    from timewright.core.workflow.expression import evaluate_condition

    return evaluate_condition(_parse(condition), scope)


def _parse(condition: str, *, name: str = "rules.if") -> Expression:
    # Imported late: the workflow package reads schedules, which have these rules.
    from timewright.core.workflow.grammar import parse_condition

    return parse_condition(condition, field=name, roots=ROOTS, error_type=InvalidInput)
