"""Answers of targets, honest and hostile: read with a ceiling, kept as data, and never the end of us."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.targets.calls import NOON, Caller
from tests.targets.peers import Peer, Script, Talk, answer, silence, wire
from timewright.core.run import Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Http
from timewright.targets.http_answer import LONGEST_WAIT, MOST_VALUES, retry_after

CORPUS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "responses.json").read_text("utf-8")
)
SHORTLY = timedelta(seconds=0.25)
KB = 1024


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Peer() as running:
        yield running


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with Caller() as calling:
        yield calling


def ask(caller: Caller, peer: Peer, script: Script, **changes: Any) -> Outcome:
    """One request to a peer that answers so; afterwards nothing is connected any more."""
    limit = changes.pop("time_limit", timedelta(seconds=60))
    peer.scripts["/"] = script
    before = peer.connections
    outcome = caller.call(Http(url=peer.url(), **changes), time_limit=limit)
    peer.until(lambda it: it.now_connected == 0)
    assert peer.connections == before + 1
    return outcome


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_every_answer_of_the_corpus_ends_as_written(caller: Caller, peer: Peer, case: dict[str, Any]) -> None:
    outcome = ask(caller, peer, wire(case["wire"].encode("latin-1")))
    if case["class"] == "reject-at-run":
        assert isinstance(outcome, Failed)
        assert case["error"] in outcome.error
        assert outcome.error.isprintable()
        return
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == case["body"]
    assert case.get("note", "") in outcome.result.get("note", "")
    assert outcome.result["truncated"] is False


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_no_answer_of_the_corpus_in_pieces_is_waited_for_in_vain(
    caller: Caller, peer: Peer, case: dict[str, Any]
) -> None:
    head, gap, rest = case["wire"].encode("latin-1").partition(b"\r\n\r\n")

    async def in_pieces(talk: Talk) -> None:
        await talk.say(head + gap)
        for byte in rest[:40]:
            await talk.pause(0.001)
            await talk.say(bytes([byte]))
        await talk.say(rest[40:])
        await talk.hang_up_waited_for(at_most=0.05)

    outcome = ask(caller, peer, in_pieces)
    assert isinstance(outcome, Succeeded | Failed)
    if case["class"] != "reject-at-run":
        assert isinstance(outcome, Succeeded)


def test_the_result_has_status_duration_body_headers_and_size(caller: Caller, peer: Peer) -> None:
    async def slowly(talk: Talk) -> None:
        caller.clock.advance(seconds=1.5)
        body = b'{"ok":true}'
        head = "HTTP/1.1 201 Made\r\nContent-Type: application/json\r\nETag: x\r\nX-Other: y\r\n"
        await talk.say(f"{head}Set-Cookie: a=b\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    outcome = ask(caller, peer, slowly)
    assert isinstance(outcome, Succeeded)
    assert outcome.result == {
        "status": 201,
        "duration_ms": 1500,
        "body": {"ok": True},
        "truncated": False,
        "headers": {"content-type": "application/json", "content-length": "11", "etag": "x"},
        "size": 11,
    }


def test_a_failure_keeps_what_the_target_said(caller: Caller, peer: Peer) -> None:
    outcome = ask(caller, peer, answer(503, b'{"why":"full"}', Content_Type="application/json"))
    assert isinstance(outcome, Failed)
    assert outcome.error == "HTTP 503 Service Unavailable"
    assert outcome.result["body"] == {"why": "full"}
    assert outcome.final is False


def test_the_answer_to_head_has_no_body(caller: Caller, peer: Peer) -> None:
    head = wire(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nContent-Encoding: gzip\r\n\r\n")
    outcome = ask(caller, peer, head, method="HEAD")
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] is None
    assert outcome.result["truncated"] is False


# Too much.


@pytest.mark.parametrize(("size", "is_cut"), [(KB - 1, False), (KB, False), (KB + 1, True), (50 * KB, True)])
def test_a_body_is_kept_up_to_the_cap_and_says_when_it_was_cut(
    caller: Caller, peer: Peer, size: int, is_cut: bool
) -> None:
    outcome = ask(caller, peer, answer(200, b"x" * size, Content_Type="text/plain"), max_response_kb=1)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["truncated"] is is_cut
    assert outcome.result["body"] == "x" * min(size, KB)


def test_json_that_was_cut_is_kept_as_text(caller: Caller, peer: Peer) -> None:
    body = json.dumps(["word"] * KB).encode()
    outcome = ask(caller, peer, answer(200, body, Content_Type="application/json"), max_response_kb=1)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == body[:KB].decode()


def test_a_failure_with_an_endless_body_is_cut_too(caller: Caller, peer: Peer) -> None:
    async def script(talk: Talk) -> None:
        await talk.say(b"HTTP/1.1 500 X\r\n\r\n")
        await talk.for_ever(b"x" * KB)

    outcome = ask(caller, peer, script, max_response_kb=1)
    assert isinstance(outcome, Failed)
    assert outcome.error == "HTTP 500 Internal Server Error"
    assert outcome.result["truncated"] is True


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * KB),
    "promised body": (b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", b"x" * KB),
    "chunks": (CHUNKED, b"400\r\n" + b"x" * KB + b"\r\n"),
    "tiny chunks": (CHUNKED, b"1\r\nx\r\n" * 100),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_body_without_end_is_cut_at_the_cap(caller: Caller, peer: Peer, name: str) -> None:
    head, more = ENDLESS[name]

    async def script(talk: Talk) -> None:
        await talk.say(head)
        await talk.for_ever(more)

    outcome = ask(caller, peer, script, max_response_kb=10)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["truncated"] is True
    assert outcome.result["body"] == "x" * 10 * KB


FLOODS = {
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "interim answers with headers": (b"", b"HTTP/1.1 103 X\r\n" + b"Link: y\r\n" * 100 + b"\r\n"),
    "header lines": (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 1000),
    "one header": (b"HTTP/1.1 200 OK\r\nX-A: ", b"b" * 10_000),
    "one header name": (b"HTTP/1.1 200 OK\r\n", b"b" * 10_000),
    "one status line": (b"HTTP/1.1 200 ", b"b" * 10_000),
    "blank lines": (b"", b"\r\n" * 10_000),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_before_the_answer_is_cut_off_long_before_the_deadline(
    caller: Caller, peer: Peer, name: str
) -> None:
    first, more = FLOODS[name]

    async def script(talk: Talk) -> None:
        await talk.say(first)
        await talk.for_ever(more)

    outcome = ask(caller, peer, script)
    assert isinstance(outcome, Failed)
    assert "may be read" in outcome.error or "not HTTP" in outcome.error


CHUNK_FLOODS = {
    "extensions": (b"5", b";a=b" * 1000),
    "extensions without a size": (b"", b";a=b" * 1000),
    "zeros": (b"", b"0" * 10_000),
    "trailers": (b"1\r\nx\r\n0\r\n", b"X-A: b\r\n" * 1000),
    "one trailer": (b"1\r\nx\r\n0\r\nX-A: ", b"b" * 10_000),
}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", CHUNK_FLOODS)
def test_a_flood_that_never_becomes_a_body_is_cut_off(
    caller: Caller, peer: Peer, name: str, apart: bool
) -> None:
    first, more = CHUNK_FLOODS[name]

    async def script(talk: Talk) -> None:
        if apart:
            await talk.say(CHUNKED)
            await talk.pause(0.01)
            await talk.say(first)
        else:
            await talk.say(CHUNKED + first)
        await talk.for_ever(more)

    outcome = ask(caller, peer, script)
    assert isinstance(outcome, Failed) or outcome.result["truncated"] is True


def test_ten_thousand_headers_are_not_an_answer(caller: Caller, peer: Peer) -> None:
    headers = b"".join(b"X-%d: y\r\n" % number for number in range(10_000))
    outcome = ask(caller, peer, wire(b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: 0\r\n\r\n"))
    assert isinstance(outcome, Failed)
    assert "not HTTP" in outcome.error


# Packed.


def deflated(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


GZIP, ZLIB, BARE = 31, 15, -15


@pytest.mark.parametrize(
    ("coding", "wbits"),
    [
        ("gzip", GZIP),
        ("GZIP", GZIP),
        ("x-gzip", GZIP),
        ("deflate", ZLIB),
        ("deflate", BARE),
        ("identity, gzip", GZIP),
    ],
)
def test_one_layer_that_was_not_asked_for_is_unpacked(
    caller: Caller, peer: Peer, coding: str, wbits: int
) -> None:
    outcome = ask(caller, peer, answer(200, deflated(b"hello", wbits), Content_Encoding=coding))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == "hello"
    assert outcome.result["size"] == 5
    assert outcome.result["truncated"] is False


def test_a_packed_answer_in_single_bytes_is_unpacked_whole(caller: Caller, peer: Peer) -> None:
    packed = gzip.compress(b'{"a":"hello"}')

    async def script(talk: Talk) -> None:
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\n\r\n")
        for byte in packed:
            await talk.say(bytes([byte]))

    outcome = ask(caller, peer, script)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == {"a": "hello"}


def test_a_bomb_is_cut_at_the_cap_and_never_grows(caller: Caller, peer: Peer) -> None:
    bomb = gzip.compress(b"0" * 300_000_000, compresslevel=9)
    twice = gzip.compress(bomb)
    tracemalloc.start()
    try:
        first = ask(caller, peer, answer(200, bomb, Content_Encoding="gzip"))
        second = ask(caller, peer, answer(200, twice, Content_Encoding="gzip"))
        third = ask(caller, peer, answer(200, twice, Content_Encoding="gzip, gzip"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(first, Succeeded)
    assert first.result["body"] == "0" * 100 * KB
    assert first.result["truncated"] is True
    assert isinstance(second, Succeeded)
    assert second.result["body"].startswith("<")
    assert isinstance(third, Succeeded)
    assert third.result["body"] is None
    assert peak < 5_000_000


def test_a_packed_answer_that_breaks_off_inside_is_marked(caller: Caller, peer: Peer) -> None:
    packed = deflated(bytes(range(256)) * 4, GZIP)
    outcome = ask(caller, peer, answer(200, packed[:-20], Content_Encoding="gzip"))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["truncated"] is True


# Too slow, and gone.


async def drip(talk: Talk) -> None:
    await talk.say(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        await talk.say(b"x")
        await talk.pause(0.02)


async def drip_headers(talk: Talk) -> None:
    await talk.say(b"HTTP/1.1 200 OK\r\nX-A: ")
    while True:
        await talk.say(b"x")
        await talk.pause(0.02)


@pytest.mark.parametrize("script", [silence, drip, drip_headers], ids=lambda script: script.__name__)
def test_the_deadline_counts_the_whole_answer_and_not_each_byte(
    caller: Caller, peer: Peer, script: Script
) -> None:
    outcome = ask(caller, peer, script, time_limit=SHORTLY)
    assert outcome == TimedOut(error=f"127.0.0.1:{peer.port} gave no complete answer within 0.25s")


async def reset_at_once(talk: Talk) -> None:
    talk.reset()


async def reset_after_headers(talk: Talk) -> None:
    await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    talk.reset()


def test_a_reset_before_the_answer_fails_and_is_not_asked_again(caller: Caller, peer: Peer) -> None:
    for method in ("GET", "PUT", "POST"):
        outcome = ask(caller, peer, reset_at_once, method=method)
        assert isinstance(outcome, Failed)
        assert outcome.error == f"the connection to 127.0.0.1:{peer.port} ended before an answer came"


def test_a_reset_inside_the_answer_fails_and_keeps_what_came(caller: Caller, peer: Peer) -> None:
    outcome = ask(caller, peer, reset_after_headers)
    assert isinstance(outcome, Failed)
    assert "HTTP 200 OK, but the answer broke off" in outcome.error
    assert outcome.result["truncated"] is True


def test_words_after_one_answer_never_reach_the_next_request(caller: Caller, peer: Peer) -> None:
    async def poison(talk: Talk) -> None:
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
        await talk.pause(0.01)
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        await talk.hang_up_waited_for()

    for _ in range(3):
        outcome = ask(caller, peer, poison)
        assert isinstance(outcome, Succeeded)
        assert outcome.result["body"] == "ok"


def test_a_server_that_never_reads_a_large_body_is_left_at_the_deadline(caller: Caller, peer: Peer) -> None:
    with Peer(deaf=True) as deaf:
        outcome = caller.call(Http(url=deaf.url(), method="POST", body="x" * 1_000_000), time_limit=SHORTLY)
        assert isinstance(outcome, TimedOut)
        deaf.until(lambda it: it.connections == 1)


# Kept as data.


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b"1" * 100_000,
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b"/* x */ {}",
        b"a: [b",
    ],
    ids=lambda body: ascii(body[:12]),
)
def test_json_that_cannot_be_kept_as_values_is_kept_as_text(caller: Caller, peer: Peer, body: bytes) -> None:
    outcome = ask(caller, peer, answer(200, body, Content_Type="application/json"))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == body.decode(errors="replace")


def test_a_large_array_is_kept_whole(caller: Caller, peer: Peer) -> None:
    outcome = ask(
        caller,
        peer,
        answer(200, json.dumps(list(range(100_000))).encode(), Content_Type="application/json"),
        max_response_kb=1000,
    )
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == list(range(100_000))


def test_an_array_of_more_values_than_are_read_at_once_is_kept_as_text(caller: Caller, peer: Peer) -> None:
    body = b"[" + b"[]," * MOST_VALUES + b"[]]"
    outcome = ask(caller, peer, answer(200, body, Content_Type="application/json"), max_response_kb=1000)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == body.decode()


# When to come back.


@pytest.mark.parametrize(
    ("written", "wait"),
    [
        ("0", None),
        ("1", timedelta(seconds=1)),
        (" 120 ", timedelta(minutes=2)),
        ("31536001", LONGEST_WAIT),
        ("999999999", LONGEST_WAIT),
        ("9" * 20, LONGEST_WAIT),
        ("9" * 5000, None),
        ("-5", None),
        ("+5", None),
        ("1.5", None),
        ("1e3", None),
        ("١٢", None),
        ("soon", None),
        ("", None),
        ("Tue, 10 Mar 2026 12:00:30 GMT", timedelta(seconds=30)),
        ("Tuesday, 10-Mar-26 12:00:30 GMT", timedelta(seconds=30)),
        ("Tue Mar 10 12:00:30 2026", timedelta(seconds=30)),
        ("Tue, 10 Mar 2026 14:00:30 +0200", timedelta(seconds=30)),
        ("Tue, 10 Mar 2026 11:59:59 GMT", None),
        ("Tue, 10 Mar 2026 12:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
        ("Mon, 32 Foo 2026 99:99:99 GMT", None),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_a_wish_within_reason(written: str, wait: timedelta | None) -> None:
    assert retry_after(written, now=NOON) == (None if wait is None else NOON + wait)


@given(st.text(max_size=60))
def test_no_retry_after_can_break_us(written: str) -> None:
    found = retry_after(written, now=NOON)
    assert found is None or NOON < found <= NOON + LONGEST_WAIT


def test_a_failure_says_when_to_come_back(caller: Caller, peer: Peer) -> None:
    now = caller.clock.now()
    for status in (429, 503, 500):
        outcome = ask(caller, peer, answer(status, Retry_After="90"))
        assert isinstance(outcome, Failed)
        assert outcome.not_before == now + timedelta(seconds=90)
    at = (now + timedelta(hours=1)).replace(microsecond=0)
    outcome = ask(caller, peer, answer(503, Retry_After=f"{at:%a, %d %b %Y %H:%M:%S} GMT"))
    assert isinstance(outcome, Failed)
    assert outcome.not_before == at
