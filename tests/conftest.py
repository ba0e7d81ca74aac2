"""What every test lives under: fixed chance, interrupts that are heard, and no way out to the network."""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.simulation.summary import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", parent=settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile("full" if os.environ.get("TIMEWRIGHT_FULL") else "ci")

OURS = {"TIMEWRIGHT_FULL", "TIMEWRIGHT_SEEDS"}
PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
for name in list(os.environ):
    # What somebody has set for themselves, and the way out to the network, are not for tests.
    if (name.startswith("TIMEWRIGHT_") and name not in OURS) or name.lower() in PROXIES:
        del os.environ[name]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in the background of a shell: no process that a test starts would hear an interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LOCAL_FAMILIES = {getattr(socket, "AF_UNIX", None), getattr(socket, "AF_NETLINK", None)}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without a search for garbage: what is collected stays, and is not looked through again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class NetworkRefused(AssertionError):
    """A test tried to reach something that is not this machine."""


def refuse_unless_local(family: int, address: Any) -> None:
    """Let unix sockets and loopback pass; names other than localhost would have to be looked up."""
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
        raise NetworkRefused(f"tests talk to this machine only, not to {address!r}")


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Refuse every connection that would leave this machine, from the first fixture to the last test."""
    with pytest.MonkeyPatch.context() as patch:
        for verb in ("connect", "connect_ex"):
            patch.setattr(socket.socket, verb, _guarded(verb))
        yield


def _guarded(verb: str) -> Any:
    plain = getattr(socket.socket, verb)

    def guarded(self: socket.socket, address: Any) -> Any:
        refuse_unless_local(self.family, address)
        return plain(self, address)

    return guarded
