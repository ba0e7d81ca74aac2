"""The telemetry of one instance: log, metrics, traces and a store that measures its queries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from timewright.errors import InvalidInput, NotAllowed
from timewright.ports import Clock, Observer, Store, Target, Transaction
from timewright.ports.host_info import package_version
from timewright.ports.store import NonBlockingReader, ScheduleNames, names_in
from timewright.settings import Settings

T = TypeVar("T")
Measure = Callable[[str, float], None]

# Labels for whole transactions: opening, waiting, queries and commit.
TRANSACTION_LABELS = {"read": "read (whole)", "write": "write (whole)"}


if TYPE_CHECKING:
    from ssl import SSLContext

    from timewright.telemetry.live_metrics import HealthSource
    from timewright.telemetry.metrics import Metrics
    from timewright.telemetry.metrics_server import MetricsServer
    from timewright.telemetry.tracing import Tracing

Redact = Callable[[str], str]


class Telemetry:
    """The observers that the settings enable; disabled ones are not imported."""

    def __init__(
        self, settings: Settings, *, clock: Clock, redact: Redact = str, is_embedded: bool = False
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._redact = redact
        self._is_embedded = is_embedded
        self._metrics: Metrics | None = None
        self._tracing: Tracing | None = _tracing() if settings.trace else None
        self._server: MetricsServer | None = None
        self.observers: list[Observer] = []

    def attach(self, store: Store) -> Store:
        """Create the observers; return the store, wrapped to measure its queries if metrics are on."""
        names = names_in(store)
        self._add_log(store, names)
        if not (self._settings.metrics or self._settings.metrics_port):
            return store
        from timewright.telemetry.metrics import Metrics

        kind = "postgresql" if hasattr(store, "notify") else "sqlite"
        self._metrics = Metrics(
            version=package_version(), store=kind, schedules=self._settings.metric_schedules, names=names
        )
        self.observers.append(self._metrics)
        return TimedStore(store, measure=self._metrics.observe_statement, monotonic=self._clock.monotonic)

    def _add_log(self, store: Store, names: ScheduleNames) -> None:
        """Add the log of the settings, else the application's own if the scheduler is embedded in one."""
        if self._settings.log != "off":
            from timewright.telemetry.log import FactLog, new_logger

            logger = new_logger(self._settings.log, level=self._settings.log_level)
            self.observers.append(FactLog(logger, names=names, redact=self._redact))
        elif self._is_embedded:
            from timewright.telemetry.log import ApplicationLog, stored_traceback

            self.observers.append(
                ApplicationLog(names, traceback_of=partial(stored_traceback, store), redact=self._redact)
            )

    def register_live_metrics(self, store: Store, *, health: HealthSource) -> None:
        """Add the live metrics of the store and the engine's loop, if metrics are on."""
        if self._metrics is not None:
            from timewright.telemetry.live_metrics import LiveMetricsCollector

            self._metrics.registry.register(LiveMetricsCollector(store, health=health))

    def report_outages(self, health: HealthSource) -> None:
        """Log outages of the store, if the scheduler is embedded; `timewright up` prints them itself."""
        if self._is_embedded:
            from timewright.telemetry.log import log_outage

            health.on_outage = partial(log_outage, redact=self._redact)

    def wrap_target(self, kind: str, target: Target) -> Target:
        """Wrap the target in a span for each attempt, if tracing is on."""
        return self._tracing.wrap_target(kind, target) if self._tracing is not None else target

    def metrics_text(self) -> str:
        """All metrics in the Prometheus text format."""
        if self._metrics is None:
            raise NotAllowed(
                "metrics are off",
                field="metrics",
                rule="metrics must be enabled in the settings",
                fix="metrics: true",
            )
        return self._metrics.text(monotonic_now=self._clock.monotonic())

    def start(self, scrape: Callable[[str], str], *, tls: SSLContext | None = None) -> None:
        """Start the metrics server, if the settings have a port for it."""
        if not self._settings.metrics_port or self._metrics is None:
            return
        from timewright.telemetry.metrics_server import MetricsServer

        address, port = self._settings.metrics_host, self._settings.metrics_port
        try:
            self._server = MetricsServer(address, port, scrape=scrape, tls=tls)
        except OSError as error:
            raise InvalidInput(
                f"metrics cannot be served at {address}:{port}: {error.strerror or error}",
                field="metrics_port",
                value=port,
                rule="a free port on an address of this machine",
                fix="metrics_server: another number, or 0 for none",
            ) from None

    def close(self) -> None:
        """Stop the metrics server, and flush the spans."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._tracing is not None:
            self._tracing.close()


def _tracing() -> Tracing:
    from timewright.telemetry.tracing import new_tracing

    return new_tracing(version=package_version())


class TimedStore:
    """Forwards every call to a store and reports its duration."""

    def __init__(self, store: Store, *, measure: Measure, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._measure = measure
        self._monotonic = monotonic

    def now(self) -> datetime:
        """The store's clock."""
        return self._store.now()

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        """Run `work` in one durable transaction, and measure it and its queries."""
        return self.measure_call(
            "write",
            lambda: self._store.write(lambda tx: work(self._timed_transaction(tx)), commit_at=commit_at),
        )

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent snapshot, and measure it and its queries."""
        return self.measure_call(
            "read", lambda: self._store.read(lambda tx: work(self._timed_transaction(tx)))
        )

    @property
    def nonblocking_reader(self) -> NonBlockingReader | None:
        """The store's non-blocking reader, measured, if it has one."""
        nonblocking_reader: NonBlockingReader | None = getattr(self._store, "nonblocking_reader", None)
        return _TimedReader(nonblocking_reader, self) if nonblocking_reader is not None else None

    def close(self) -> None:
        """Close every connection."""
        self._store.close()

    def __getattr__(self, name: str) -> Any:
        # Optional methods that only some stores have.
        return getattr(self._store, name)

    def _timed_transaction(self, tx: Transaction) -> Transaction:
        return cast(Transaction, _TimedTransaction(tx, measure=self._measure, monotonic=self._monotonic))

    def measure_call(self, name: str, call: Callable[[], T]) -> T:
        """Run `call` and report its duration."""
        began = self._monotonic()
        try:
            return call()
        finally:
            self._measure(TRANSACTION_LABELS[name], self._monotonic() - began)


class _TimedReader:
    """A measured non-blocking reader.

    Only whole reads are measured: timing each query costs as much as the query.
    """

    def __init__(self, nonblocking_reader: NonBlockingReader, timed: TimedStore) -> None:
        self._nonblocking_reader = nonblocking_reader
        self._timed = timed
        self.now = nonblocking_reader.now
        self.data_version = nonblocking_reader.data_version

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` over one consistent snapshot, and measure it."""
        return self._timed.measure_call("read", lambda: self._nonblocking_reader.read(work))


class _TimedTransaction:
    """A transaction whose queries are measured."""

    __slots__ = ("_measure", "_monotonic", "_tx")

    def __init__(self, tx: Transaction, *, measure: Measure, monotonic: Callable[[], float]) -> None:
        self._tx = tx
        self._measure = measure
        self._monotonic = monotonic

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        measure, monotonic = self._measure, self._monotonic

        def timed(*given: Any, **named: Any) -> Any:
            began = monotonic()
            try:
                return found(*given, **named)
            finally:
                measure(name, monotonic() - began)

        return timed
