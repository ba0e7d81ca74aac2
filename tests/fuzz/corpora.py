"""Hostile input as data files, one value per line with its class, and every parser that must handle it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from timewright.core.input.input_errors import check_name, check_secret_name
from timewright.core.input.queue_file import decode_queue_file
from timewright.core.moments import parse_duration, parse_instant
from timewright.core.recurrence.cron import Cron
from timewright.core.target import Http
from timewright.core.workflow.checks import decode_workflow
from timewright.core.workflow.grammar import parse_condition, parse_path
from timewright.core.zones import check_zone
from timewright.errors import TimewrightError
from timewright.interfaces.cli.data_input import read_data, read_data_or_text
from timewright.interfaces.cli.settings import load_settings
from timewright.interfaces.http.problems import HttpProblem
from timewright.interfaces.http.request import read_body, split_query
from timewright.ledger.queues.policies import parse_policy_file
from timewright.targets.http.egress import parse_url
from timewright.targets.http.request import check_http

CORPUS = Path(__file__).parent / "corpus"
OTHERS = Path(__file__).parents[1]
# CPU seconds, which do not depend on the load of the machine. Most inputs take 1 ms; some have millions of
# characters.
MAX_CPU_S = 5.0


class Case(NamedTuple):
    """One value, the expected result, and why it is in the corpus."""

    verdict: str
    value: Any
    why: str


def cases(name: str) -> list[Case]:
    """The lines of a corpus, with placeholders expanded."""
    lines = (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Case(row["class"], expand_placeholders(row["input"]), row["why"]) for row in rows]


def expand_placeholders(value: Any) -> Any:
    """Expand the placeholders of a value: repeated text, bytes from hex digits, unpaired surrogates."""
    if isinstance(value, list):
        return [expand_placeholders(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "repeat" in value:
        text, times = value["repeat"]
        return str(value["first"]) + text * times + str(value["then"])
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    if "surrogate" in value:
        return f"{value['surrogate']}\ud800"
    return {key: expand_placeholders(item) for key, item in value.items()}


def hostile_texts() -> list[str]:
    """Every text of every corpus, here and in the other test folders."""
    found = [text for path in sorted(CORPUS.glob("*.jsonl")) for text in _texts_of(cases(path.stem))]
    for name in ("core/data/bad_input.json", "core/data/cron/corpus.json", "targets/http/data/urls.json"):
        found += _texts(json.loads((OTHERS / name).read_text(encoding="utf-8")))
    return list(dict.fromkeys(found))


def _texts_of(rows: list[Case]) -> Iterator[str]:
    for row in rows:
        yield from _texts(row.value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *_texts(item))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def read_settings(text: str | bytes) -> None:
    """Read settings as the program does, from a file that only the owner may write."""
    path = Path("settings.toml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    path.chmod(0o600)
    load_settings(str(path), {}, strict=False)


def read_http_body(text: str | bytes) -> None:
    """Read a body as the HTTP interface does."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    read_body(raw, "application/json")


def header(*, name: str = "X-Any", value: str = "x") -> None:
    """Check a header of a target's request."""
    check_http(Http(url="https://example.com/", headers={name: value}))


def policy(text: str, path: str) -> None:
    """Read a policy file and use it."""
    parse_policy_file(text, path=path).check()


READERS: dict[str, Callable[[str], object]] = {
    "cron": Cron,
    "duration": parse_duration,
    "instant": parse_instant,
    "zone": check_zone,
    "name": check_name,
    "secret name": check_secret_name,
    "url": parse_url,
    "header name": lambda text: header(name=text),
    "header value": lambda text: header(value=text),
    "condition": parse_condition,
    "path": parse_path,
    "workflow": lambda text: decode_workflow(read_data(text, field="file")),
    "policy file": lambda text: policy(text, "policy.json"),
    "policy file in YAML": lambda text: policy(text, "policy.yaml"),
    "queue file": lambda text: decode_queue_file(read_data(text, field="file")),
    "settings": read_settings,
    "http body": read_http_body,
    "query": split_query,
    "data": lambda text: read_data(text, field="x"),
    "loose data": lambda text: read_data_or_text(text, field="x"),
}


def outcome(reader: Callable[[Any], object], value: Any) -> str:
    """Return `accepted` or `refused`; any other exception or too much CPU time fails the test."""
    began = time.thread_time()
    refusal = _refusal(reader, value)
    took = time.thread_time() - began
    assert took < MAX_CPU_S, f"{took:.2f} s for {len(str(value))} characters"
    if refusal is None:
        return "accept"
    if isinstance(refusal, HttpProblem):
        assert 400 <= refusal.status < 500
    else:
        assert refusal.rule or refusal.fix, f"a refusal without a way out: {refusal.message}"
        assert len(refusal.explain()) < 4000, "a refusal that repeats what it refuses"
    assert 0 < len(refusal.message) < 2000
    return "reject"


def _refusal(reader: Callable[[Any], object], value: Any) -> TimewrightError | HttpProblem | None:
    try:
        reader(value)
    except (TimewrightError, HttpProblem) as refusal:
        return refusal
    return None
