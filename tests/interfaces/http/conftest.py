"""A harness with sample data and an HTTP client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interfaces.http.http_client import HttpTestClient, client_for
from tests.operations.harness import OperationsHarness, sample_harness


@pytest.fixture
def harness() -> OperationsHarness:
    return sample_harness()


@pytest.fixture
def client(harness: OperationsHarness) -> Iterator[HttpTestClient]:
    """A client with all scopes."""
    with client_for(harness) as found:
        yield found
