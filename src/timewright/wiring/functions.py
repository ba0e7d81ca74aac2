"""Function registries, and validation of targets before a schedule is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timewright.core.target import AnyTarget

if TYPE_CHECKING:
    from timewright.targets.call.registry import FunctionRegistry

# Environment variable with the store of the process that runs an app, for the app and its worker processes.
HOSTED_STORE_VARIABLE = "TIMEWRIGHT_HOSTED"


def new_registry(*, use_entry_points: bool = False) -> FunctionRegistry:
    """Create an empty registry, optionally with the functions of installed packages."""
    from timewright.targets.call.registry import FunctionRegistry

    return FunctionRegistry(use_entry_points=use_entry_points)


def load_registry(reference: str) -> FunctionRegistry:
    """Load the registry or the scheduler at `module:name`."""
    from timewright.targets.call.registry import load_app

    return load_app(reference)


def check_target(
    target: AnyTarget, *, registry: FunctionRegistry | None = None, args_later: bool = False
) -> None:
    """Validate a target when its schedule is written."""
    from timewright.targets.checks import check_target

    check_target(target, registry=registry, args_later=args_later)


def is_inside_run() -> bool:
    """Whether the caller is a function that runs for a schedule, on its thread or in its task."""
    from timewright.targets.log_capture import CURRENT_LOG

    return CURRENT_LOG.get() is not None


def is_importing_for_worker() -> bool:
    """Whether a worker process is importing a module of the user in this thread."""
    from timewright.targets.call.registry import is_importing_for_worker

    return is_importing_for_worker()
