"""The server of `conformance_server.py`, with tools, prompts and resources that the conformance suite names.

The shipped server has no images, no sampling, no log messages and no arguments in headers, so the suite
cannot check there whether our HTTP layer carries them. Here it can: transport, sign-in and limits are ours,
the fixtures are the suite's. What passes only here says nothing about what the shipped server offers.
"""

from __future__ import annotations

import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from tests.interfaces.mcp import conformance_server
from timewright import Scheduler
from timewright.interfaces.mcp.client_channel import channel_of
from timewright.interfaces.mcp.tasks import TASKS_EXTENSION, supports_tasks

# A PNG of one pixel, and a WAV file without samples.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
BINARY = "test://static-binary"
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
IN_HEADER: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text="an embedded resource")
    return types.EmbeddedResource(type="resource", resource=contents)


MEDIA: dict[str, list[Any]] = {
    "test_image_content": [image()],
    "test_audio_content": [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [embedded("test://embedded-resource")],
    "test_multiple_content_types": [
        text("several kinds"),
        image(),
        embedded("test://mixed-content-resource"),
    ],
    "json_schema_2020_12_tool": [text("called")],
    "test_tool_with_logging": [text("logged")],
    "test_x_mcp_header": [text("called")],
}


def ask_person(field: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    question = types.ElicitRequestFormParams(message=f"What is your {field}?", requested_schema=schema)
    return types.ElicitRequest(params=question)


def ask_model() -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=text("What is the capital of France?"))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    )


def ask_roots() -> types.ListRootsRequest:
    return types.ListRootsRequest(params=types.RequestParams())


def choices(*values: str, key: str = "") -> Any:
    """Values of an enumeration; with a key, each has a title."""
    return [{key: value, "title": value.title()} for value in values] if key else list(values)


def form(**fields: Any) -> dict[str, Any]:
    return {"message": "Please fill this in", "requestedSchema": {"type": "object", "properties": fields}}


# What a tool asks a client of the previous version while that waits.
ONE_TO_THREE, VALUES = ("option1", "option2", "option3"), ("value1", "value2", "value3")
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "test_sampling": (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello?"}}], "maxTokens": 100},
    ),
    "test_elicitation": ("elicitation/create", form(username={"type": "string"}, email={"type": "string"})),
    "test_elicitation_sep1034_defaults": (
        "elicitation/create",
        form(
            name={"type": "string", "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        ),
    ),
    "test_elicitation_sep1330_enums": (
        "elicitation/create",
        form(
            untitledSingle={"type": "string", "enum": choices(*ONE_TO_THREE)},
            titledSingle={"type": "string", "oneOf": choices(*VALUES, key="const")},
            legacyEnum={
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            untitledMulti={"type": "array", "items": {"type": "string", "enum": choices(*ONE_TO_THREE)}},
            titledMulti={"type": "array", "items": {"anyOf": choices(*VALUES, key="const")}},
        ),
    ),
}
# What a tool asks in each round, with the state that the client sends back in the next one.
ROUNDS: dict[str, list[tuple[dict[str, Any], str | None]]] = {
    "test_input_required_result_elicitation": [({"user_name": ask_person("name")}, None)],
    "test_tool_with_task": [({"user_name": ask_person("name")}, None)],
    "test_input_required_result_sampling": [({"capital_question": ask_model()}, None)],
    "test_input_required_result_list_roots": [({"client_roots": ask_roots()}, None)],
    "test_input_required_result_multiple_inputs": [
        ({"user_name": ask_person("name"), "greeting": ask_model(), "client_roots": ask_roots()}, "asked")
    ],
    "test_input_required_result_multi_round": [
        ({"step1": ask_person("name")}, "round-1"),
        ({"step2": ask_person("color")}, "round-2"),
    ],
    "test_input_required_result_prompt": [({"user_context": ask_person("context")}, None)],
}


def next_question(name: str, params: Any) -> types.InputRequiredResult | None:
    """The first round whose questions are not all answered; an earlier state counts as answered."""
    rounds = ROUNDS.get(name, [])
    states = [state for _, state in rounds]
    done = states.index(params.request_state) if params.request_state in states else 0
    given = params.input_responses or {}
    for questions, state in rounds[done:]:
        if not questions.keys() <= given.keys():
            return types.InputRequiredResult(input_requests=questions, request_state=state)
    return None


def greet_later(params: types.CallToolRequestParams) -> types.CallToolRequestParams:
    """The job of ours that greets the person who was asked for a name."""
    given = (params.input_responses or {})["user_name"]
    assert isinstance(given, types.ElicitResult)
    return params.model_copy(update={"name": "greet_later", "arguments": given.content})


async def call_fixture(ctx: Any, params: types.CallToolRequestParams) -> Any:
    """The answer of a tool of the suite, or the call of ours for it; None if it is not one of these."""
    name = params.name
    can = ctx.session.client_capabilities
    channel = channel_of(ctx)
    if name in QUESTIONS and channel is not None:
        answer = await channel.ask(*QUESTIONS[name])
        return types.CallToolResult(content=[text(f"answered: {answer}")])
    if name == "test_tool_with_logging" and channel is not None:
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await channel.notify("notifications/message", {"level": "info", "data": words})
    if name == "failing_job" and not supports_tasks(ctx):
        needs_tasks: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "needs tasks", needs_tasks)
    if name == "test_missing_capability" and (can is None or can.sampling is None):
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "needs sampling", needed)
    if name == "test_input_required_result_capabilities":
        asked: dict[str, Any] = {}
        if can is not None and can.sampling is not None:
            asked["model"] = ask_model()
        if can is not None and can.elicitation is not None:
            asked["person"] = ask_person("name")
        return types.InputRequiredResult(input_requests=asked)
    if name == "test_tool_with_task":
        return next_question(name, params) or greet_later(params)
    if name in ROUNDS:
        return next_question(name, params) or types.CallToolResult(content=[text("done")])
    if name in MEDIA or name == "test_missing_capability":
        return types.CallToolResult(content=MEDIA.get(name, [text("called")]))
    return None


async def get_fixture(_: Any, params: types.GetPromptRequestParams) -> Any:
    """The answer of a prompt of the suite; None if it is not one of these fixtures."""
    uri = (params.arguments or {}).get("resourceUri", "")
    parts: dict[str, list[Any]] = {
        "test_prompt_with_embedded_resource": [embedded(uri), text("Process the resource above.")],
        "test_prompt_with_image": [image(), text("Describe the image above.")],
        "test_input_required_result_prompt": [text("Use the context given.")],
    }
    if params.name not in parts:
        return None
    messages = [types.PromptMessage(role="user", content=one) for one in parts[params.name]]
    return next_question(params.name, params) or types.GetPromptResult(messages=messages)


async def read_fixture(_: Any, params: types.ReadResourceRequestParams) -> Any:
    if str(params.uri) != BINARY:
        return None
    blob = types.BlobResourceContents(uri=BINARY, mime_type="image/png", blob=PNG)
    return types.ReadResourceResult(contents=[blob])


def listed_fixtures() -> list[types.Tool]:
    own = {"json_schema_2020_12_tool": SCHEMA_2020_12, "test_x_mcp_header": IN_HEADER}
    names = [*MEDIA, "test_missing_capability", "test_input_required_result_capabilities"]
    names += [name for name in ROUNDS if not name.endswith("_prompt")]
    return [
        types.Tool(name=name, description="a tool of the suite", input_schema=own.get(name, NO_ARGUMENTS))
        for name in names
    ]


def add_fixtures(server: Server[Any], app: Scheduler) -> Server[Any]:
    """Answer the fixtures here; everything else goes to the server that is shipped."""
    conformance_server.add_fixtures(server, app)

    def before(method: str, params_type: Any, fixture: Any) -> None:
        entry = server.get_request_handler(method)
        assert entry is not None
        shipped = entry.handler

        async def handle(ctx: Any, params: Any) -> Any:
            answer = await fixture(ctx, params)
            is_ours = answer is None or isinstance(answer, types.CallToolRequestParams)
            return await shipped(ctx, answer or params) if is_ours else answer

        server.add_request_handler(method, params_type, handle)

    before("tools/call", types.CallToolRequestParams, call_fixture)
    before("prompts/get", types.GetPromptRequestParams, get_fixture)
    before("resources/read", types.ReadResourceRequestParams, read_fixture)
    entry = server.get_request_handler("tools/list")
    assert entry is not None
    list_shipped = entry.handler

    async def list_tools(ctx: Any, params: Any) -> Any:
        result: Any = await list_shipped(ctx, params)
        return result.model_copy(update={"tools": [*result.tools, *listed_fixtures()]})

    async def accept(ctx: Any, params: Any) -> types.EmptyResult:
        """The suite checks only that such a request arrives: no resource of its own ever changes."""
        return types.EmptyResult()

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    return server


if __name__ == "__main__":
    conformance_server.serve(int(sys.argv[1]), sys.argv[2], add_fixtures)
