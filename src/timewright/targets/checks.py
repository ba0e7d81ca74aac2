"""Refuses a target that could never be started, each kind by its own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timewright.core.target import AnyTarget, Call, Http, Publish, Shell

if TYPE_CHECKING:
    from timewright.targets.registry import Registry


def check(target: AnyTarget, *, registry: Registry | None = None, args_later: bool = False) -> None:
    """Refuse it as early as when its schedule is written; only the rules that are needed are imported.

    A registry that has functions says which may be called; one that has none says nothing. The arguments of
    a step may come only when it starts: `args_later`.
    """
    if isinstance(target, Call) and registry is not None and len(registry):
        from timewright.targets.registry import check_call

        check_call(registry, target, args_later=args_later)
    if isinstance(target, Http):
        from timewright.targets.http_request import check_http

        check_http(target)
    if isinstance(target, Shell):
        from timewright.targets.shell_rules import check_shell

        check_shell(target)
    if isinstance(target, Publish):
        from timewright.targets.publish.rules import check_publish

        check_publish(target)
