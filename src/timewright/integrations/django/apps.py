"""The Django app: loads the `schedules` module of every installed app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class TimewrightConfig(AppConfig):
    """Declares what the apps of a project schedule. Opens no store and starts nothing."""

    name = "timewright.integrations.django"
    label = "timewright"
    verbose_name = "Timewright"

    def ready(self) -> None:
        """Import `schedules.py` of every app."""
        autodiscover_modules("schedules")
