"""What one instance lets be seen of itself, by its settings: lines, numbers and traces, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from timewright.errors import InvalidInput, NotAllowed
from timewright.ports import Clock, Observer, Store, Target
from timewright.settings import Settings

if TYPE_CHECKING:
    from timewright.observe.metrics import Metrics
    from timewright.observe.port import MetricsPort
    from timewright.observe.reading import Beating
    from timewright.observe.trace import Tracing

Redact = Callable[[str], str]


class Watch:
    """The observers that the settings ask for; what nobody asked for is not even imported."""

    def __init__(self, settings: Settings, *, clock: Clock, redact: Redact | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics: Metrics | None = None
        self._tracing: Tracing | None = _tracing() if settings.trace else None
        self._port: MetricsPort | None = None
        self.observers: list[Observer] = []
        if settings.log != "off":
            from timewright.observe.log import FactLog, new_logger

            logger = new_logger(settings.log, level=settings.log_level)
            self.observers.append(FactLog(logger, redact=redact))

    def timed(self, store: Store) -> Store:
        """The store, measured if anyone measures."""
        if not (self._settings.metrics or self._settings.metrics_port):
            return store
        from timewright.observe.metrics import Metrics
        from timewright.observe.timing import TimedStore

        kind = "postgresql" if hasattr(store, "notify") else "sqlite"
        self._metrics = Metrics(version=_version(), store=kind, schedules=self._settings.metric_schedules)
        self.observers.append(self._metrics)
        return TimedStore(store, measure=self._metrics.observe_statement, monotonic=self._clock.monotonic)

    def look_at(self, store: Store, *, pulse: Beating) -> None:
        """Read what lives in the store, and how the engine does, whenever someone asks for numbers."""
        if self._metrics is not None:
            from timewright.observe.reading import Reading

            self._metrics.registry.register(Reading(store, pulse=pulse))

    def around(self, kind: str, target: Target) -> Target:
        """The target with a span around each of its attempts, if anyone traces."""
        return self._tracing.around(kind, target) if self._tracing is not None else target

    def metrics_text(self) -> str:
        """Every number, as Prometheus reads it."""
        if self._metrics is None:
            raise NotAllowed(
                "this instance does not count",
                field="metrics",
                rule="metrics are a setting",
                fix="metrics: true",
            )
        return self._metrics.text(moment=self._clock.monotonic())

    def start(self) -> None:
        """Open the port for a scraper, if there is one."""
        if not self._settings.metrics_port or self._metrics is None:
            return
        from timewright.observe.port import MetricsPort

        address, port = self._settings.metrics_host, self._settings.metrics_port
        try:
            self._port = MetricsPort(address, port, text=self.metrics_text)
        except OSError as error:
            raise InvalidInput(
                f"metrics cannot be served at {address}:{port}: {error.strerror or error}",
                field="metrics_port",
                value=port,
                rule="a port that is free, on an address of this machine",
                fix="metrics_port: another number, or 0 for none",
            ) from None

    def close(self) -> None:
        """Close the port, and send the spans that are left."""
        if self._port is not None:
            self._port.close()
            self._port = None
        if self._tracing is not None:
            self._tracing.close()


def _tracing() -> Tracing:
    from timewright.observe.trace import new_tracing

    return new_tracing(version=_version())


def _version() -> str:
    from importlib.metadata import version

    return version("timewright")
