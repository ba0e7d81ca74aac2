"""Effects of simulated work: every physical execution, from start to end."""

from __future__ import annotations

from msgspec import Struct

from timewright.verification.rows import Effect


class Execution(Struct, kw_only=True):
    """One execution that really ran, whether or not its result was recorded."""

    run_id: str
    key: str
    fence: int
    holder: str
    began: int
    ended: int | None = None


class Sinks:
    """Two receivers: an unfenced one accepts everything, a fenced one refuses older fences."""

    def __init__(self) -> None:
        self.executions: list[Execution] = []
        self.effects: list[Effect] = []
        self._newest: dict[str, int] = {}

    def begin(self, execution: Execution) -> Execution:
        """Record the start of an execution."""
        self.executions.append(execution)
        return execution

    def end(self, execution: Execution, *, at: int, completed: bool) -> None:
        """Record the end; completed work reaches both receivers."""
        if execution.ended is not None:
            return
        execution.ended = at
        if not completed:
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
    def stale_count(self) -> int:
        """Effects of lost leases that an unfenced receiver accepted."""
        return sum(effect.fenced and not effect.applied for effect in self.effects)
