"""The scheduler of a Django project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from timewright.core.input.input_errors import input_error
from timewright.core.target import Isolation
from timewright.integrations.commands import missing_package
from timewright.interfaces.python.scheduler import F, Scheduler
from timewright.operations.definitions.programs import TriggerInput

if TYPE_CHECKING:
    from timewright.interfaces.python.resource_methods import ScheduleFields

try:
    from django.conf import settings
    from django.db import close_old_connections
except ImportError as error:
    raise missing_package("Django", "django") from error

OPTIONS = ("store", "name", "namespace", "declares_all", "edits", "settings")
# Worker processes import the project under this name.
APP = "timewright.integrations.django.project:scheduler"


class DjangoScheduler(Scheduler):
    """A `Scheduler` that closes old database connections around calls, and schedules tasks of Django."""

    opens_at_once = False

    def __init__(self, store: str | Path, **options: Any) -> None:
        super().__init__(store, **options)
        self.registry.around = _fresh_connections

    def schedule(
        self,
        trigger: TriggerInput | None = None,
        *,
        name: str | None = None,
        isolation: Isolation = "inherit",
        **fields: Unpack[ScheduleFields],
    ) -> Callable[[F], F]:
        """Run the decorated function, or the task of `django.tasks`, on this trigger."""
        declare = partial(super().schedule, trigger, isolation=isolation, **fields)

        def schedule(function: F) -> F:
            task = getattr(function, "func", None)
            if task is None or not hasattr(function, "enqueue"):
                return declare(name=name)(function)
            from timewright.integrations.django.tasks import as_function

            declare(name=name or task.__name__)(as_function(function))
            return function

        return schedule


@cache
def project_scheduler() -> DjangoScheduler:
    """Return the scheduler of this project, as the setting TIMEWRIGHT says."""
    options = dict(getattr(settings, "TIMEWRIGHT", {}))
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise input_error(
            f"TIMEWRIGHT[{unknown[0]!r}]",
            options[unknown[0]],
            "is unknown",
            rule=f"one of: {', '.join(OPTIONS)}",
            fix='TIMEWRIGHT = {"store": "timewright.db"}',
        )
    store = options.pop("store", Path(getattr(settings, "BASE_DIR", ".")) / "timewright.db")
    return DjangoScheduler(store, **options)


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """Close connections that are broken or too old, before and after a call, as Django does for a request."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
