"""The API's description of itself: complete, consistent, and shown on a page of our own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.doors.http.visitor import Visitor
from timewright.doors.http import pages
from timewright.doors.http.openapi import document
from timewright.doors.http.pages import Files
from timewright.doors.http.places import Place, places_of
from timewright.doors.http.problems import OF_THE_PROTOCOL
from timewright.operations import operations

PLACES = [pytest.param(place, id=place.name) for one in operations for place in places_of(one)]
STATIC = Path(pages.__file__).parent / "static"


def described(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][place.template][place.method.lower()]
    return found


def resolving(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": document()["components"]}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_is_described_with_its_request_its_answer_and_its_problems(place: Place) -> None:
    said = described(place)
    assert said["summary"] == place.operation.summary
    assert said["x-timewright-scope"] == place.operation.scope
    assert {"200", "4XX", "5XX"} <= set(said["responses"])
    named = {one["name"] for one in said["parameters"] if one["in"] == "path"}
    assert named == ({place.subject} if place.subject else set())
    assert (place.takes == "body") is ("requestBody" in said)


@pytest.mark.parametrize("place", [one for one in PLACES if one.values[0].takes == "body"])  # type: ignore[union-attr]
def test_every_example_of_a_body_fits_its_schema(place: Place) -> None:
    content = described(place)["requestBody"]["content"]["application/json"]
    for example in content.get("examples", {}).values():
        jsonschema_rs.validator_for(resolving(content["schema"])).validate(example["value"])


def test_every_reference_leads_somewhere_and_every_name_is_its_own() -> None:
    whole = document()
    refs = set(re.findall(r"'\$ref': '([^']+)'", str(whole)))
    for ref in refs:
        part: Any = whole
        for step in ref.removeprefix("#/").split("/"):
            part = part[step]
    names = [
        o["operationId"] for path in whole["paths"].values() for o in path.values() if "operationId" in o
    ]
    assert len(names) == len(set(names)) == len(PLACES)
    assert whole["openapi"] == "3.1.0"


def test_only_the_probe_for_life_needs_no_key() -> None:
    free = [
        path
        for path, methods in document()["paths"].items()
        for one in methods.values()
        if one.get("security") == []
    ]
    assert free == ["/healthz"]


def test_every_problem_that_is_raised_is_described() -> None:
    source = "".join(path.read_text("utf-8") for path in Path(pages.__file__).parent.glob("*.py"))
    raised = set(re.findall(r'Refused\(\s*\d{3},\s*"(\w+)"', source))
    described = {one["code"]: one for one in document()["x-timewright-problems"]}
    assert len(raised) > 15
    assert raised <= set(described)
    assert all(one["means"] and 400 <= one["status"] < 600 for one in described.values())
    assert set(OF_THE_PROTOCOL) <= raised


def test_the_description_knows_where_it_is_mounted() -> None:
    assert document("/scheduler")["servers"] == [{"url": "/scheduler"}]


def test_the_reference_is_a_page_of_our_own(visitor: Visitor) -> None:
    page = visitor.ask("GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    for name in re.findall(r'(?:href|src)="(?!data:)([^"]+)"', page.body.decode()):
        assert visitor.ask("GET", f"/{name}").status == 200, name
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!example)", text), file
        assert "innerHTML" not in text
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text), file


def test_a_folder_gives_its_files_and_nothing_else(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (inside / "index.html").write_text("<p>hello</p>", encoding="utf-8")
    (inside / "deep" / "main.js").write_text("1", encoding="utf-8")
    (inside / "code.py").write_text("1", encoding="utf-8")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    files = Files(inside)
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
    assert Files(None).get("index.html") is None
    assert Files(tmp_path / "nowhere").get("index.html") is None


def test_files_are_kept_by_a_browser_as_long_as_they_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="v/0/main.js"></script>', encoding="utf-8")
    (tmp_path / "main.js").write_text("1", encoding="utf-8")
    files = Files(tmp_path)

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
