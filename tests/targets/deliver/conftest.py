"""A real HTTP receiver of messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.targets.deliver.receivers import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
