"""Validates a target when its schedule is written, by the rules of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timewright.core.target import AnyTarget, Call, Http, Publish, Shell

if TYPE_CHECKING:
    from timewright.targets.call.registry import FunctionRegistry


def check_target(
    target: AnyTarget, *, registry: FunctionRegistry | None = None, args_later: bool = False
) -> None:
    """Refuse a target that could never start. Imports only the rules of its kind.

    Function names are checked only if the registry has functions. `args_later` skips the check of arguments,
    because a workflow step may get them only when it starts.
    """
    if isinstance(target, Call) and registry is not None and len(registry):
        from timewright.targets.call.registry import check_call

        check_call(registry, target, args_later=args_later)
    if isinstance(target, Http):
        from timewright.targets.http.request import check_http

        check_http(target)
    if isinstance(target, Shell):
        from timewright.targets.shell.validation import check_shell

        check_shell(target)
    if isinstance(target, Publish):
        from timewright.targets.publish.validation import check_publish

        check_publish(target)
