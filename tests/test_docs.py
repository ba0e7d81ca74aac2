"""Every Python block in the pages runs and says what the page says; every generated page is up to date."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from docs import generate
from docs.speed import PLOT, draw, figures
from tests.test_house import our_errors
from tests.test_readme import BLOCK, run
from timewright.core import facts
from timewright.core.decision import Source
from timewright.core.run import Reason, RunState
from timewright.core.schedule import Schedule, ScheduleState
from timewright.operations import operations
from timewright.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
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
    return BLOCK.findall(text_of(path))


def anchors(path: Path) -> set[str]:
    """What a heading can be linked by: its words in small letters, joined by hyphens."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text_of(path)), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[\s-]+", "-", heading) for heading in words}


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=below)
def test_the_examples_of_a_page_run_and_tell_the_truth(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    compared = [pair for block in examples(page) for pair in run(block, names)]
    assert [claim for claim, _ in compared] == [outcome for _, outcome in compared]


@pytest.mark.parametrize("page", LEARN, ids=below)
def test_a_page_to_learn_from_shows_what_comes_out(page: Path) -> None:
    assert "# →" in "".join(examples(page))


@pytest.mark.parametrize("page", PAGES, ids=below)
def test_a_page_opens_with_what_it_lets_you_do(page: Path) -> None:
    assert re.match(r"# .+\n\n(?:This page lets you|Timewright is one model)", text_of(page))


@pytest.mark.parametrize("page", PAGES, ids=below)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = [link.partition("#") for link in LINK.findall(FENCED.sub("", text_of(page)))]
    targets = [((page.parent / path) if path else page, anchor) for path, _, anchor in links]
    lost = [
        f"{path.name}#{anchor}"
        for path, anchor in targets
        if not path.is_file() or (anchor and anchor not in anchors(path))
    ]
    assert lost == []


def test_every_page_is_linked_from_the_first_one() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall(text_of(DOCS / "index.md"))}
    assert {below(page) for page in PAGES} - linked == {"index.md"}


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_what_the_code_says_now(name: str) -> None:
    assert text_of(DOCS / name) == GENERATED[name], ".venv/bin/python -m docs.generate writes it again"


def test_the_picture_of_the_speed_shows_the_figures_that_are_kept() -> None:
    assert text_of(PLOT) == draw(figures()), ".venv/bin/python -m docs.speed draws it again"


def test_no_page_of_the_reference_is_left_over() -> None:
    assert {below(page) for page in DOCS.glob("reference/*.md")} <= set(GENERATED)


def missing(page: str, words: Iterable[str]) -> list[str]:
    """The words that have no line of their own in a table of the page."""
    first_cells = re.findall(r"^\| \[?`([^`]+)`", GENERATED[f"reference/{page}.md"], re.MULTILINE)
    return sorted(set(words) - set(first_cells))


def test_every_operation_has_its_line() -> None:
    assert len(operations) > 50
    assert missing("operations", [operation.name for operation in operations]) == []


def test_every_error_has_its_line() -> None:
    assert missing("errors", [kind.code for kind in our_errors()]) == []


def test_every_fact_has_its_line() -> None:
    kinds = [kind for kind in vars(facts).values() if inspect.isclass(kind) and issubclass(kind, facts.Fact)]
    tags = {str(kind.__struct_config__.tag) for kind in kinds} - {"fact"}
    assert len(tags) > 20
    assert missing("facts", tags) == []


def test_every_setting_has_its_line() -> None:
    assert missing("settings", [field.name for field in fields(Settings)]) == []


def test_every_field_of_a_schedule_has_its_line() -> None:
    assert missing("schedule-fields", [field.encode_name for field in fields(Schedule)]) == []


def test_every_source_state_and_reason_has_its_line() -> None:
    words = [*Source, *RunState, *ScheduleState, *Reason]
    assert missing("sources-and-states", map(str, words)) == []


def test_a_word_without_a_sentence_is_found_out() -> None:
    with pytest.raises(LookupError, match="two"):
        generate.check(["one", "two"], {"one": "The first."}, "numbers")


def test_every_test_that_the_promise_names_is_there() -> None:
    named = TEST.findall(text_of(DOCS / "promise.md"))
    ours = "".join(text_of(path) for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"^def (test_\w+)\(", ours, re.MULTILINE))
    assert len(named) > 30
    assert sorted(set(named) - known) == []
