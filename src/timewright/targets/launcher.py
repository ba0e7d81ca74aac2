"""Starts workflows: here, where their steps become runs, or outside, by handing the DAG to an executor.

An executor is asked once for each attempt to start(workflow_id, version, user_id, scheduled_for,
idempotency_key): a POST with these words as JSON. A 2xx answer is yes, unless its body is `false` or says
`started: false`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from timewright.core.moments import spell_instant
from timewright.core.run import Failed, Outcome, Succeeded
from timewright.core.target import Http, Workflow
from timewright.core.workflow import WorkflowSpec
from timewright.errors import NotFound, StoreError
from timewright.ports import Launch, Target, Work
from timewright.targets.once import ENDED

STARTED = "started"


class Dag(Struct, frozen=True, kw_only=True):
    """The workflow that a run is about to start: its words, for whom, and with what."""

    spec: WorkflowSpec
    user: str = ""
    input: dict[str, Any] = {}


class WorkflowTarget:
    """Starts a workflow; what becomes of it is told later, by its steps or by its executor."""

    def __init__(self, find: Callable[[Launch], Dag], *, http: Callable[[], Target]) -> None:
        self._find = find
        self._http = http

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Work:
        """Answer whether the workflow was started."""
        if not isinstance(launch.target, Workflow):
            done(Failed(error=f"a {type(launch.target).__name__} is not a workflow", final=True))
            return ENDED
        try:
            dag = self._find(launch)
        except NotFound as error:
            done(Failed(error=error.message, unresolved=True))
            return ENDED
        except StoreError as error:
            done(Failed(error=error.message))
            return ENDED
        if dag.spec.executor is None:
            done(Succeeded())
            return ENDED
        asked = replace(launch, target=asking(dag.spec.executor, dag, launch))
        return self._http().launch(asked, lambda outcome: done(_heard(outcome)))

    def close(self, *, grace: timedelta) -> None:
        """Nothing of its own is under way; requests belong to the target that makes them."""


def asking(executor: Http, dag: Dag, launch: Launch) -> Http:
    """The request that asks an executor to start."""
    own = executor.body if isinstance(executor.body, dict) else {}
    body = {
        **own,
        "workflow_id": dag.spec.name,
        "version": dag.spec.version,
        "user_id": dag.user or None,
        "scheduled_for": spell_instant(launch.planned_at),
        "idempotency_key": launch.key,
        "run_id": launch.run_id,
        "fence": launch.fence,
        "input": dag.input,
        "dag": to_builtins(dag.spec),
    }
    return replace(executor, method="POST" if executor.method == "GET" else executor.method, body=body)


def _heard(outcome: Outcome) -> Outcome:
    """A yes that says no in its body is a no."""
    if not isinstance(outcome, Succeeded) or not isinstance(outcome.result, dict):
        return outcome
    body = outcome.result.get("body")
    if body is False or (isinstance(body, dict) and body.get(STARTED) is False):
        return Failed(error="the executor did not start it", result=outcome.result)
    return outcome
