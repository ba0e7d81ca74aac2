"""The same request at every interface, for tests that compare the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.interfaces.http.http_client import ApiTestClient, HttpTestClient
from tests.interfaces.mcp.mcp_client import call
from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from timewright import Scheduler
from timewright.core.input.encoding import encode
from timewright.errors import TimewrightError
from timewright.interfaces.cli.options import command_words
from timewright.interfaces.mcp.tools import tool_name
from timewright.operations import Operation


class Refusal(NamedTuple):
    """An error as one interface reports it."""

    code: str
    message: str
    field: str | None
    rule: str | None
    fix: str | None


class Interfaces:
    """The four interfaces of one harness."""

    def __init__(self, harness: OperationsHarness, client: HttpTestClient) -> None:
        self.harness = harness
        self._client = client
        self._app = Scheduler(":memory:")
        self._app._context = lambda: harness.context  # type: ignore[method-assign]

    def python(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        try:
            return encode(self._app.call(one.name, **payload))
        except TimewrightError as error:
            return Refusal(error.code, error.message, error.field, error.rule, error.fix)

    def http(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        wire = ApiTestClient(self._client)
        try:
            return wire.call(one.name, payload)
        except AssertionError:
            return refusal_of({**wire.refusal, "message": wire.refusal["detail"]})

    def agents(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        said = call(self.harness.context, tool_name(one), payload)
        assert said.structured_content is not None
        return refusal_of(said.structured_content["error"]) if said.is_error else said.structured_content

    def terminal(self, one: Operation[Any], payload: Mapping[str, Any]) -> Any:
        said = invoke(self.harness, *command_words(one, payload), "-o", "json")
        return said.data if said.code == 0 else refusal_of(json.loads(said.err))


def refusal_of(problem: Mapping[str, Any]) -> Refusal:
    return Refusal(problem["code"], problem["message"], *(problem.get(n) for n in ("field", "rule", "fix")))
