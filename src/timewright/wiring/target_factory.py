"""Builds the targets of one instance on first use, and checks targets before a schedule is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from timewright.access.credentials import new_answer_slug, new_run_token
from timewright.access.secret_records import read_secret_value
from timewright.core.run.run import Failed, Outcome, TimedOut
from timewright.core.target import AnyTarget, Call, Http, Publish, SecretDestination, Shell, Workflow
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.alerts.deliveries import check_in_turn
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.text_safety import SecretRedactor
from timewright.ports import Clock, Launch, RunHandle, Store, Target
from timewright.settings import Settings

# A target enforces the time limit itself; wait this much longer for its result.
RESULT_GRACE = timedelta(seconds=1)


if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from ssl import SSLContext

    from timewright.targets.artifacts.store import ArtifactStore
    from timewright.targets.call.registry import FunctionRegistry
    from timewright.targets.http.egress import EgressPolicy
    from timewright.targets.loop_thread import LoopThread
    from timewright.targets.secret_references import RunTokens


# Environment variable with the store of the process that runs an app, for the app and its worker processes.
HOSTED_STORE_VARIABLE = "TIMEWRIGHT_HOSTED"


class TargetFactory:
    """Builds targets. `own` are the ports and addresses of this instance, which targets may not call."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        registry: FunctionRegistry,
        clock: Clock,
        isolated: bool,
        own_process: bool,
        auth_cache: AuthCache | None,
        redaction: SecretRedactor,
        own: tuple[Sequence[int], Sequence[str]],
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self._artifacts = artifacts
        self._redaction = redaction
        self._store = store
        self._settings = settings
        self._registry = registry
        self._clock = clock
        self._isolated = isolated
        self._own_process = own_process
        self._auth_cache = auth_cache
        self._own = own
        self._loops: list[LoopThread] = []
        self._borrowed: AbstractEventLoop | None = None

    def factories(self, *, others: Callable[[str], Target]) -> dict[str, Callable[[], Target]]:
        """The factory of each kind of target. `others` returns another target, for those that delegate."""
        return {
            "call": self._call,
            "http": self._http,
            "shell": self._shell,
            "publish": self._publish,
            "note": _note,
            "workflow": lambda: self._workflow(others),
            "deliver": lambda: self._deliver(others),
        }

    def use_loop(self, loop: AbstractEventLoop) -> None:
        """Run async functions on the program's own loop. Call it before the first function runs."""
        self._borrowed = loop

    def check(self) -> None:
        """Refuse settings that no target can be built with, before anything starts."""
        if self._settings.egress.authorities:
            _tls_context(self._settings.egress.authorities)

    def close(self, *, grace: timedelta) -> None:
        """Close the loops. Close the targets first."""
        for loop in self._loops:
            loop.close(grace=grace)

    def _call(self) -> Target:
        from timewright.targets.call.target import CallTarget
        from timewright.targets.processes.child import function_environment

        scheme, _, variable = self._settings.advisor.key.partition(":")
        target = CallTarget(
            self._registry,
            preload=(self._registry.app.partition(":")[0],) if self._isolated and self._registry.app else (),
            isolation="process" if self._isolated else "inherit",
            threads=self._settings.threads,
            workers=self._settings.workers,
            environment=partial(
                function_environment,
                self._settings.environment,
                always=(HOSTED_STORE_VARIABLE,) if self._isolated else (),
                withheld=(variable,) if scheme == "env" else (),
            ),
            loop=self._call_loop(),
            run_tokens=self._run_tokens,
            artifacts=self._artifacts,
        )
        if self._isolated:
            target.warm_up()
        return target

    def _http(self) -> Target:
        from asyncio import SelectorEventLoop  # it reads with our counting sockets; other loops may not

        from timewright.targets.http.target import HttpTarget

        rules = self._settings.egress
        return HttpTarget(
            self._loop_thread("timewright-http", new_loop=SelectorEventLoop),
            egress=self._egress(),
            clock=self._clock,
            secrets=self._secret,
            run_tokens=self._run_tokens,
            limit_per_host=rules.per_host,
            tls=_tls_context(rules.authorities) if rules.authorities else None,
        )

    def _egress(self) -> EgressPolicy:
        from timewright.targets.http.egress import EgressPolicy

        ports, addresses = self._own
        rules = self._settings.egress
        make = EgressPolicy.local if self._settings.local else EgressPolicy
        return replace(
            make(allow=rules.allow),
            ports=frozenset(rules.ports) or None,
            own_ports=frozenset(ports),
            own_addresses=frozenset(addresses),
        )

    def _deliver(self, others: Callable[[str], Target]) -> Target:
        from timewright.targets.deliver import DeliverTarget

        cache = self._auth_cache
        return DeliverTarget(
            others,
            clock=self._clock,
            egress=self._egress(),
            secrets=self._secret,
            answer_slug=(lambda run_id: new_answer_slug(cache.keyring, run_id))
            if cache is not None
            else None,
            check_in_turn=lambda launch: self._store.read(lambda tx: check_in_turn(tx, launch)),
        )

    def _shell(self) -> Target:
        from timewright.targets.shell.target import ShellTarget

        rules = self._settings.commands
        return ShellTarget(
            allowed=self._settings.shell and (rules.programs or True),
            rules=rules,
            secrets=self._secret,
            own_process=self._own_process,
            run_tokens=self._run_tokens,
        )

    def _publish(self) -> Target:
        from timewright.targets.publish.target import PublishTarget

        loop = self._loop_thread("timewright-publish")
        return PublishTarget(loop, allowed=self._settings.publish, secrets=self._secret)

    def _workflow(self, others: Callable[[str], Target]) -> Target:
        from timewright.ledger.workflow_runs.versions import load_workflow
        from timewright.targets.workflow import WorkflowStart, WorkflowTarget

        def find(launch: Launch) -> WorkflowStart:
            assert isinstance(launch.target, Workflow)
            target = launch.target
            spec, pin = self._store.read(lambda tx: load_workflow(tx, launch.run_id, target))
            return WorkflowStart(spec=spec, user=pin.user, input=pin.input)

        return WorkflowTarget(find, http=lambda: others("http"))

    def _secret(self, namespace: str, name: str, destination: SecretDestination) -> str:
        """Look up a secret for one launch, and add it to the values that are redacted."""
        if self._auth_cache is None:
            raise NotFound("no secrets are configured", field="secret", value=name)
        value = read_secret_value(
            self._store,
            self._auth_cache.keyring,
            namespace=namespace,
            name=name,
            destination=destination,
        )
        self._redaction.add_secret(name, value)
        return value

    @property
    def _run_tokens(self) -> RunTokens | None:
        """Makes the tokens of attempts; None without the installation's secret key."""
        cache = self._auth_cache
        if cache is None:
            return None
        return lambda run_id, fence: new_run_token(cache.keyring, run_id, fence, now=self._store.now())

    def _call_loop(self) -> LoopThread:
        if self._borrowed is None:
            return self._loop_thread("timewright-calls")
        from timewright.targets.loop_thread import BorrowedLoop

        loop = BorrowedLoop("timewright-calls", self._borrowed)
        self._loops.append(loop)
        return loop

    def _loop_thread(
        self, name: str, *, new_loop: Callable[[], AbstractEventLoop] | None = None
    ) -> LoopThread:
        from timewright.targets.loop_thread import LoopThread

        loop = LoopThread(name, new_loop=new_loop)
        loop.start()
        self._loops.append(loop)
        return loop


def _note() -> Target:
    from timewright.targets.workflow import NoteTarget

    return NoteTarget()


def _tls_context(path: str) -> SSLContext:
    """A TLS context that trusts the default authorities and those in a file."""
    from ssl import create_default_context

    context = create_default_context()
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise InvalidInput(
            f"egress.authorities {path} cannot be read: {error}",
            field="egress.authorities",
            value=path,
            rule="a file with PEM certificates",
            fix="authorities = '/etc/ssl/our-ca.pem'",
        ) from error
    return context


def new_registry(*, use_entry_points: bool = False) -> FunctionRegistry:
    """Create an empty registry, optionally with the functions of installed packages."""
    from timewright.targets.call.registry import FunctionRegistry

    return FunctionRegistry(use_entry_points=use_entry_points)


def load_registry(reference: str) -> FunctionRegistry:
    """Load the registry or the scheduler at `module:name`."""
    from timewright.targets.call.registry import load_app

    return load_app(reference)


def check_target(
    target: AnyTarget, *, registry: FunctionRegistry | None = None, args_later: bool = False
) -> None:
    """Refuse a target that could never start. Imports only the rules of its kind.

    Function names are checked only if the registry has functions. `args_later` skips the check of arguments,
    because a workflow step may get them only when it starts.
    """
    if isinstance(target, Call) and registry is not None and len(registry):
        from timewright.targets.call.registry import check_call

        check_call(registry, target, args_later=args_later)
    if isinstance(target, Http):
        from timewright.targets.http.request import check_http

        check_http(target)
    if isinstance(target, Shell):
        from timewright.targets.shell.validation import check_shell

        check_shell(target)
    if isinstance(target, Publish):
        from timewright.targets.publish.broker_types import check_publish

        check_publish(target)


def check_payload(target: AnyTarget, payload: Any, *, registry: FunctionRegistry | None = None) -> None:
    """Refuse the payload of a manual run that could not reach the target.

    Function names are checked only if the registry has functions.
    """
    if isinstance(target, Call) and registry is not None and len(registry):
        from timewright.targets.call.registry import check_call_payload

        check_call_payload(registry, target, payload)
    if isinstance(target, Http) and payload is not None:
        from timewright.targets.http.request import add_payload, prepare_request

        prepare_request(add_payload(target, payload))


def is_inside_run() -> bool:
    """Whether the caller is a function that runs for a schedule, on its thread or in its task."""
    from timewright.targets.reports import CURRENT_LOG

    return CURRENT_LOG.get() is not None


def is_importing_for_worker() -> bool:
    """Whether a worker process is importing a module of the user in this thread."""
    from timewright.targets.call.registry import is_importing_for_worker

    return is_importing_for_worker()


class LazyTargets(Mapping[str, Target]):
    """Targets by kind, built on first use, so that unused targets cost nothing."""

    def __init__(
        self, factories: Mapping[str, Callable[[], Target]], *, wrap: Callable[[str, Target], Target]
    ) -> None:
        self._factories = dict(factories)
        self._wrap = wrap
        self._built: dict[str, Target] = {}
        # A target that is built twice is closed once. Building one may need another.
        self._lock = threading.RLock()

    def __getitem__(self, kind: str) -> Target:
        if kind not in self._built:
            with self._lock:
                if kind not in self._built:
                    self._built[kind] = self._wrap(kind, self._factories[kind]())
        return self._built[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)

    def close(self, *, grace: timedelta) -> None:
        """Close the targets that were built."""
        for target in self._built.values():
            target.close(grace=grace)

    def launch_and_wait(self, launch: Launch, on_start: Callable[[RunHandle], None] | None = None) -> Outcome:
        """Launch a target without a run, and wait for its outcome, at most its time limit, if it has one.

        `on_start` receives the work, so that another thread may stop it.
        """
        kind = str(type(launch.target).__struct_config__.tag)
        if kind not in self._factories:
            return Failed(error=f"this process has no {kind} target", unresolved=True)
        ended = threading.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            ended.set()

        try:
            work = self[kind].launch(launch, done)
        except Exception as error:  # noqa: BLE001 - the boundary: an error of a target is its outcome
            return Failed(error=f"{type(error).__name__}: {error}")
        if on_start is not None:
            on_start(work)
        limit = launch.time_limit
        if not ended.wait((limit + RESULT_GRACE).total_seconds() if limit is not None else None):
            work.stop("time limit reached")
            ended.wait(launch.grace.total_seconds())
            return TimedOut()
        return outcomes[0]
