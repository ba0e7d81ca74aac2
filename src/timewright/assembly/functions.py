"""Functions: what schedules may call here, and how a target is checked before it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timewright.core.target import AnyTarget

if TYPE_CHECKING:
    from timewright.targets.registry import Registry

# Names the store of the process that runs an app, for the app itself and for its worker processes.
HOSTED = "TIMEWRIGHT_HOSTED"


def new_registry(*, installed: bool = False) -> Registry:
    """An empty list of functions by name; with those that installed packages offer, if they count."""
    from timewright.targets.registry import Registry

    return Registry(installed=installed)


def load_registry(reference: str) -> Registry:
    """The list of functions at `module:name`, of the scheduler there or of its own."""
    from timewright.targets.registry import load_app

    return load_app(reference)


def check_target(target: AnyTarget, *, registry: Registry | None = None, args_later: bool = False) -> None:
    """Refuse a target that could never be started, as early as when its schedule is written."""
    from timewright.targets.checks import check

    check(target, registry=registry, args_later=args_later)


def is_inside_a_run() -> bool:
    """Whether a function of ours calls us: on its thread, in its task, or on a thread that goes on for it."""
    from timewright.targets.overheard import EAR

    return EAR.get() is not None
