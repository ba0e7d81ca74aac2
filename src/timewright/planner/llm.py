"""The same analysis, asked of a model: what schedules say is data to it, and its wishes are only wishes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from timewright.planner.desk import MOST_STEPS
from timewright.planner.line import Line, NoAnswer
from timewright.planner.prompts import AGAIN, JSON_ONLY, SYSTEM, fenced
from timewright.planner.tools import SUBMIT, TOOLS
from timewright.planner.wires import WIRES, Reply, ToolUse, Turn, use_in
from timewright.ports import Advised, Use
from timewright.settings import AdvisorTerms

MOST_TURNS = MOST_STEPS + 3
MILLION = 1_000_000


class Bill(Struct, kw_only=True):
    """What a conversation has cost so far."""

    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.tokens_in + self.tokens_out

    def add(self, reply: Reply) -> None:
        """One more answer."""
        self.tokens_in += reply.tokens_in
        self.tokens_out += reply.tokens_out


class Model:
    """Advises by asking a model over HTTP; it ends after so many steps, tokens and turns."""

    name = "llm"

    def __init__(self, terms: AdvisorTerms, *, key: Callable[[], str], line: Line | None = None) -> None:
        self._terms = terms
        self._key = key
        self._line = line or Line(terms.base_url, timeout=terms.timeout)
        self._native = terms.tools == "native"

    def advise(self, brief: Mapping[str, Any], use: Use, *, tokens_left: int) -> Advised:
        """One analysis: ask, use the tools that are named, answer, until the analysis is submitted."""
        bill, warnings, said = Bill(), [], ""
        talk = _Talk(use, native=self._native, fence=secrets.token_hex(8))
        turns = [talk.opening(brief)]
        for number in range(MOST_TURNS):
            if bill.tokens >= tokens_left:
                warnings.append(f"the month's tokens are used up after {bill.tokens}")
                break
            last = number >= MOST_TURNS - 2 or talk.steps >= MOST_STEPS - 1
            try:
                reply = self._reply(turns, last=last)
            except NoAnswer as error:
                warnings.append(str(error))
                break
            bill.add(reply)
            said = reply.text or said
            turns += talk.answered(reply)
            if talk.is_over:
                break
        return Advised(
            model=self._terms.model,
            tokens=bill.tokens,
            cost=self._cost(bill),
            said=said[:2000],
            warnings=tuple(warnings),
        )

    def _reply(self, turns: Sequence[Turn], *, last: bool) -> Reply:
        terms = self._terms
        wire = WIRES[terms.shape]
        tools = ((SUBMIT,) if last else tuple(TOOLS)) if self._native else ()
        system = SYSTEM if self._native else f"{SYSTEM}\n\n{JSON_ONLY}"
        asked = wire.ask(terms.model, self._key(), system, turns, most=terms.reply_tokens, tools=tools)
        return wire.read(self._line.ask(asked))

    def _cost(self, bill: Bill) -> float:
        terms = self._terms
        return round((bill.tokens_in * terms.price_in + bill.tokens_out * terms.price_out) / MILLION, 9)


class _Talk:
    """One conversation: what the model's tools answered goes back to it, fenced in as data."""

    def __init__(self, use: Use, *, native: bool, fence: str) -> None:
        self._use = use
        self._native = native
        self._fence = fence
        self.steps = 0
        self.is_over = False

    def opening(self, brief: Mapping[str, Any]) -> Turn:
        """What the model is told first."""
        return Turn(by="us", text=f"Look at this schedule.\n{fenced(brief, self._fence)}")

    def answered(self, reply: Reply) -> list[Turn]:
        """The model's turn and ours: each tool's answer, or what was wrong with what it said."""
        uses = reply.uses if self._native else (use_in(reply.text),)
        if not uses:
            return [Turn(by="model", text=reply.text), Turn(by="us", text=AGAIN)]
        # What is asked for beyond the last step is not even tried.
        uses = uses[: max(MOST_STEPS - self.steps, 1)]
        answers = tuple(self._answer(one) for one in uses)
        if self._native:
            return [
                Turn(by="model", text=reply.text, uses=uses),
                Turn(by="tools", uses=uses, answers=answers),
            ]
        return [Turn(by="model", text=reply.text or "(nothing)"), Turn(by="us", text="\n".join(answers))]

    def _answer(self, one: ToolUse) -> str:
        self.steps += 1
        if one.problem:
            # Used all the same, so that what was tried is on the record.
            self._use(one.name, {"unreadable": one.problem})
            return msgspec.json.encode({"refused": one.problem}).decode()
        answer = self._use(one.name, one.arguments)
        self.is_over = self.is_over or (one.name == SUBMIT and "refused" not in answer)
        return fenced(answer, self._fence)
