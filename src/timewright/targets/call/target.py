"""The call target: runs Python functions on the loop, on threads, or in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from timewright.core.run.run import Failed, Outcome
from timewright.core.target import Call, Isolation
from timewright.errors import NotAllowed, NotFound, TimewrightError
from timewright.ports import Launch, RunHandle
from timewright.targets.artifacts.store import ArtifactStore
from timewright.targets.call.in_process import InProcessCalls, LoopCall, ThreadCall
from timewright.targets.call.registry import FunctionRegistry, RegisteredFunction
from timewright.targets.call.threads import CallThreadPool
from timewright.targets.call.workers import WorkerPool
from timewright.targets.context import RunInfo
from timewright.targets.loop_thread import LoopThread
from timewright.targets.outcomes import (
    FINISHED_WORK,
    FirstResult,
    failed,
    failure_from_exception,
    released_on_close,
)
from timewright.targets.processes.child import function_environment
from timewright.targets.processes.children import ChildProcesses
from timewright.targets.secret_references import RunTokens


class CallTarget:
    """Calls registered functions by name. Their return value or exception becomes the outcome.

    `isolation` is the default for functions without their own: `inherit` runs async functions on the loop and
    others on threads, `process` runs all in worker processes. Give the target its own loop, because a
    function that blocks the loop blocks everything else on it.
    """

    def __init__(
        self,
        registry: FunctionRegistry,
        *,
        isolation: Isolation = "inherit",
        threads: int = 32,
        workers: int = 8,
        preload: Sequence[str] = (),
        environment: Callable[[], Mapping[str, str]] = function_environment,
        loop: LoopThread | None = None,
        own_process: bool = False,
        run_tokens: RunTokens | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self._run_tokens = run_tokens
        self._registry = registry
        self._isolation: Isolation = isolation
        self._children = ChildProcesses(own_process=own_process)
        self._in_process = InProcessCalls(
            io_thread=self._children.io_thread,
            threads=CallThreadPool(limit=threads),
            loop=loop,
            run_tokens=run_tokens,
            artifacts=artifacts,
        )
        self._workers = WorkerPool(
            self._children,
            limit=workers,
            preload=preload,
            environment=environment,
            artifacts=artifacts.location if artifacts is not None else "",
        )

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Start the function of the launch and return immediately."""
        result = FirstResult(done)
        try:
            return self._start(launch, result)
        except NotFound as error:
            result(Failed(error=f"{error.message}; {error.fix}", unresolved=True))
        except NotAllowed:
            result(released_on_close())
        except TimewrightError as error:
            result(failed(f"{error.message}; {error.fix}"))
        except Exception as error:  # noqa: BLE001 - boundary: a launch reports a failure, it never raises
            result(failure_from_exception(error))
        return FINISHED_WORK

    def warm_up(self) -> None:
        """Start the worker processes now, and not at the first calls."""
        self._workers.warm_up()

    def close(self, *, grace: timedelta) -> None:
        """Ask running calls to stop, abandon those that still run after `grace`, and free our resources."""
        seconds = grace.total_seconds()
        self._workers.close(grace=seconds)
        self._in_process.close(grace=seconds)
        self._children.close(grace=seconds)

    def _start(self, launch: Launch, result: FirstResult) -> RunHandle:
        target = launch.target
        if not isinstance(target, Call):
            result(Failed(error=f"a {type(target).__name__} is not a call", final=True))
            return FINISHED_WORK
        registered = self._registry.resolve(target.name)
        signature, payload = registered.signature, launch.given_payload
        args = signature.with_payload(target.args, payload)
        mismatch = signature.payload_mismatch(payload) or signature.mismatch(args)
        if mismatch:
            result(failed(f"the arguments do not fit {target.name!r}: {mismatch}"))
            return FINISHED_WORK
        grace = launch.grace.total_seconds()
        isolation = self._choose_isolation(target, registered)
        if isolation == "loop":
            return LoopCall(
                self._in_process, registered, launch=launch, args=args, grace=grace, result=result
            ).begin()
        if isolation == "thread":
            return ThreadCall(
                self._in_process, registered, launch=launch, args=args, grace=grace, result=result
            ).begin()
        token = self._run_tokens(launch.run_id, launch.fence) if self._run_tokens is not None else ""
        reference = self._registry.import_reference(registered)
        info = RunInfo.from_launch(launch, token=token)
        return self._workers.run(target.name, reference, args=args, info=info, grace=grace, done=result)

    def _choose_isolation(self, target: Call, registered: RegisteredFunction) -> Isolation:
        """The isolation of the schedule, else of the function, else of this target, else the default."""
        if target.isolation != "inherit":
            return target.isolation
        if registered.isolation != "inherit":
            return registered.isolation
        if self._isolation != "inherit":
            return self._isolation
        return "loop" if registered.is_async else "thread"
