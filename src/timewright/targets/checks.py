"""Refuses a target that could never be started, each kind by its own rules."""

from __future__ import annotations

from timewright.core.target import AnyTarget, Http, Publish, Shell


def check(target: AnyTarget) -> None:
    """Refuse it as early as when its schedule is written; only the rules that are needed are imported."""
    if isinstance(target, Http):
        from timewright.targets.http_request import check_http

        check_http(target)
    if isinstance(target, Shell):
        from timewright.targets.shell_rules import check_shell

        check_shell(target)
    if isinstance(target, Publish):
        from timewright.targets.publish.rules import check_publish

        check_publish(target)
