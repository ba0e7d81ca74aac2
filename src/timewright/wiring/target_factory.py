"""Builds the targets of one instance on first use, and closes their loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from timewright.access.secret_records import read_secret_value
from timewright.core.target import SecretDestination, Workflow
from timewright.errors import InvalidInput, NotFound
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.redaction import SecretRedactor
from timewright.ports import Clock, Launch, Store, Target
from timewright.settings import Settings
from timewright.wiring.functions import HOSTED_STORE_VARIABLE

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from ssl import SSLContext

    from timewright.targets.call.registry import FunctionRegistry
    from timewright.targets.http.egress import EgressPolicy
    from timewright.targets.loop_thread import LoopThread


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
    ) -> None:
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
        from timewright.targets.processes.environment import function_environment

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
            limit_per_host=rules.per_host,
            tls=_tls_context(rules.authorities) if rules.authorities else None,
        )

    def _egress(self) -> EgressPolicy:
        from timewright.targets.http.egress import AllowRule, EgressPolicy

        ports, addresses = self._own
        rules = self._settings.egress
        allow = [AllowRule(cidr=one.cidr, host=one.host, port=one.port) for one in rules.allow]
        return replace(
            EgressPolicy.local(allow=allow) if self._settings.local else EgressPolicy(allow=tuple(allow)),
            ports=frozenset(rules.ports) or None,
            own_ports=frozenset(ports),
            own_addresses=frozenset(addresses),
        )

    def _deliver(self, others: Callable[[str], Target]) -> Target:
        from timewright.targets.deliver.target import DeliverTarget

        return DeliverTarget(others, clock=self._clock, egress=self._egress(), secrets=self._secret)

    def _shell(self) -> Target:
        from timewright.targets.shell.limits import CommandLimits
        from timewright.targets.shell.target import ShellTarget

        rules = self._settings.commands
        bounds = {field: getattr(rules, field) for field in CommandLimits.__struct_fields__}
        return ShellTarget(
            allowed=self._settings.shell and (rules.programs or True),
            root=rules.folder or None,
            passed=rules.environment,
            limits=CommandLimits(**bounds),
            secrets=self._secret,
            own_process=self._own_process,
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
    from timewright.targets.note import NoteTarget

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
