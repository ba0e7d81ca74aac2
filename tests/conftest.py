"""Settings for all tests: fixed random seeds, working interrupts, and no network beyond this machine."""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.oracle.summary import print_counts
from tests.simulation.summary import print_simulations

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", parent=settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile("full" if os.environ.get("TIMEWRIGHT_FULL") else "ci")

KEPT_VARIABLES = {"TIMEWRIGHT_FULL", "TIMEWRIGHT_SEEDS"}
PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
for name in list(os.environ):
    # Tests must not depend on the developer's own settings and proxies.
    if (name.startswith("TIMEWRIGHT_") and name not in KEPT_VARIABLES) or name.lower() in PROXIES:
        del os.environ[name]

# The zone of this machine is the default zone of schedules.
os.environ["TZ"] = "UTC"
time.tzset()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT for background jobs; processes started by tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the simulations and the oracle did."""
    print_simulations(terminalreporter)
    print_counts(terminalreporter)


LOCAL_FAMILIES = {getattr(socket, "AF_UNIX", None), getattr(socket, "AF_NETLINK", None)}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, and freeze the collected objects so that it skips them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class NetworkRefused(AssertionError):
    """A test tried to connect to another machine."""


def refuse_unless_local(family: int, address: Any) -> None:
    """Allow unix sockets and loopback. Refuse all names but localhost, which would need a DNS lookup."""
    if family in LOCAL_FAMILIES:
        return
    host = address[0] if isinstance(address, tuple) and address else str(address)
    if host == "localhost":
        return
    try:
        local = ipaddress.ip_address(str(host).split("%", 1)[0]).is_loopback
    except ValueError:
        local = False
    if not local:
        raise NetworkRefused(f"tests may connect to this machine only, not to {address!r}")


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Refuse connections to other machines during the whole session."""
    with pytest.MonkeyPatch.context() as patch:
        for method in ("connect", "connect_ex"):
            patch.setattr(socket.socket, method, _guarded(method))
        yield


def _guarded(method: str) -> Any:
    original = getattr(socket.socket, method)

    def guarded(self: socket.socket, address: Any) -> Any:
        refuse_unless_local(self.family, address)
        return original(self, address)

    return guarded
