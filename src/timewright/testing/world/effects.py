"""What the work does to the outside: every physical execution, from its start to its end."""

from __future__ import annotations

from msgspec import Struct

from timewright.proof.rows import Effect


class Execution(Struct, kw_only=True):
    """One piece of work that really ran, whoever heard of its end."""

    run_id: str
    key: str
    fence: int
    holder: str
    began: int
    ended: int | None = None


class Sinks:
    """An unfenced sink that takes everything, and a fenced one that refuses an older token."""

    def __init__(self) -> None:
        self.executions: list[Execution] = []
        self.effects: list[Effect] = []
        self._newest: dict[str, int] = {}

    def begin(self, execution: Execution) -> Execution:
        """Work starts."""
        self.executions.append(execution)
        return execution

    def end(self, execution: Execution, *, at: int, did: bool) -> None:
        """Work stops; what it did reaches both sinks."""
        if execution.ended is not None:
            return
        execution.ended = at
        if not did:
            return
        newest = self._newest.get(execution.key, 0)
        self._newest[execution.key] = max(newest, execution.fence)
        for fenced in (False, True):
            self.effects.append(
                Effect(
                    at=at,
                    run_id=execution.run_id,
                    key=execution.key,
                    fence=execution.fence,
                    fenced=fenced,
                    applied=not fenced or execution.fence >= newest,
                )
            )

    @property
    def stale(self) -> int:
        """Effects that a sink without a fence would have taken from a lost lease."""
        return sum(effect.fenced and not effect.applied for effect in self.effects)
