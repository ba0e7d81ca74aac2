"""Asks the person at the client to confirm a call that cannot be undone, where the client can ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import NoBackChannelError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from timewright.errors import NotAllowed
from timewright.interfaces.mcp.calls import ToolAnswer
from timewright.interfaces.mcp.client_channel import ClientChannel, channel_of
from timewright.operations.text_safety import sanitize

ANSWER = "confirm"
MAX_SHOWN_CHARS = 1_000


async def ask_for_confirmation(
    ctx: Any, params: types.CallToolRequestParams, call: Callable[[dict[str, Any]], ToolAnswer]
) -> dict[str, Any] | types.InputRequiredResult:
    """Return the arguments of a destructive call, with a confirmation if the person gave it.

    A client of the newest protocol version gets a question back, and repeats the call with the answer and the
    token in its state; without the answer it is asked again. Other clients are asked while they wait. A
    client that cannot ask gets its arguments back, and is told to use a dry run and a token instead.
    """
    arguments = dict(params.arguments or {})
    channel = channel_of(ctx)
    if not _can_ask(ctx, channel):
        return arguments
    given = (params.input_responses or {}).get(ANSWER)
    if params.request_state is not None and given is not None:
        return _confirmed(arguments, given, token=params.request_state)
    preview = await anyio.to_thread.run_sync(partial(call, {**arguments, "dry_run": True}))
    question = types.ElicitRequestFormParams(
        message=_question(params.name, preview), requested_schema=_SCHEMA
    )
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        request = types.ElicitRequest(params=question)
        return types.InputRequiredResult(input_requests={ANSWER: request}, request_state=preview.confirm)
    try:
        return _confirmed(arguments, await _ask(ctx, channel, question), token=preview.confirm)
    except NoBackChannelError:
        return arguments


def _can_ask(ctx: Any, channel: ClientChannel | None) -> bool:
    """Whether a client can ask its person; over HTTP, one of an earlier version says so in its session."""
    declared = ctx.session.client_capabilities
    is_declared = declared is not None and declared.elicitation is not None
    return is_declared or (channel is not None and channel.can_ask)


async def _ask(ctx: Any, channel: ClientChannel | None, question: types.ElicitRequestFormParams) -> Any:
    """Ask the client on its connection, and return the answer; None if it is not one to this question."""
    if channel is None:
        return await ctx.session.elicit_form(question.message, question.requested_schema, ctx.request_id)
    fields = question.model_dump(by_alias=True, mode="json", exclude_none=True)
    try:
        return types.ElicitResult.model_validate(await channel.ask("elicitation/create", fields))
    except ValueError:
        return None


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        ANSWER: {"type": "boolean", "title": "Do it", "description": "true applies the change shown above"}
    },
    "required": [ANSWER],
}


def _question(tool: str, preview: ToolAnswer) -> str:
    shown = preview.texts[0][:MAX_SHOWN_CHARS]
    return str(sanitize(f"{tool} cannot be undone. The result would be: {shown}"))


def _confirmed(arguments: dict[str, Any], answer: Any, *, token: str) -> dict[str, Any]:
    given = answer if isinstance(answer, types.ElicitResult) else None
    if given is None or given.action != "accept" or (given.content or {}).get(ANSWER) is not True:
        raise NotAllowed(
            "the person did not confirm the call",
            field="confirm",
            rule="a call that cannot be undone is made only if the person says so",
            fix="leave it, or ask the person again",
        )
    return {**arguments, "confirm": token}
