"""What an agent may read by its address: schedules, runs, queues, and the pages of the manual."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mcp_types import Resource, ResourceTemplate

from timewright.errors import NotFound
from timewright.operations import Context, operations
from timewright.operations.plain_text import harmless

SCHEME = "timewright"
JSON, MARKDOWN = "application/json", "text/markdown"
# Which operation answers for an address, and which of its fields the last part is.
_ANSWERS = {
    "schedules": (
        "schedule get",
        "schedule",
        "One schedule: what it says, where it stands, when it is next.",
    ),
    "runs": ("run get", "run", "One run with its attempts."),
    "queues": ("queue show", "queue", "One queue: its policy, who holds a lease, what waits."),
}
# In an installed package the pages lie beside the code; in a checkout they are where they are written.
_PLACES = (Path(__file__).parents[2] / "pages", Path(__file__).parents[4] / "docs")
_SHOWN = ("learn", "operate", "test")
_TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"^(?!#|```|\||!)(\S.*)$", re.MULTILINE)


def listed() -> list[Resource]:
    """The pages of the manual; things in the store are found by the tools, and read by their templates."""
    return [
        Resource(
            uri=f"{SCHEME}://docs/{name}",
            name=name,
            title=_found(_TITLE, text) or name,
            description=_found(_SUMMARY, text)[:300],
            mime_type=MARKDOWN,
            size=len(text.encode()),
        )
        for name, text in _pages().items()
    ]


def templates() -> list[ResourceTemplate]:
    """How the address of a thing in the store is made from its id or name."""
    return [
        ResourceTemplate(
            uri_template=f"{SCHEME}://{noun}/{{id}}", name=noun, description=sentence, mime_type=JSON
        )
        for noun, (_, _, sentence) in _ANSWERS.items()
    ]


def read(context: Context, uri: str) -> tuple[str, str]:
    """The text at an address, and its kind."""
    parts = urlsplit(uri[:2000])
    name = unquote(parts.path.lstrip("/"))
    if parts.scheme == SCHEME and parts.netloc == "docs" and name in _pages():
        return _pages()[name], MARKDOWN
    if parts.scheme != SCHEME or parts.netloc not in _ANSWERS or not name:
        raise NotFound(
            "nothing is at this address",
            field="uri",
            value=uri[:200],
            rule=", ".join(f"{SCHEME}://{noun}/…" for noun in [*_ANSWERS, "docs"]),
            fix="resources/list, resources/templates/list",
        )
    operation, field, _ = _ANSWERS[parts.netloc]
    answer: Any = harmless(operations[operation](context, {field: name}))
    return json.dumps(answer, ensure_ascii=False, indent=1), JSON


@functools.cache
def _pages() -> dict[str, str]:
    folder = next((place for place in _PLACES if place.is_dir()), None)
    if folder is None:
        return {}
    found = sorted(page for part in _SHOWN for page in (folder / part).glob("*.md"))
    return {str(page.relative_to(folder).with_suffix("")): page.read_text("utf-8") for page in found}


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1].strip() if match else ""
