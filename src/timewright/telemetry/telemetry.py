"""The telemetry of one instance: log, metrics and traces, as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from timewright.errors import InvalidInput, NotAllowed
from timewright.ports import Clock, Observer, Store, Target
from timewright.ports.schedule_names import ScheduleNames, names_in
from timewright.settings import Settings

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
        from timewright.telemetry.timed_store import TimedStore

        kind = "postgresql" if hasattr(store, "notify") else "sqlite"
        self._metrics = Metrics(
            version=_version(), store=kind, schedules=self._settings.metric_schedules, names=names
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

    return new_tracing(version=_version())


def _version() -> str:
    from importlib.metadata import version

    return version("timewright")
