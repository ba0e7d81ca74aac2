"""Builds an Instance from settings: the only package that names concrete stores, targets and telemetry."""

from __future__ import annotations

from timewright.wiring.instance import Instance, policy_file_watcher, target_tester
from timewright.wiring.metrics_port import check_metrics_host, check_remote_key
from timewright.wiring.store_urls import (
    artifact_store_of,
    build_auth_cache,
    host_inspector,
    inspect_store,
    open_store,
    private_file,
    sqlite_path,
    with_notifications,
)
from timewright.wiring.target_factory import (
    HOSTED_STORE_VARIABLE,
    check_payload,
    check_target,
    is_importing_for_worker,
    is_inside_run,
    load_registry,
    new_registry,
)
from timewright.wiring.watch import Watch

__all__ = [
    "HOSTED_STORE_VARIABLE",
    "Instance",
    "Watch",
    "artifact_store_of",
    "build_auth_cache",
    "check_metrics_host",
    "check_payload",
    "check_remote_key",
    "check_target",
    "host_inspector",
    "inspect_store",
    "is_importing_for_worker",
    "is_inside_run",
    "load_registry",
    "new_registry",
    "open_store",
    "policy_file_watcher",
    "private_file",
    "sqlite_path",
    "target_tester",
    "with_notifications",
]
