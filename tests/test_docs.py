"""The Python examples in the pages run and print what the page shows; generated pages are up to date."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from msgspec.structs import fields

from docs import generate
from docs.speed import PLOT, draw, figures
from tests.project import DOCS, PAGES, PYTHON_BLOCK, ROOT, error_types, run_example
from timewright.core import facts
from timewright.core.run.run import Reason, RunState
from timewright.core.schedule.decision import Source
from timewright.core.schedule.schedule import Schedule, ScheduleState
from timewright.operations import operations
from timewright.settings import Settings

LEARN = sorted((DOCS / "learn").glob("*.md"))
GENERATED = generate.pages()

LINK = re.compile(r"\]\((?!https?:)([^)]*)\)")
TEST = re.compile(r"`(test_\w+)`")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def below(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def examples(path: Path) -> list[str]:
    return PYTHON_BLOCK.findall(text_of(path))


def anchors(path: Path) -> set[str]:
    """The anchors of the headings: words in lower case, joined by hyphens."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text_of(path)), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[\s-]+", "-", heading) for heading in words}


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=below)
def test_the_examples_of_a_page_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    compared = [pair for block in examples(page) for pair in run_example(block, names)]
    assert [expected for expected, _ in compared] == [actual for _, actual in compared]


@pytest.mark.parametrize("page", LEARN, ids=below)
def test_a_page_in_learn_shows_results(page: Path) -> None:
    assert "# →" in "".join(examples(page))


@pytest.mark.parametrize("page", PAGES, ids=below)
def test_a_page_starts_with_its_purpose(page: Path) -> None:
    assert re.match(r"# .+\n\n[A-Z][^\n]+", text_of(page)), (
        "a title, then a sentence; not a heading or a list"
    )


@pytest.mark.parametrize("page", PAGES, ids=below)
def test_every_link_in_a_page_has_a_target(page: Path) -> None:
    links = [link.partition("#") for link in LINK.findall(FENCED.sub("", text_of(page)))]
    targets = [((page.parent / path) if path else page, anchor) for path, _, anchor in links]
    missing_targets = [
        f"{path.name}#{anchor}"
        for path, anchor in targets
        if not path.is_file() or (anchor and anchor not in anchors(path))
    ]
    assert missing_targets == []


def test_every_page_is_linked_from_the_index() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall(text_of(DOCS / "index.md"))}
    assert {below(page) for page in PAGES} - linked == {"index.md"}


def reference_pages() -> list[str]:
    """The pages of the part Reference, which people look things up in and do not read through."""
    part = re.search(
        r"^  - Reference:\n((?:      - .+\n)+)", text_of(DOCS.parent / "mkdocs.yml"), re.MULTILINE
    )
    assert part is not None
    return re.findall(r"- (\S+\.md)", part[1])


def sentence_lengths(page: Path) -> list[int]:
    """Words of each sentence outside code, tables and headings; code in a sentence is one word."""
    prose = re.sub(r"^[|#].*$", "", FENCED.sub("", text_of(page)), flags=re.MULTILINE)
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose))
    blocks = re.split(r"\n\s*\n|\n(?=[*-] |\d+\. )", plain)
    sentences = (one for block in blocks for one in re.split(r"(?<=[.!?])\s+", " ".join(block.split())))
    return [length for one in sentences if (length := len(one.split())) > 2]


def test_a_page_has_at_most_1500_words_unless_it_is_reference() -> None:
    read_through = [page for page in PAGES if below(page) not in reference_pages()]
    assert [below(page) for page in read_through if len(text_of(page).split()) > 1500] == []


def test_half_of_the_sentences_have_at_most_18_words() -> None:
    assert median(length for page in PAGES for length in sentence_lengths(page)) <= 18


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", text_of(DOCS.parent / "mkdocs.yml"), re.MULTILINE)
    assert sorted(listed) == sorted(below(page) for page in PAGES)


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert text_of(DOCS / name) == GENERATED[name], "write it with .venv/bin/python -m docs.generate"


def test_the_speed_chart_shows_the_stored_figures() -> None:
    assert text_of(PLOT) == draw(figures()), "draw it with .venv/bin/python -m docs.speed"


def test_the_reference_has_no_stale_page() -> None:
    assert {below(page) for page in DOCS.glob("reference/*.md")} <= set(GENERATED)


def missing(page: str, words: Iterable[str]) -> list[str]:
    """The names without a row in a table of the page."""
    first_cells = re.findall(r"^\| \[?`([^`]+)`", GENERATED[f"reference/{page}.md"], re.MULTILINE)
    return sorted(set(words) - set(first_cells))


def test_every_operation_has_a_row() -> None:
    assert len(operations) > 50
    assert missing("operations", [operation.name for operation in operations]) == []


def test_every_error_has_a_row() -> None:
    assert missing("errors", [kind.code for kind in error_types()]) == []


def test_every_fact_has_a_row() -> None:
    assert len(facts.FACT_KINDS) > 20
    assert missing("facts", facts.FACT_KINDS) == []


def test_every_setting_has_a_row() -> None:
    assert missing("settings", [field.name for field in fields(Settings)]) == []


def test_every_field_of_a_schedule_has_a_row() -> None:
    assert missing("schedule-fields", [field.encode_name for field in fields(Schedule)]) == []


def test_every_source_state_and_reason_has_a_row() -> None:
    words = [*Source, *RunState, *ScheduleState, *Reason]
    assert missing("sources-and-states", map(str, words)) == []


def test_a_name_without_a_description_fails_the_build() -> None:
    with pytest.raises(LookupError, match="two"):
        generate.check(["one", "two"], {"one": "The first."}, "numbers")


def test_every_test_named_on_the_promise_page_exists() -> None:
    named = TEST.findall(text_of(DOCS / "test" / "promises.md"))
    ours = "".join(text_of(path) for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"^ *def (test_\w+)\(", ours, re.MULTILINE))
    assert len(named) > 30
    assert sorted(set(named) - known) == []
