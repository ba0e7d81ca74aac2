"""MCP resources: schedules, runs, queues and documentation pages, by URI."""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mcp_types import Annotations, PromptReference, Resource, ResourceTemplate, ResourceTemplateReference

from timewright.errors import NotFound
from timewright.operations import OperationContext, operations
from timewright.operations.text_safety import sanitize

SCHEME = "timewright"
JSON, MARKDOWN = "application/json", "text/markdown"
# Operation, field for the last URI part, and description of each resource.
_RESOURCES = {
    "schedules": (
        "schedule get",
        "schedule",
        "One schedule: definition, progress and next occurrences.",
    ),
    "runs": ("run get", "run", "One run with its attempts."),
    "queues": ("queue show", "queue", "One queue: policy, live leases and waiting entries."),
}
# The pages are beside the code in an installed package, and in docs/ in a checkout.
_DOCS_FOLDERS = (Path(__file__).parents[2] / "pages", Path(__file__).parents[4] / "docs")
# The sections that are offered, and how much an agent needs each.
_PRIORITIES = {"learn": 0.6, "operate": 0.4, "test": 0.2}
MAX_COMPLETIONS = 20
_TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"^(?!#|```|\||!)(\S.*)$", re.MULTILINE)


def list_resources() -> list[Resource]:
    """Return the documentation pages; objects in the store are read through the templates."""
    return [
        Resource(
            uri=f"{SCHEME}://docs/{name}",
            name=name,
            title=_first_match(_TITLE, text) or name,
            description=_first_match(_SUMMARY, text)[:300],
            mime_type=MARKDOWN,
            size=len(text.encode()),
            annotations=Annotations(
                priority=_PRIORITIES[name.partition("/")[0]], last_modified=_last_modified(name)
            ),
        )
        for name, text in _pages().items()
    ]


def list_templates() -> list[ResourceTemplate]:
    """Return the URI templates of objects in the store."""
    return [
        ResourceTemplate(
            uri_template=f"{SCHEME}://{noun}/{{id}}",
            name=noun,
            description=description,
            mime_type=JSON,
            annotations=Annotations(priority=1.0),
        )
        for noun, (_, _, description) in _RESOURCES.items()
    ]


def read_resource(context: OperationContext, uri: str) -> tuple[str, str]:
    """Return the text of a URI and its MIME type."""
    parts = urlsplit(uri[:2000])
    name = unquote(parts.path.lstrip("/"))
    if parts.scheme == SCHEME and parts.netloc == "docs" and name in _pages():
        return _pages()[name], MARKDOWN
    if parts.scheme != SCHEME or parts.netloc not in _RESOURCES or not name:
        raise NotFound(
            "resource not found",
            field="uri",
            value=uri[:200],
            rule=", ".join(f"{SCHEME}://{noun}/…" for noun in [*_RESOURCES, "docs"]),
            fix="resources/list, resources/templates/list",
        )
    operation, field, _ = _RESOURCES[parts.netloc]
    answer: Any = sanitize(operations[operation](context, {field: name}))
    return json.dumps(answer, ensure_ascii=False, indent=1), JSON


def complete(
    context: OperationContext, ref: PromptReference | ResourceTemplateReference, argument: str, start: str
) -> list[str]:
    """Return names that complete an argument of a prompt or of a URI template; none if nothing fits."""
    noun = argument if isinstance(ref, PromptReference) else urlsplit(ref.uri[:2000]).netloc.rstrip("s")
    if noun == "schedule":
        request = {"name_starts": start, "limit": MAX_COMPLETIONS}
        rows = operations["schedule list"](context, request)["schedules"]
    elif noun == "queue":
        rows = operations["queue list"](context, {})["queues"]
    else:
        return []
    names = (row["name"] for row in rows)
    return [sanitize(name) for name in names if name.startswith(start)][:MAX_COMPLETIONS]


def _last_modified(page: str) -> str:
    """When a page was last changed."""
    folder = next(place for place in _DOCS_FOLDERS if place.is_dir())
    changed_at = (folder / f"{page}.md").stat().st_mtime
    return datetime.fromtimestamp(changed_at, UTC).isoformat(timespec="seconds")


@functools.cache
def _pages() -> dict[str, str]:
    folder = next((place for place in _DOCS_FOLDERS if place.is_dir()), None)
    if folder is None:
        return {}
    found = sorted(page for part in _PRIORITIES for page in (folder / part).glob("*.md"))
    return {str(page.relative_to(folder).with_suffix("")): page.read_text("utf-8") for page in found}


def _first_match(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1].strip() if match else ""
