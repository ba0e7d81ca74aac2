"""Hostile input is accepted or refused as its file says, in bounded time, with nothing half done."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.doors.terminal import ask
from tests.fuzz.corpora import READERS, Case, cases, hostile_texts, outcome
from tests.operations.house import House
from timewright.core.queue_file import decode_queue_file
from timewright.ledger.queue_import import import_queue
from timewright.ledger.replan import By
from timewright.stores.sqlite import SqliteStore

OWN = {
    "policy_files": "policy file",
    "policy_files_yaml": "policy file in YAML",
    "queue_files": "queue file",
    "workflows": "workflow",
    "settings": "settings",
    "http_bodies": "http body",
}


def each(name: str) -> list[Any]:
    return [pytest.param(case, id=f"{name}-{case.why.replace(' ', '_')}") for case in cases(name)]


def picture(house: House) -> str:
    """What the store holds, to the last byte."""
    assert isinstance(house.store, SqliteStore)
    content = house.store._writer.connection.serialize("main")
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("reader", "case"),
    [pytest.param(OWN[name], *param.values, id=param.id) for name in OWN for param in each(name)],
)
def test_a_file_is_accepted_or_refused_as_its_line_says(reader: str, case: Case) -> None:
    assert outcome(READERS[reader], case.value) == case.verdict


@pytest.mark.parametrize("reader", READERS, ids=lambda name: name.replace(" ", "_"))
def test_no_reader_breaks_or_lingers_over_any_text_of_any_corpus(reader: str) -> None:
    texts = hostile_texts()
    assert len(texts) > 500
    verdicts = {outcome(READERS[reader], text) for text in texts}
    assert "reject" in verdicts or reader == "loose data"


@pytest.mark.parametrize("case", each("cli_words"))
def test_words_on_the_command_line_are_understood_or_refused_and_leave_nothing(
    case: Case, house: House
) -> None:
    before = picture(house)
    said = ask(house, *case.value)
    assert "Traceback" not in said.err
    assert "timewright-fault" not in said.err, "a fault of ours leaves a report"
    if case.verdict == "accept":
        assert said.code == 0, said.err
        assert "\x1b" not in said.out
    else:
        assert said.code in (1, 2), said.out
        assert said.err or said.out.startswith("Usage:")
        assert len(said.err) < 4000
        assert picture(house) == before


@pytest.mark.parametrize("case", each("hints"))
def test_a_wish_of_an_agent_is_kept_within_bounds_or_refused_and_leaves_nothing(
    case: Case, house: House
) -> None:
    operation, fields = case.value
    before = picture(house)

    def wish(asked: dict[str, Any]) -> None:
        house.ask(operation, asked)

    assert outcome(wish, {"schedule": "orders-poll", **fields}) == case.verdict
    assert (picture(house) == before) is (case.verdict == "reject")


@pytest.mark.parametrize("case", each("queue_files"))
def test_a_queue_file_that_is_refused_adds_no_entry(case: Case, house: House) -> None:
    def take(text: str) -> None:
        entries = decode_queue_file(json.loads(text))
        where: dict[str, Any] = {"namespace": "default", "queue": "other"}
        import_queue(house.store, entries, ids=house.bench.ids, by=By(actor="ada"), now=house.now, **where)

    before = picture(house)
    assert outcome(take, case.value) == case.verdict
    assert (picture(house) == before) is (case.verdict == "reject")


def test_every_corpus_has_lines_of_both_classes() -> None:
    for name in (*OWN, "cli_words", "hints"):
        assert {case.verdict for case in cases(name)} == {"accept", "reject"}
