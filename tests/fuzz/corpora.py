"""Hostile input as data files, one value a line with its class, and every reader that must survive it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from timewright.core.cron import Cron
from timewright.core.moments import parse_duration, parse_instant
from timewright.core.names import check_name, check_secret_name
from timewright.core.queue_file import decode_queue_file
from timewright.core.target import Http
from timewright.core.workflow.checks import decode_workflow
from timewright.core.workflow.grammar import parse_condition, parse_path
from timewright.core.zones import check_zone
from timewright.doors.cli.data import read_data, read_loose
from timewright.doors.cli.settings import load_settings
from timewright.doors.http.asked import read_body, split_query
from timewright.doors.http.problems import Refused
from timewright.errors import TimewrightError
from timewright.ledger.policy_file import read_policy_file
from timewright.targets.http_request import check_http
from timewright.targets.urls import parse_url

CORPUS = Path(__file__).parent / "corpus"
OTHERS = Path(__file__).parents[1]
# Seconds of the processor, which a busy machine does not stretch. Most take a thousandth; the class of 50 ms
# is for inputs of a sensible size, and some of these have millions of letters.
LONGEST = 5.0


class Case(NamedTuple):
    """One value, what is to become of it, and why it is here."""

    verdict: str
    value: Any
    why: str


def cases(name: str) -> list[Case]:
    """The lines of a corpus, with long and impossible texts written out."""
    lines = (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Case(row["class"], written(row["input"]), row["why"]) for row in rows]


def written(value: Any) -> Any:
    """A value as it is meant: long texts repeated, bytes from their digits, half characters made."""
    if isinstance(value, list):
        return [written(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "repeat" in value:
        text, times = value["repeat"]
        return str(value["first"]) + text * times + str(value["then"])
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    if "surrogate" in value:
        return f"{value['surrogate']}\ud800"
    return {key: written(item) for key, item in value.items()}


def hostile_texts() -> list[str]:
    """Every text of every corpus, ours and those beside the readers they were made for."""
    found = [text for path in sorted(CORPUS.glob("*.jsonl")) for text in _texts_of(cases(path.stem))]
    for name in ("core/data/bad_input.json", "core/data/cron/corpus.json", "targets/data/urls.json"):
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
    """As the program does: from a file that nobody else may write."""
    path = Path("settings.toml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    path.chmod(0o600)
    load_settings(str(path), {}, strict=False)


def read_http_body(text: str | bytes) -> None:
    """As the HTTP door does."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    read_body(raw, "application/json")


def header(*, name: str = "X-Any", value: str = "x") -> None:
    """A header of a request that a target sends."""
    check_http(Http(url="https://example.com/", headers={name: value}))


def policy(text: str, path: str) -> None:
    """A policy file that was read, and is used."""
    read_policy_file(text, path=path).check()


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
    "loose data": lambda text: read_loose(text, field="x"),
}


def outcome(reader: Callable[[Any], object], value: Any) -> str:
    """What a reader makes of a value: accepted or refused, in bounded time, and never anything else."""
    began = time.thread_time()
    refusal = _refusal(reader, value)
    took = time.thread_time() - began
    assert took < LONGEST, f"{took:.2f} s for {len(str(value))} characters"
    if refusal is None:
        return "accept"
    if isinstance(refusal, Refused):
        assert 400 <= refusal.status < 500
    else:
        assert refusal.rule or refusal.fix, f"a refusal without a way out: {refusal.message}"
        assert len(refusal.explain()) < 4000, "a refusal that repeats what it refuses"
    assert 0 < len(refusal.message) < 2000
    return "reject"


def _refusal(reader: Callable[[Any], object], value: Any) -> TimewrightError | Refused | None:
    try:
        reader(value)
    except (TimewrightError, Refused) as refusal:
        return refusal
    return None
