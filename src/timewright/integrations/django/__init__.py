"""A Django app: `schedules.py` of every app, `manage.py timewright`, and a backend for `django.tasks`.

Add "timewright.integrations.django" to INSTALLED_APPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timewright.integrations.django.django_scheduler import DjangoScheduler

    scheduler: DjangoScheduler


def __getattr__(name: str) -> Any:
    """Create the scheduler of the project on first use, when the settings can be read."""
    if name != "scheduler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from timewright.integrations.django.django_scheduler import project_scheduler

    return project_scheduler()
