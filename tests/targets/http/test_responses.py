"""Responses, valid and malicious: size limits, decompression, timeouts and stored results."""

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

from tests.targets.http.kit import NOON, HttpCaller
from tests.targets.http.scripted_server import (
    Script,
    ScriptedServer,
    ServerConnection,
    respond,
    send_bytes,
    silence,
)
from timewright.core.run.run import Failed, Outcome, Succeeded, TimedOut
from timewright.core.target import Http
from timewright.targets.http.response import MAX_JSON_VALUES, MAX_RETRY_AFTER, parse_retry_after

CORPUS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "responses.json").read_text("utf-8")
)
SHORTLY = timedelta(seconds=0.25)
KB = 1024


@pytest.fixture(scope="module")
def peer() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture(scope="module")
def caller() -> Iterator[HttpCaller]:
    with HttpCaller() as calling:
        yield calling


def ask(caller: HttpCaller, peer: ScriptedServer, script: Script, **changes: Any) -> Outcome:
    """Send one request to a server with this script, and check that the connection is closed afterwards."""
    limit = changes.pop("time_limit", timedelta(seconds=60))
    peer.scripts["/"] = script
    before = peer.connections
    outcome = caller.call(Http(url=peer.url(), **changes), time_limit=limit)
    peer.wait_until(lambda it: it.now_connected == 0)
    assert peer.connections == before + 1
    return outcome


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_every_response_of_the_corpus_has_the_expected_outcome(
    caller: HttpCaller, peer: ScriptedServer, case: dict[str, Any]
) -> None:
    outcome = ask(caller, peer, send_bytes(case["wire"].encode("latin-1")))
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
def test_every_response_of_the_corpus_in_pieces_ends_in_an_outcome(
    caller: HttpCaller, peer: ScriptedServer, case: dict[str, Any]
) -> None:
    head, gap, rest = case["wire"].encode("latin-1").partition(b"\r\n\r\n")

    async def in_pieces(talk: ServerConnection) -> None:
        await talk.send(head + gap)
        for byte in rest[:40]:
            await talk.pause(0.001)
            await talk.send(bytes([byte]))
        await talk.send(rest[40:])
        await talk.wait_for_disconnect(at_most=0.05)

    outcome = ask(caller, peer, in_pieces)
    assert isinstance(outcome, Succeeded | Failed)
    if case["class"] != "reject-at-run":
        assert isinstance(outcome, Succeeded)


def test_the_result_has_status_duration_body_headers_and_size(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    async def slowly(talk: ServerConnection) -> None:
        caller.clock.advance(seconds=1.5)
        body = b'{"ok":true}'
        head = "HTTP/1.1 201 Made\r\nContent-Type: application/json\r\nETag: x\r\nX-Other: y\r\n"
        await talk.send(f"{head}Set-Cookie: a=b\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

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


def test_a_failure_keeps_the_response(caller: HttpCaller, peer: ScriptedServer) -> None:
    outcome = ask(caller, peer, respond(503, b'{"why":"full"}', Content_Type="application/json"))
    assert isinstance(outcome, Failed)
    assert outcome.error == "HTTP 503 Service Unavailable"
    assert outcome.result["body"] == {"why": "full"}
    assert outcome.final is False


def test_the_response_to_head_has_no_body(caller: HttpCaller, peer: ScriptedServer) -> None:
    head = send_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nContent-Encoding: gzip\r\n\r\n")
    outcome = ask(caller, peer, head, method="HEAD")
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] is None
    assert outcome.result["truncated"] is False


# Size limits.


@pytest.mark.parametrize(("size", "is_cut"), [(KB - 1, False), (KB, False), (KB + 1, True), (50 * KB, True)])
def test_a_body_is_truncated_at_the_limit_and_marked(
    caller: HttpCaller, peer: ScriptedServer, size: int, is_cut: bool
) -> None:
    outcome = ask(caller, peer, respond(200, b"x" * size, Content_Type="text/plain"), max_response_kb=1)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["truncated"] is is_cut
    assert outcome.result["body"] == "x" * min(size, KB)


def test_truncated_json_is_stored_as_text(caller: HttpCaller, peer: ScriptedServer) -> None:
    body = json.dumps(["word"] * KB).encode()
    outcome = ask(caller, peer, respond(200, body, Content_Type="application/json"), max_response_kb=1)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == body[:KB].decode()


def test_the_endless_body_of_a_failure_is_truncated(caller: HttpCaller, peer: ScriptedServer) -> None:
    async def script(talk: ServerConnection) -> None:
        await talk.send(b"HTTP/1.1 500 X\r\n\r\n")
        await talk.send_forever(b"x" * KB)

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
def test_an_endless_body_is_truncated_at_the_limit(
    caller: HttpCaller, peer: ScriptedServer, name: str
) -> None:
    head, more = ENDLESS[name]

    async def script(talk: ServerConnection) -> None:
        await talk.send(head)
        await talk.send_forever(more)

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
def test_endless_data_before_a_response_is_cut_off_before_the_deadline(
    caller: HttpCaller, peer: ScriptedServer, name: str
) -> None:
    first, more = FLOODS[name]

    async def script(talk: ServerConnection) -> None:
        await talk.send(first)
        await talk.send_forever(more)

    outcome = ask(caller, peer, script)
    assert isinstance(outcome, Failed)
    assert "more than allowed" in outcome.error or "invalid HTTP" in outcome.error


CHUNK_FLOODS = {
    "extensions": (b"5", b";a=b" * 1000),
    "extensions without a size": (b"", b";a=b" * 1000),
    "zeros": (b"", b"0" * 10_000),
    "trailers": (b"1\r\nx\r\n0\r\n", b"X-A: b\r\n" * 1000),
    "one trailer": (b"1\r\nx\r\n0\r\nX-A: ", b"b" * 10_000),
}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", CHUNK_FLOODS)
def test_endless_data_outside_a_body_is_cut_off(
    caller: HttpCaller, peer: ScriptedServer, name: str, apart: bool
) -> None:
    first, more = CHUNK_FLOODS[name]

    async def script(talk: ServerConnection) -> None:
        if apart:
            await talk.send(CHUNKED)
            await talk.pause(0.01)
            await talk.send(first)
        else:
            await talk.send(CHUNKED + first)
        await talk.send_forever(more)

    outcome = ask(caller, peer, script)
    assert isinstance(outcome, Failed) or outcome.result["truncated"] is True


def test_ten_thousand_headers_are_an_invalid_response(caller: HttpCaller, peer: ScriptedServer) -> None:
    headers = b"".join(b"X-%d: y\r\n" % number for number in range(10_000))
    outcome = ask(caller, peer, send_bytes(b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: 0\r\n\r\n"))
    assert isinstance(outcome, Failed)
    assert "invalid HTTP" in outcome.error


# Compression.


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
def test_an_unrequested_content_encoding_is_decompressed(
    caller: HttpCaller, peer: ScriptedServer, coding: str, wbits: int
) -> None:
    outcome = ask(caller, peer, respond(200, deflated(b"hello", wbits), Content_Encoding=coding))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == "hello"
    assert outcome.result["size"] == 5
    assert outcome.result["truncated"] is False


def test_a_compressed_response_in_single_bytes_is_decompressed(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    packed = gzip.compress(b'{"a":"hello"}')

    async def script(talk: ServerConnection) -> None:
        await talk.send(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\n\r\n"
        )
        for byte in packed:
            await talk.send(bytes([byte]))

    outcome = ask(caller, peer, script)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == {"a": "hello"}


def test_a_decompression_bomb_is_truncated_at_the_limit(caller: HttpCaller, peer: ScriptedServer) -> None:
    bomb = gzip.compress(b"0" * 300_000_000, compresslevel=9)
    twice = gzip.compress(bomb)
    tracemalloc.start()
    try:
        first = ask(caller, peer, respond(200, bomb, Content_Encoding="gzip"))
        second = ask(caller, peer, respond(200, twice, Content_Encoding="gzip"))
        third = ask(caller, peer, respond(200, twice, Content_Encoding="gzip, gzip"))
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


def test_an_incomplete_compressed_response_is_marked(caller: HttpCaller, peer: ScriptedServer) -> None:
    packed = deflated(bytes(range(256)) * 4, GZIP)
    outcome = ask(caller, peer, respond(200, packed[:-20], Content_Encoding="gzip"))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["truncated"] is True


# Timeouts and resets.


async def drip(talk: ServerConnection) -> None:
    await talk.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        await talk.send(b"x")
        await talk.pause(0.02)


async def drip_headers(talk: ServerConnection) -> None:
    await talk.send(b"HTTP/1.1 200 OK\r\nX-A: ")
    while True:
        await talk.send(b"x")
        await talk.pause(0.02)


@pytest.mark.parametrize("script", [silence, drip, drip_headers], ids=lambda script: script.__name__)
def test_the_deadline_covers_the_whole_response(
    caller: HttpCaller, peer: ScriptedServer, script: Script
) -> None:
    outcome = ask(caller, peer, script, time_limit=SHORTLY)
    assert outcome == TimedOut(error=f"127.0.0.1:{peer.port} sent no complete response within 0.25s")


async def reset_at_once(talk: ServerConnection) -> None:
    talk.reset()


async def reset_after_headers(talk: ServerConnection) -> None:
    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    talk.reset()


def test_a_reset_before_the_response_fails_and_is_not_retried(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    for method in ("GET", "PUT", "POST"):
        outcome = ask(caller, peer, reset_at_once, method=method)
        assert isinstance(outcome, Failed)
        assert outcome.error == f"the connection to 127.0.0.1:{peer.port} closed before a response arrived"


def test_a_reset_inside_the_response_fails_and_keeps_the_partial_body(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    outcome = ask(caller, peer, reset_after_headers)
    assert isinstance(outcome, Failed)
    assert "HTTP 200 OK, but the connection closed" in outcome.error
    assert outcome.result["truncated"] is True


def test_bytes_after_one_response_never_reach_the_next_request(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    async def poison(talk: ServerConnection) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
        await talk.pause(0.01)
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        await talk.wait_for_disconnect()

    for _ in range(3):
        outcome = ask(caller, peer, poison)
        assert isinstance(outcome, Succeeded)
        assert outcome.result["body"] == "ok"


def test_a_server_that_never_reads_the_body_times_out(caller: HttpCaller, peer: ScriptedServer) -> None:
    with ScriptedServer(never_reads=True) as server:
        outcome = caller.call(Http(url=server.url(), method="POST", body="x" * 1_000_000), time_limit=SHORTLY)
        assert isinstance(outcome, TimedOut)
        server.wait_until(lambda it: it.connections == 1)


# Stored results.


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
def test_json_that_cannot_be_stored_as_values_is_stored_as_text(
    caller: HttpCaller, peer: ScriptedServer, body: bytes
) -> None:
    outcome = ask(caller, peer, respond(200, body, Content_Type="application/json"))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == body.decode(errors="replace")


def test_a_large_array_is_stored_completely(caller: HttpCaller, peer: ScriptedServer) -> None:
    outcome = ask(
        caller,
        peer,
        respond(200, json.dumps(list(range(100_000))).encode(), Content_Type="application/json"),
        max_response_kb=1000,
    )
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == list(range(100_000))


def test_a_json_array_with_too_many_values_is_stored_as_text(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    body = b"[" + b"[]," * MAX_JSON_VALUES + b"[]]"
    outcome = ask(caller, peer, respond(200, body, Content_Type="application/json"), max_response_kb=1000)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == body.decode()


# Retry-After.


@pytest.mark.parametrize(
    ("written", "wait"),
    [
        ("0", None),
        ("1", timedelta(seconds=1)),
        (" 120 ", timedelta(minutes=2)),
        ("31536001", MAX_RETRY_AFTER),
        ("999999999", MAX_RETRY_AFTER),
        ("9" * 20, MAX_RETRY_AFTER),
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
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
        ("Mon, 32 Foo 2026 99:99:99 GMT", None),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_limited_to_a_year(written: str, wait: timedelta | None) -> None:
    assert parse_retry_after(written, now=NOON) == (None if wait is None else NOON + wait)


@given(st.text(max_size=60))
def test_any_retry_after_is_parsed_or_ignored(written: str) -> None:
    found = parse_retry_after(written, now=NOON)
    assert found is None or NOON < found <= NOON + MAX_RETRY_AFTER


def test_retry_after_sets_the_earliest_retry(caller: HttpCaller, peer: ScriptedServer) -> None:
    now = caller.clock.now()
    for status in (429, 503, 500):
        outcome = ask(caller, peer, respond(status, Retry_After="90"))
        assert isinstance(outcome, Failed)
        assert outcome.not_before == now + timedelta(seconds=90)
    at = (now + timedelta(hours=1)).replace(microsecond=0)
    outcome = ask(caller, peer, respond(503, Retry_After=f"{at:%a, %d %b %Y %H:%M:%S} GMT"))
    assert isinstance(outcome, Failed)
    assert outcome.not_before == at
