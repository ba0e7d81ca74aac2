"""Requests and answers match their JSON Schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.operations.harness import sample_harness
from timewright.operations import Operation, operations
from timewright.operations.json_schemas import answer_schema, request_schema

EVERY = [pytest.param(one, id=one.name) for one in operations]


@pytest.mark.parametrize("one", EVERY)
def test_every_example_matches_its_request_schema(one: Operation[Any]) -> None:
    schema = request_schema(one)
    json.dumps(schema)
    for example in one.examples:
        assert faults(dict(example), schema, schema.get("$defs", {})) == []


@pytest.mark.parametrize("one", EVERY)
def test_every_answer_matches_its_schema(one: Operation[Any]) -> None:
    schema = answer_schema(one)
    for example in one.examples:
        assert faults(one(sample_harness().context, example), schema, schema.get("$defs", {})) == []


def test_the_schema_of_a_new_schedule_has_shorthands_and_no_server_fields() -> None:
    schema = request_schema(operations["schedule create"])
    assert {"name", "cron", "every", "http", "overlap", "dry_run", "reason"} <= set(schema["properties"])
    assert not {"id", "created_at", "namespace", "draft"} & set(schema["properties"])
    assert schema["required"] == ["name"]
    assert schema["description"].startswith("Create a schedule")


def test_the_schema_of_an_update_requires_only_the_schedule() -> None:
    assert request_schema(operations["schedule update"])["required"] == ["schedule"]
    assert request_schema(operations["queue policy set"])["required"] == ["queue"]
    assert "required" not in request_schema(operations["schedule next"])


def test_schemas_describe_durations_and_instants_as_text() -> None:
    properties = request_schema(operations["hint interval"])["properties"]
    assert properties["ttl"]["default"] == "1h"
    assert "90s" in properties["ttl"]["description"]
    assert request_schema(operations["hint once"])["properties"]["at"]["anyOf"][0]["format"] == "date-time"


def faults(value: Any, schema: Any, shared: Any, path: str = "") -> list[str]:
    """Return where a value violates a schema; supports only the keywords that our schemas use."""
    if "$ref" in schema:
        schema = shared[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        tried = [faults(value, one, shared, path) for one in schema["anyOf"]]
        return [] if [] in tried else min(tried, key=len)
    if "const" in schema or "enum" in schema:
        known = schema.get("enum", [schema.get("const")])
        return [] if value in known else [f"{path}: {value!r} is not one of {known}"]
    types: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
        "integer": int, "number": (int, float),
    }  # fmt: skip
    if "type" in schema and not isinstance(value, types[schema["type"]]):
        return [f"{path}: {value!r} is not {schema['type']}"]
    found: list[str] = []
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        found += [f"{path}.{name} is unknown" for name in value if name not in known]
        found += [f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        for name in value.keys() & known.keys():
            found += faults(value[name], known[name], shared, f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += faults(item, schema["items"], shared, f"{path}[{number}]")
    return found
