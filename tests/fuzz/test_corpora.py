"""Hostile input is accepted or refused as its corpus says, in bounded time, without partial effects."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.fuzz.corpora import READERS, Case, cases, hostile_texts, outcome
from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness
from timewright.core.input.queue_file import decode_queue_file
from timewright.ledger.queues.queue_import import import_queue
from timewright.ledger.replan import Actor
from timewright.stores.sqlite.store import SqliteStore

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


def store_content(harness: OperationsHarness) -> str:
    """The complete content of the store."""
    assert isinstance(harness.store, SqliteStore)
    content = harness.store._writer.connection.serialize("main")
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("reader", "case"),
    [pytest.param(OWN[name], *param.values, id=param.id) for name in OWN for param in each(name)],
)
def test_a_file_is_accepted_or_refused_as_its_line_says(reader: str, case: Case) -> None:
    assert outcome(READERS[reader], case.value) == case.verdict


@pytest.mark.parametrize("reader", READERS, ids=lambda name: name.replace(" ", "_"))
def test_no_parser_fails_or_hangs_on_any_text_of_any_corpus(reader: str) -> None:
    texts = hostile_texts()
    assert len(texts) > 500
    verdicts = {outcome(READERS[reader], text) for text in texts}
    assert "reject" in verdicts or reader == "loose data"


@pytest.mark.parametrize("case", each("cli_words"))
def test_command_line_arguments_are_accepted_or_refused_without_partial_effects(
    case: Case, harness: OperationsHarness
) -> None:
    before = store_content(harness)
    said = invoke(harness, *case.value)
    assert "Traceback" not in said.err
    assert "timewright-fault" not in said.err, "a fault of ours leaves a report"
    if case.verdict == "accept":
        assert said.code == 0, said.err
        assert "\x1b" not in said.out
    else:
        assert said.code in (1, 2), said.out
        assert said.err or said.out.startswith("Usage:")
        assert len(said.err) < 4000
        assert store_content(harness) == before


@pytest.mark.parametrize("case", each("hints"))
def test_a_hint_is_accepted_within_limits_or_refused_without_partial_effects(
    case: Case, harness: OperationsHarness
) -> None:
    operation, fields = case.value
    before = store_content(harness)

    def submit_hint(asked: dict[str, Any]) -> None:
        harness.ask(operation, asked)

    assert outcome(submit_hint, {"schedule": "orders-poll", **fields}) == case.verdict
    assert (store_content(harness) == before) is (case.verdict == "reject")


@pytest.mark.parametrize("case", each("queue_files"))
def test_a_queue_file_that_is_refused_adds_no_entry(case: Case, harness: OperationsHarness) -> None:
    def import_entries(text: str) -> None:
        entries = decode_queue_file(json.loads(text))
        where: dict[str, Any] = {"namespace": "default", "queue": "other"}
        actor = Actor(name="ada")
        import_queue(harness.store, entries, ids=harness.bench.ids, by=actor, now=harness.now, **where)

    before = store_content(harness)
    assert outcome(import_entries, case.value) == case.verdict
    assert (store_content(harness) == before) is (case.verdict == "reject")


def test_every_corpus_has_lines_of_both_classes() -> None:
    for name in (*OWN, "cli_words", "hints"):
        assert {case.verdict for case in cases(name)} == {"accept", "reject"}
