"""The workshop: builds the targets of one instance, each when it is first needed, and frees their loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from timewright.assembly.functions import HOSTED
from timewright.core.target import Workflow
from timewright.errors import InvalidInput, NotFound
from timewright.ledger.secret_shelf import reveal
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.redaction import Redaction
from timewright.ports import Clock, Launch, Store, Target
from timewright.settings import Settings

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from ssl import SSLContext

    from timewright.targets.loop import LoopThread
    from timewright.targets.registry import Registry


class Workshop:
    """What the targets of an instance are made from; `own` are its ports and addresses, closed to them."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        registry: Registry,
        clock: Clock,
        isolated: bool,
        own_process: bool,
        doorkeeper: Doorkeeper | None,
        redaction: Redaction,
        own: tuple[Sequence[int], Sequence[str]],
    ) -> None:
        self._redaction = redaction
        self._store = store
        self._settings = settings
        self._registry = registry
        self._clock = clock
        self._isolated = isolated
        self._own_process = own_process
        self._doorkeeper = doorkeeper
        self._own = own
        self._loops: list[LoopThread] = []
        self._lent: AbstractEventLoop | None = None

    def makers(self, *, others: Callable[[str], Target]) -> dict[str, Callable[[], Target]]:
        """How each kind of target is built; `others` finds the targets that one of them hands work to."""
        return {
            "call": self._call,
            "http": self._http,
            "shell": self._shell,
            "publish": self._publish,
            "note": _note,
            "workflow": lambda: self._workflow(others),
        }

    def lend(self, loop: AbstractEventLoop) -> None:
        """Call async functions on this loop, which is the program's own; before the first is called."""
        self._lent = loop

    def check(self) -> None:
        """Refuse settings that no target could be built with, before anything is started."""
        if self._settings.egress.authorities:
            _trusting(self._settings.egress.authorities)

    def close(self, *, grace: timedelta) -> None:
        """End the loops that targets worked on, after the targets themselves."""
        for loop in self._loops:
            loop.close(grace=grace)

    def _call(self) -> Target:
        from timewright.targets.call import CallTarget

        return CallTarget(
            self._registry,
            isolation="process" if self._isolated else "inherit",
            threads=self._settings.threads,
            workers=self._settings.workers,
            passed=(HOSTED,) if self._isolated else (),
            loop=self._loop_of_calls(),
        )

    def _http(self) -> Target:
        from asyncio import SelectorEventLoop  # it reads through our sockets, which count; others may not

        from timewright.targets.egress import Allow, Egress
        from timewright.targets.http import HttpTarget

        ports, addresses = self._own
        rules = self._settings.egress
        allow = [Allow(cidr=one.cidr, host=one.host, port=one.port) for one in rules.allow]
        egress = replace(
            Egress.local(allow=allow) if self._settings.local else Egress(allow=tuple(allow)),
            ports=frozenset(rules.ports) or None,
            own_ports=frozenset(ports),
            own_addresses=frozenset(addresses),
        )
        return HttpTarget(
            self._loop_thread("timewright-http", new_loop=SelectorEventLoop),
            egress=egress,
            clock=self._clock,
            secrets=self._secret,
            limit_per_host=rules.per_host,
            tls=_trusting(rules.authorities) if rules.authorities else None,
        )

    def _shell(self) -> Target:
        from timewright.targets.limits import Limits
        from timewright.targets.shell import ShellTarget

        rules = self._settings.commands
        bounds = {field: getattr(rules, field) for field in Limits.__struct_fields__}
        return ShellTarget(
            allowed=self._settings.shell and (rules.programs or True),
            root=rules.folder or None,
            passed=rules.environment,
            limits=Limits(**bounds),
            secrets=self._secret,
            own_process=self._own_process,
        )

    def _publish(self) -> Target:
        from timewright.targets.publish.target import PublishTarget

        loop = self._loop_thread("timewright-publish")
        return PublishTarget(loop, allowed=self._settings.publish, secrets=self._secret)

    def _workflow(self, others: Callable[[str], Target]) -> Target:
        from timewright.ledger.unfold_pin import dag_of
        from timewright.targets.launcher import Dag, WorkflowTarget

        def find(launch: Launch) -> Dag:
            assert isinstance(launch.target, Workflow)
            target = launch.target
            spec, pin = self._store.read(lambda tx: dag_of(tx, launch.run_id, target))
            return Dag(spec=spec, user=pin.user, input=pin.input)

        return WorkflowTarget(find, http=lambda: others("http"))

    def _secret(self, namespace: str, name: str) -> str:
        """The value of a secret for one launch; whoever asks keeps it no longer than that."""
        if self._doorkeeper is None:
            raise NotFound("no secrets are set up", field="secret", value=name)
        value = reveal(self._store, self._doorkeeper.keyring, namespace=namespace, name=name)
        self._redaction.learn(name, value)
        return value

    def _loop_of_calls(self) -> LoopThread:
        if self._lent is None:
            return self._loop_thread("timewright-calls")
        from timewright.targets.borrowed_loop import BorrowedLoop

        loop = BorrowedLoop("timewright-calls", self._lent)
        self._loops.append(loop)
        return loop

    def _loop_thread(
        self, name: str, *, new_loop: Callable[[], AbstractEventLoop] | None = None
    ) -> LoopThread:
        from timewright.targets.loop import LoopThread

        loop = LoopThread(name, new_loop=new_loop)
        loop.start()
        self._loops.append(loop)
        return loop


def _note() -> Target:
    from timewright.targets.note import NoteTarget

    return NoteTarget()


def _trusting(path: str) -> SSLContext:
    """The usual authorities, and those in a file; every certificate and its name are verified."""
    from ssl import create_default_context

    context = create_default_context()
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise InvalidInput(
            f"egress.authorities {path} cannot be read: {error}",
            field="egress.authorities",
            value=path,
            rule="a file of certificates in PEM",
            fix="authorities = '/etc/ssl/our-ca.pem'",
        ) from error
    return context
