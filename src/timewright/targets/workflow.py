"""Starts workflows: here, where steps become runs, or in an external executor that receives the DAG.

Each attempt sends one POST with `workflow_id`, `version`, `user_id`, `scheduled_for` and `idempotency_key` as
JSON to the executor. A 2xx response means started, unless its body is `false` or has `started: false`.

A note needs no work either: its text is the result of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from timewright.core.moments import format_instant
from timewright.core.run.run import Failed, Outcome, Succeeded
from timewright.core.target import Http, Note, Workflow
from timewright.core.workflow import WorkflowSpec
from timewright.errors import NotFound, StoreError
from timewright.ports import Launch, RunHandle, Target
from timewright.targets.outcomes import FINISHED_WORK

STARTED_FIELD = "started"


class WorkflowStart(Struct, frozen=True, kw_only=True):
    """The workflow that a run starts: its definition, its user and its input."""

    spec: WorkflowSpec
    user: str = ""
    input: dict[str, Any] = {}


class WorkflowTarget:
    """Starts a workflow. Its steps or its executor report the result later."""

    def __init__(self, find: Callable[[Launch], WorkflowStart], *, http: Callable[[], Target]) -> None:
        self._find = find
        self._http = http

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Start the workflow; the outcome says whether that succeeded."""
        if not isinstance(launch.target, Workflow):
            done(Failed(error=f"a {type(launch.target).__name__} is not a workflow", final=True))
            return FINISHED_WORK
        try:
            dag = self._find(launch)
        except NotFound as error:
            done(Failed(error=error.message, unresolved=True))
            return FINISHED_WORK
        except StoreError as error:
            done(Failed(error=error.message))
            return FINISHED_WORK
        if dag.spec.executor is None:
            done(Succeeded())
            return FINISHED_WORK
        request = replace(launch, target=executor_request(dag.spec.executor, dag, launch))
        return self._http().launch(request, lambda outcome: done(_checked(outcome)))

    def close(self, *, grace: timedelta) -> None:
        """Do nothing: requests belong to the HTTP target."""


def executor_request(executor: Http, dag: WorkflowStart, launch: Launch) -> Http:
    """Build the request that starts the workflow in its executor."""
    own = executor.body if isinstance(executor.body, dict) else {}
    body = {
        **own,
        "workflow_id": dag.spec.name,
        "version": dag.spec.version,
        "user_id": dag.user or None,
        "scheduled_for": format_instant(launch.planned_at),
        "idempotency_key": launch.key,
        "run_id": launch.run_id,
        "fence": launch.fence,
        "input": dag.input,
        "dag": to_builtins(dag.spec),
    }
    return replace(executor, method="POST" if executor.method == "GET" else executor.method, body=body)


def _checked(outcome: Outcome) -> Outcome:
    """Turn a 2xx response with `false` or `started: false` into a failure."""
    if not isinstance(outcome, Succeeded) or not isinstance(outcome.result, dict):
        return outcome
    body = outcome.result.get("body")
    if body is False or (isinstance(body, dict) and body.get(STARTED_FIELD) is False):
        return Failed(error="the executor did not start the workflow", result=outcome.result)
    return outcome


class NoteTarget:
    """Succeeds immediately with the text of the note."""

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Report the outcome before returning."""
        if isinstance(launch.target, Note):
            done(Succeeded(result=launch.target.text))
        else:
            done(Failed(error=f"a {type(launch.target).__name__} is not a note", final=True))
        return FINISHED_WORK

    def close(self, *, grace: timedelta) -> None:
        """Do nothing: a note never runs in the background."""
