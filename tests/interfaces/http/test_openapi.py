"""The OpenAPI description and the reference page."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.interfaces.http.http_client import HttpTestClient
from timewright.errors import NotAllowed, NotFound, errors_by_code
from timewright.interfaces import http
from timewright.interfaces.http import pages
from timewright.interfaces.http.openapi import openapi_document
from timewright.interfaces.http.pages import StaticFolder
from timewright.interfaces.http.problems import PROTOCOL_PROBLEMS, problems
from timewright.interfaces.http.routing import Route, routes_of
from timewright.interfaces.python.resources import UnknownMethod
from timewright.operations import operations

ROUTES = [pytest.param(route, id=route.operation_id) for one in operations for route in routes_of(one)]
STATIC = Path(pages.__file__).parent / "static"


def described(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = openapi_document()["paths"][route.template][route.method.lower()]
    return found


def resolving(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": openapi_document()["components"]}


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_is_described_with_request_answer_and_problems(route: Route) -> None:
    said = described(route)
    assert said["summary"] == route.operation.summary
    assert said["x-timewright-scope"] == route.operation.scope
    assert {"200", "4XX", "5XX"} <= set(said["responses"])
    named = {one["name"] for one in said["parameters"] if one["in"] == "path"}
    assert named == ({route.subject} if route.subject else set())
    assert (route.input_from == "body") is ("requestBody" in said)


@pytest.mark.parametrize("route", [one for one in ROUTES if one.values[0].input_from == "body"])  # type: ignore[union-attr]
def test_every_example_body_matches_its_schema(route: Route) -> None:
    content = described(route)["requestBody"]["content"]["application/json"]
    for example in content.get("examples", {}).values():
        jsonschema_rs.validator_for(resolving(content["schema"])).validate(example["value"])


def test_all_references_resolve_and_operation_ids_are_unique() -> None:
    whole = openapi_document()
    refs = set(re.findall(r"'\$ref': '([^']+)'", str(whole)))
    for ref in refs:
        part: Any = whole
        for step in ref.removeprefix("#/").split("/"):
            part = part[step]
    names = [
        o["operationId"] for path in whole["paths"].values() for o in path.values() if "operationId" in o
    ]
    assert len(names) == len(set(names)) == len(ROUTES)
    assert whole["openapi"] == "3.1.0"


def test_only_healthz_needs_no_key() -> None:
    free = [
        path
        for path, methods in openapi_document()["paths"].items()
        for one in methods.values()
        if one.get("security") == []
    ]
    assert free == ["/healthz"]


def test_every_problem_code_is_described() -> None:
    source = "".join(path.read_text("utf-8") for path in Path(http.__file__).parent.rglob("*.py"))
    raised = set(re.findall(r'HttpProblem\(\s*"(\w+)"', source))
    described = {one["code"]: one for one in openapi_document()["x-timewright-problems"]}
    assert len(raised) > 15
    assert raised <= set(described)
    assert all(one["means"] and 400 <= one["status"] < 600 for one in described.values())
    assert set(PROTOCOL_PROBLEMS) <= raised


def test_a_code_means_its_own_error_also_where_other_interfaces_are_imported() -> None:
    assert issubclass(UnknownMethod, NotFound)
    means = {one["code"]: one["means"] for one in problems()}
    assert means["not_found"] == NotFound.__doc__
    assert errors_by_code()["not_allowed"] is NotAllowed


def test_the_description_contains_the_root_path() -> None:
    assert openapi_document("/scheduler")["servers"] == [{"url": "/scheduler"}]


def test_the_reference_loads_nothing_from_other_hosts(client: HttpTestClient) -> None:
    page = client.request("GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    for name in re.findall(r'(?:href|src)="(?!data:)([^"]+)"', page.body.decode()):
        assert client.request("GET", f"/{name}").status == 200, name
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!example)", text), file
        assert "innerHTML" not in text
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text), file


def test_only_files_of_the_folder_are_served(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (inside / "index.html").write_text("<p>hello</p>", encoding="utf-8")
    (inside / "deep" / "main.js").write_text("1", encoding="utf-8")
    (inside / "code.py").write_text("1", encoding="utf-8")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    files = StaticFolder(inside)
    found = files.get("deep/main.js")
    assert found is not None
    assert found.headers["content-type"].startswith("text/javascript")
    for name in (
        "../secret.txt",
        "deep/../../secret.txt",
        "link.txt",
        "code.py",
        "/etc/passwd",
        "",
        ".",
        "deep",
    ):
        assert files.get(name) is None, name
    assert StaticFolder(None).get("index.html") is None
    assert StaticFolder(tmp_path / "nowhere").get("index.html") is None


def test_unchanged_files_are_cached_by_browsers(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="v/0/main.js"></script>', encoding="utf-8")
    (tmp_path / "main.js").write_text("1", encoding="utf-8")
    files = StaticFolder(tmp_path)

    def asked() -> tuple[str, str]:
        page = files.get("index.html")
        assert page is not None
        assert page.headers["cache-control"] == "no-cache"
        (named,) = re.findall(r'src="([^"]+)"', bytes(page.body).decode())
        found = files.get(named)
        assert found is not None
        return named, found.headers["cache-control"]

    before, kept = asked()
    assert kept.endswith("immutable")
    (tmp_path / "main.js").write_text("2 and more", encoding="utf-8")
    os.utime(tmp_path / "main.js", ns=(1, 1))
    after, kept = asked()
    assert (after != before, kept.endswith("immutable")) == (True, True)
    stale = files.get(before)
    assert stale is not None
    assert stale.headers["cache-control"] == "no-cache"
    assert files.get("v/0/nothing.js") is None
