"""`/mcp`: the MCP server behind the authentication of the HTTP server."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from timewright.errors import MissingExtra
from timewright.interfaces.http.endpoints import request_context
from timewright.interfaces.http.request import HttpRequest, Receive, Scope, Send
from timewright.interfaces.http.responses import ApiResponse, json_response
from timewright.operations import OperationContext
from timewright.operations.access.callers import ALL_SCOPES
from timewright.operations.access.service_tokens import SCOPE_PREFIX

MCP_PATH = ("mcp",)
# Where a client finds out who issues tokens for a resource (RFC 9728).
METADATA_PATH = (".well-known", "oauth-protected-resource")


class McpAnswerer(Protocol):
    """Answers MCP requests in a given context."""

    async def answer(self, context: OperationContext, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        ...


class McpEndpoint:
    """Creates the MCP server on the first request, because importing it is slow and few servers need it."""

    def __init__(self) -> None:
        self._server: McpAnswerer | None = None

    async def handle(self, request: HttpRequest) -> Any:
        """`POST /mcp`: answer one MCP request as the caller."""
        server = self._server = self._server or _new_server()
        # Changes made over MCP are recorded as those of an agent, whatever the key.
        caller = replace(request.context.caller, origin="agent")
        request.context = replace(request.context, caller=caller)
        context = request_context(request)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            await server.answer(context, scope, receive, send)

        return respond


def is_metadata_request(request: HttpRequest) -> bool:
    """Whether a request asks, without a key, who issues tokens; only where an issuer is set."""
    is_path = request.segments in (METADATA_PATH, (*METADATA_PATH, *MCP_PATH))
    return is_path and request.method in ("GET", "HEAD") and bool(_issuer(request.context))


def resource_metadata(request: HttpRequest) -> ApiResponse:
    """`/.well-known/oauth-protected-resource[/mcp]`: the issuer of tokens and the scopes they may have."""
    body = {
        "resource": f"{_origin(request.scope)}/{MCP_PATH[0]}",
        "resource_name": "Timewright",
        "authorization_servers": [_issuer(request.context)],
        "scopes_supported": [f"{SCOPE_PREFIX}{scope}" for scope in sorted(ALL_SCOPES)],
        "bearer_methods_supported": ["header"],
    }
    return json_response(body)


def challenge_header(context: OperationContext, scope: Scope) -> dict[str, str]:
    """The header of a 401 for `/mcp` that leads a client to the metadata; empty without an issuer."""
    if scope["path"] != f"/{MCP_PATH[0]}" or not _issuer(context):
        return {}
    url = f"{_origin(scope)}/{'/'.join(METADATA_PATH)}/{MCP_PATH[0]}"
    return {"www-authenticate": f'Bearer realm="timewright", resource_metadata="{url}"'}


def _issuer(context: OperationContext) -> str:
    tokens = context.auth_cache.service_tokens if context.auth_cache is not None else None
    return tokens.issuer if tokens is not None else ""


def _origin(scope: Scope) -> str:
    """The address of this server as the client knows it; the host was checked."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '').rstrip('/')}"


def _new_server() -> McpAnswerer:
    try:
        from timewright.interfaces.mcp.streamable_http import McpOverHttp
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            "the MCP server is not installed",
            field="mcp",
            rule="requires the extra mcp",
            fix="pip install 'timewright[mcp]'",
        ) from missing
    return McpOverHttp()
