"""The API as OpenAPI 3.1: every place of every operation, its schemas, its examples and its problems."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from timewright.doors.http.places import NOBODY, PREFIX, Place, places_of
from timewright.doors.http.problems import MEDIA_TYPE, problems
from timewright.operations import operations
from timewright.operations.schemas import answer_schema, request_schema

Schema = dict[str, Any]

_REF = "#/$defs/"
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "The same key again, within a day, gives the same answer and changes nothing.",
}
_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string", "pattern": '^"[0-9]{1,15}"$'},
    "description": "The ETag that getting it gave: write only if it is still at that revision.",
}
_NAMESPACE = {
    "name": "Timewright-Namespace",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
    "description": "Whose things are meant; without it, the key's own.",
}
_PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what happened"},
        "code": {"type": "string", "description": "the kind of refusal, the same at every door"},
        "field": {"type": "string", "description": "where"},
        "value": {"description": "what was refused"},
        "rule": {"type": "string", "description": "what holds"},
        "fix": {"type": "string", "description": "what to do next"},
    },
}


class _Shared:
    """The parts that schemas refer to, gathered under names of their own."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {"Problem": _PROBLEM}
        self._seen: dict[str, Schema] = {"Problem": _PROBLEM}

    def hoist(self, schema: Schema, *, side: str) -> Schema:
        """A schema whose references lead to the shared parts; what is asked and what is answered differ."""
        parts: dict[str, Schema] = schema.get("$defs", {})
        names = {name: self._name(name, part, side) for name, part in parts.items()}
        for name, part in parts.items():
            self.schemas[names[name]] = _renamed(part, names)
        moved: Schema = _renamed({key: value for key, value in schema.items() if key != "$defs"}, names)
        return moved

    def _name(self, name: str, part: Schema, side: str) -> str:
        """Two that are called the same and are not get a number."""
        candidates = [f"{name}{side}", *(f"{name}{side}{i}" for i in range(2, 100))]
        return next(one for one in candidates if self._seen.setdefault(one, part) == part)


@cache
def document(root: str = "") -> dict[str, Any]:
    """The whole description; it changes only with the list of operations."""
    shared = _Shared()
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        for place in places_of(operation):
            paths.setdefault(place.template, {})[place.method.lower()] = _described(place, shared)
    paths.update(_others())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Timewright",
            "version": version("timewright"),
            "description": "One persistent scheduler for applications and for AI agents.",
        },
        "servers": [{"url": root or "/"}],
        "security": [{"key": []}, {"session": []}],
        "tags": [{"name": tag} for tag in sorted({one.noun or "house" for one in operations})],
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


def _described(place: Place, shared: _Shared) -> dict[str, Any]:
    operation = place.operation
    asked = _told(shared.hoist(request_schema(operation), side="Asked"), operation.name)
    described: dict[str, Any] = {
        "operationId": place.name,
        "tags": [operation.noun or "house"],
        "summary": operation.summary,
        "description": " ".join((operation.request.__doc__ or "").split()),
        "x-timewright-operation": operation.name,
        "x-timewright-scope": operation.scope,
        "parameters": [*_in_path(place), *_in_query(place, asked), *_in_headers(place)],
        "responses": {
            **_answers(place, shared.hoist(answer_schema(operation), side="")),
            "4XX": {"$ref": "#/components/responses/Problem"},
            "5XX": {"$ref": "#/components/responses/Problem"},
        },
    }
    if place.takes == "body":
        described["requestBody"] = _body(place, asked)
    return described


def _told(schema: Schema, operation: str) -> Schema:
    """The same with a sentence for each field, in the words of the command line."""
    from timewright.doors.cli.words import said

    fields: dict[str, Schema] = {}
    for name, field in schema["properties"].items():
        sentence = said(operation, name)
        fields[name] = {"description": sentence, **field} if sentence else field
    return {**schema, "properties": fields}


def _in_path(place: Place) -> list[Schema]:
    if not place.subject:
        return []
    said = f"by name or id; {NOBODY} for none" if place.leaves_out else "by name or id"
    text = {"type": "string", "minLength": 1, "maxLength": 255}
    return [{"name": place.subject, "in": "path", "required": True, "schema": text, "description": said}]


def _in_query(place: Place, asked: Schema) -> list[Schema]:
    fields: dict[str, Schema] = asked["properties"]
    both = ("dry_run", "reason")
    named = [n for n in fields if (n in both if place.takes == "body" else n != place.subject)]
    needed = asked.get("required", ()) if place.takes == "query" else ()
    return [_parameter(name, fields[name], required=name in needed) for name in named]


def _parameter(name: str, schema: Schema, *, required: bool) -> Schema:
    found: Schema = {"name": name, "in": "query", "required": required}
    if "description" in schema:
        found["description"] = schema["description"]
    if _is_plain(schema):
        return {**found, "schema": schema}
    # What is more than a word or a number stands in a query as JSON.
    return {**found, "content": {"application/json": {"schema": schema}}}


def _is_plain(schema: Schema) -> bool:
    kinds = schema.get("anyOf", [schema])
    words = ("string", "integer", "number", "boolean", "null")
    return all("enum" in kind or kind.get("type") in words for kind in kinds)


def _in_headers(place: Place) -> list[Schema]:
    writes = not place.operation.reads_only
    versioned = "revision" in place.operation.request.__struct_fields__
    return [_NAMESPACE, *([_KEY] if writes and place.operation.noun not in ("key", "secret") else [])] + (
        [_MATCH] if versioned else []
    )


def _body(place: Place, asked: Schema) -> dict[str, Any]:
    kept = {name: value for name, value in asked["properties"].items() if name != place.subject}
    needed = [name for name in asked.get("required", ()) if name != place.subject]
    schema = {**asked, "properties": kept, "required": needed}
    examples = {
        f"example {i}": {"value": {name: value for name, value in one.items() if name != place.subject}}
        for i, one in enumerate(place.operation.examples, start=1)
        if not place.subject or place.subject in one or place.leaves_out
    }
    content: dict[str, Any] = {"schema": schema, **({"examples": examples} if examples else {})}
    return {"required": bool(needed), "content": {"application/json": content}}


def _answers(place: Place, schema: Schema) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    answers: dict[str, Any] = {"200": {"description": "done", "content": content}}
    if place.operation.verb in ("create", "put"):
        answers["201"] = {"description": "made", "content": content}
    return answers


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "refused, with the way out", "content": {MEDIA_TYPE: {"schema": schema}}}


def _others() -> dict[str, Any]:
    """What is not an operation: probes, events, and the description itself."""
    data = {"application/json": {"schema": {"type": "object"}}}
    problem = {"4XX": {"$ref": "#/components/responses/Problem"}}

    def told(summary: str, content: Any, *more: str) -> dict[str, Any]:
        answers = {code: {"description": "as it is", "content": content} for code in ("200", *more)}
        return {"get": {"summary": summary, "tags": ["house"], "responses": {**answers, **problem}}}

    events = told("What happens, from now on or since Last-Event-ID.", {"text/event-stream": {}})
    events["get"]["parameters"] = [
        {"name": "facts", "in": "query", "schema": {"type": "string"}, "description": "kinds, with commas"},
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
    ]
    alive = told("Whether this process answers.", data)
    alive["get"]["security"] = []
    return {
        "/" + "/".join((*PREFIX, "events")): events,
        "/healthz": alive,
        "/readyz": told("Whether the store and the engine answer.", data, "503"),
        "/overdue": told("Whether something should have begun and has not.", data, "503"),
        "/openapi.json": told("This description.", data),
    }


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: f"#/components/schemas/{names[inner.removeprefix(_REF)]}"
            if key == "$ref" and isinstance(inner, str)
            else _renamed(inner, names)
            for key, inner in value.items()
        }
    return [_renamed(inner, names) for inner in value] if isinstance(value, list) else value
