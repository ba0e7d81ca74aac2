"""The OpenAPI 3.1 description: every route with its schemas, examples and problems."""

from __future__ import annotations

from functools import cache
from typing import Any

from timewright.interfaces.http.problems import MEDIA_TYPE, problems
from timewright.interfaces.http.routing import API_PREFIX, NO_SUBJECT, Route, routes_of
from timewright.operations import operations
from timewright.operations.json_schemas import answer_schema, request_schema
from timewright.ports.host_info import package_version

Schema = dict[str, Any]

_REF = "#/$defs/"
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "Idempotency key: within a day the same key returns the same answer and changes nothing.",
}
_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string", "pattern": '^"[0-9]{1,15}"$'},
    "description": "An ETag of a GET response: write only if the revision is unchanged.",
}
_NAMESPACE = {
    "name": "Timewright-Namespace",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
    "description": "The namespace; the one of the key by default.",
}
_PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what happened"},
        "code": {"type": "string", "description": "the error code, the same in every interface"},
        "field": {"type": "string", "description": "the field"},
        "value": {"description": "the refused value"},
        "rule": {"type": "string", "description": "the rule"},
        "fix": {"type": "string", "description": "what to do next"},
    },
}


class _Shared:
    """Collects shared schemas under unique names."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {"Problem": _PROBLEM}
        self._seen: dict[str, Schema] = {"Problem": _PROBLEM}

    def hoist(self, schema: Schema, *, side: str) -> Schema:
        """Move the definitions of a schema to the shared ones; `side` separates requests from answers."""
        parts: dict[str, Schema] = schema.get("$defs", {})
        names = {name: self._name(name, part, side) for name, part in parts.items()}
        for name, part in parts.items():
            self.schemas[names[name]] = _with_new_refs(part, names)
        moved: Schema = _with_new_refs({key: value for key, value in schema.items() if key != "$defs"}, names)
        return moved

    def _name(self, name: str, part: Schema, side: str) -> str:
        """Return a unique name; different schemas with the same name get a number."""
        candidates = [f"{name}{side}", *(f"{name}{side}{i}" for i in range(2, 100))]
        return next(one for one in candidates if self._seen.setdefault(one, part) == part)


@cache
def openapi_document(root: str = "") -> dict[str, Any]:
    """Return the whole description."""
    shared = _Shared()
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        for route in routes_of(operation):
            paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, shared)
    paths.update(_other_paths())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Timewright",
            "version": package_version(),
            "description": "One persistent scheduler for applications and for AI agents.",
        },
        "servers": [{"url": root or "/"}],
        "security": [{"key": []}, {"session": []}],
        "tags": [{"name": tag} for tag in sorted({one.noun or "system" for one in operations})],
        "paths": paths,
        "x-timewright-problems": problems(),
        "components": {
            "schemas": dict(sorted(shared.schemas.items())),
            "responses": {"Problem": _problem_response()},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "a key made with `key create`"},
                "session": {"type": "apiKey", "in": "cookie", "name": "timewright_0"},
            },
        },
    }


def _operation(route: Route, shared: _Shared) -> dict[str, Any]:
    operation = route.operation
    request = _with_help(shared.hoist(request_schema(operation), side="Request"), operation.name)
    described: dict[str, Any] = {
        "operationId": route.operation_id,
        "tags": [operation.noun or "system"],
        "summary": operation.summary,
        "description": " ".join((operation.request_type.__doc__ or "").split()),
        "x-timewright-operation": operation.name,
        "x-timewright-scope": operation.scope,
        "parameters": [*_in_path(route), *_in_query(route, request), *_in_headers(route)],
        "responses": {
            **_responses(route, shared.hoist(answer_schema(operation), side="")),
            "4XX": {"$ref": "#/components/responses/Problem"},
            "5XX": {"$ref": "#/components/responses/Problem"},
        },
    }
    if route.input_from == "body":
        described["requestBody"] = _body(route, request)
    return described


def _with_help(schema: Schema, operation: str) -> Schema:
    """Add the command-line help text of each field as its description."""
    from timewright.interfaces.cli.option_help import help_for

    fields: dict[str, Schema] = {}
    for name, field in schema["properties"].items():
        text = help_for(operation, name)
        fields[name] = {"description": text, **field} if text else field
    return {**schema, "properties": fields}


def _in_path(route: Route) -> list[Schema]:
    if not route.subject:
        return []
    text = f"by name or id; {NO_SUBJECT} for none" if route.subject_optional else "by name or id"
    schema = {"type": "string", "minLength": 1, "maxLength": 255}
    return [{"name": route.subject, "in": "path", "required": True, "schema": schema, "description": text}]


def _in_query(route: Route, request: Schema) -> list[Schema]:
    fields: dict[str, Schema] = request["properties"]
    both = ("dry_run", "reason")
    named = [n for n in fields if (n in both if route.input_from == "body" else n != route.subject)]
    needed = request.get("required", ()) if route.input_from == "query" else ()
    return [_parameter(name, fields[name], required=name in needed) for name in named]


def _parameter(name: str, schema: Schema, *, required: bool) -> Schema:
    found: Schema = {"name": name, "in": "query", "required": required}
    if "description" in schema:
        found["description"] = schema["description"]
    if _is_scalar(schema):
        return {**found, "schema": schema}
    # Structured values are JSON in the query.
    return {**found, "content": {"application/json": {"schema": schema}}}


def _is_scalar(schema: Schema) -> bool:
    kinds = schema.get("anyOf", [schema])
    scalars = ("string", "integer", "number", "boolean", "null")
    return all("enum" in kind or kind.get("type") in scalars for kind in kinds)


def _in_headers(route: Route) -> list[Schema]:
    writes = not route.operation.read_only
    versioned = "revision" in route.operation.request_type.__struct_fields__
    return [_NAMESPACE, *([_KEY] if writes and route.operation.noun not in ("key", "secret") else [])] + (
        [_MATCH] if versioned else []
    )


def _body(route: Route, request: Schema) -> dict[str, Any]:
    properties = {name: value for name, value in request["properties"].items() if name != route.subject}
    needed = [name for name in request.get("required", ()) if name != route.subject]
    schema = {**request, "properties": properties, "required": needed}
    examples = {
        f"example {i}": {"value": {name: value for name, value in one.items() if name != route.subject}}
        for i, one in enumerate(route.operation.examples, start=1)
        if not route.subject or route.subject in one or route.subject_optional
    }
    content: dict[str, Any] = {"schema": schema, **({"examples": examples} if examples else {})}
    return {"required": bool(needed), "content": {"application/json": content}}


def _responses(route: Route, schema: Schema) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    answers: dict[str, Any] = {"200": {"description": "success", "content": content}}
    if route.operation.verb in ("create", "put"):
        answers["201"] = {"description": "created", "content": content}
    return answers


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "a problem, with a fix", "content": {MEDIA_TYPE: {"schema": schema}}}


def _other_paths() -> dict[str, Any]:
    """Return the paths that are not operations: probes, events and this description."""
    data = {"application/json": {"schema": {"type": "object"}}}
    problem = {"4XX": {"$ref": "#/components/responses/Problem"}}

    def path(summary: str, content: Any, *more: str) -> dict[str, Any]:
        answers = {code: {"description": "success", "content": content} for code in ("200", *more)}
        return {"get": {"summary": summary, "tags": ["system"], "responses": {**answers, **problem}}}

    events = path("Stream events, from now on or since Last-Event-ID.", {"text/event-stream": {}})
    events["get"]["parameters"] = [
        {
            "name": "facts",
            "in": "query",
            "schema": {"type": "string"},
            "description": "comma-separated kinds of facts",
        },
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
    ]
    alive = path("Liveness of the process.", data)
    alive["get"]["security"] = []
    return {
        "/" + "/".join((*API_PREFIX, "events")): events,
        "/healthz": alive,
        "/readyz": path("Readiness of the store and the engine.", data, "503"),
        "/overdue": path("Whether an occurrence is overdue.", data, "503"),
        "/openapi.json": path("The OpenAPI description.", data),
    }


def _with_new_refs(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: f"#/components/schemas/{names[inner.removeprefix(_REF)]}"
            if key == "$ref" and isinstance(inner, str)
            else _with_new_refs(inner, names)
            for key, inner in value.items()
        }
    return [_with_new_refs(inner, names) for inner in value] if isinstance(value, list) else value
