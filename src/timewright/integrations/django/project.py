"""The scheduler as worker processes import it: importing this module sets Django up."""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from timewright.integrations.django.django_scheduler import project_scheduler
from timewright.integrations.django.tasks import register

scheduler = project_scheduler()
register(scheduler)
