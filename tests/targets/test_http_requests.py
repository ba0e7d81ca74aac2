"""Requests: what is refused when a schedule is written, what travels along, and where redirects lead."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.targets.calls import NOON, Caller, Names, launch_of
from tests.targets.peers import Heard, Peer, answer, moved, wire
from timewright.core.run import Failed, Succeeded
from timewright.core.target import Http
from timewright.errors import InvalidInput
from timewright.targets.http_failure import NoAnswer
from timewright.targets.http_request import (
    Hop,
    Redirect,
    check_http,
    first_hop,
    next_hop,
    prepare,
)
from timewright.targets.signing import Revealed
from timewright.targets.urls import parse_url

DATA = Path(__file__).parent / "data"
SITE = "https://example.com/hook"
KEY = "key-of-the-hook"


def corpus(name: str, wanted: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return [case for case in cases if case["class"] == wanted]


def headers_of(case: dict[str, Any]) -> dict[str, str]:
    padded = {name: value + "a" * case.get("pad", 0) for name, value in case["headers"].items()}
    return padded | {f"X-{number}": "a" for number in range(case.get("many", 0))}


def body_of(case: dict[str, Any]) -> Any:
    if "pad" in case:
        return "a" * case["pad"]
    body = case.get("body")
    for _ in range(case.get("nest", 0)):
        body = [body]
    return body


def unsigned(body: bytes) -> dict[str, str]:
    return {}


def secrets(namespace: str, name: str) -> str:
    return {"token": "canary-token", "key": KEY}[name]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer({"/": answer(200)}) as running:
        yield running


@pytest.fixture
def caller() -> Iterator[Caller]:
    names = Names({"one.test": [["127.0.0.1"]], "two.test": [["127.0.0.1"]]})
    with Caller(resolver=names, secrets=secrets) as calling:
        yield calling


# What is refused.


@pytest.mark.parametrize("case", corpus("headers", "reject-at-create"), ids=lambda case: ascii(case)[:70])
def test_a_header_that_cannot_be_sent_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=SITE, headers=headers_of(case)))
    assert str(caught.value.field).startswith("target.headers")
    assert caught.value.rule
    assert caught.value.fix


@pytest.mark.parametrize("case", corpus("headers", "accept"), ids=lambda case: ascii(case)[:70])
def test_a_header_that_can_be_sent_is_accepted(case: dict[str, Any]) -> None:
    check_http(Http(url=SITE, headers=headers_of(case)))


@pytest.mark.parametrize("case", corpus("bodies", "reject-at-create"), ids=lambda case: ascii(case)[:70])
def test_a_body_that_cannot_be_sent_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=SITE, method=case["method"], body=body_of(case)))
    assert caught.value.field == "target.body"
    assert caught.value.rule
    assert len(caught.value.message) < 500


def test_the_value_of_a_refused_header_is_not_repeated() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=SITE, headers={"Authorization": "Bearer canary\n"}))
    assert "canary" not in caught.value.explain() + str(caught.value.value)


@pytest.mark.parametrize("written", ["canary", "", "Bearer secret://key", "secret://"])
def test_a_signing_key_is_named_and_never_written_down(written: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=SITE, sign_with=written))
    assert caught.value.field == "target.sign_with"
    assert "canary" not in caught.value.explain()


def test_a_target_that_was_stored_wrong_fails_for_good(caller: Caller) -> None:
    outcome = caller.call(Http(url="http://127.1/"))
    assert isinstance(outcome, Failed)
    assert outcome.final
    assert "odd spelling" in outcome.error


# What is sent.


@pytest.mark.parametrize("case", corpus("bodies", "accept"), ids=lambda case: ascii(case)[:70])
def test_a_body_arrives_as_it_was_written(caller: Caller, peer: Peer, case: dict[str, Any]) -> None:
    outcome = caller.call(Http(url=peer.url(), method=case["method"], body=case["body"]))
    assert isinstance(outcome, Succeeded)
    heard = peer.heard[0]
    assert heard.method == case["method"]
    assert heard.body.decode() == (case["sent"] or "")
    if case["body"] is None:
        assert "content-type" not in heard.headers
    elif isinstance(case["body"], str):
        assert heard.headers["content-type"] == "text/plain; charset=utf-8"
    else:
        assert heard.headers["content-type"] == "application/json"


def test_a_content_type_that_is_given_stays(caller: Caller, peer: Peer) -> None:
    caller.call(Http(url=peer.url(), method="POST", body={"a": 1}, headers={"content-type": "text/x"}))
    assert [value for name, value in peer.heard[0].pairs if name.lower() == "content-type"] == ["text/x"]


def test_every_request_says_who_asks_and_for_which_run(caller: Caller, peer: Peer) -> None:
    caller.call(Http(url=peer.url("/?a=1&b=%2f"), headers={"X-Mine": "yes"}))
    heard = peer.heard[0]
    assert heard.path == "/?a=1&b=%2f"
    said = {name: value for name, value in heard.headers.items() if name != "user-agent"}
    assert said == {
        "host": f"127.0.0.1:{peer.port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
        "x-mine": "yes",
        "idempotency-key": "5f0c",
        "x-timewright-run": "run_1",
        "x-timewright-schedule": "sch_1",
        "x-timewright-planned-at": "2026-03-10T12:00:00Z",
        "x-timewright-fence": "7",
        "x-timewright-attempt": "2",
    }
    assert heard.headers["user-agent"].startswith("timewright")


def test_headers_of_the_user_come_before_our_habits(caller: Caller, peer: Peer) -> None:
    mine = {"USER-AGENT": "mine", "accept": "text/plain", "Accept-Encoding": "gzip"}
    caller.call(Http(url=peer.url(), headers=mine))
    heard = peer.heard[0].headers
    assert (heard["user-agent"], heard["accept"], heard["accept-encoding"]) == ("mine", "text/plain", "gzip")


def test_a_run_of_a_queue_names_no_schedule(caller: Caller, peer: Peer) -> None:
    caller.call(Http(url=peer.url()), schedule_id="")
    assert "x-timewright-schedule" not in peer.heard[0].headers


def test_cookies_are_not_kept(caller: Caller, peer: Peer) -> None:
    peer.scripts["/"] = answer(200, Set_Cookie="a=b; Path=/")
    caller.call(Http(url=peer.url(host="one.test")))
    caller.call(Http(url=peer.url(host="one.test")))
    assert "cookie" not in peer.heard[1].headers


# Secrets.


def test_a_secret_is_filled_in_when_the_request_leaves(caller: Caller, peer: Peer) -> None:
    named = {"Authorization": "Bearer secret://token", "X-Key": "secret://token"}
    outcome = caller.call(Http(url=peer.url(), headers=named))
    assert isinstance(outcome, Succeeded)
    assert peer.heard[0].headers["authorization"] == "Bearer canary-token"
    assert peer.heard[0].headers["x-key"] == "canary-token"


def test_a_missing_secret_fails_and_names_only_its_reference(peer: Peer) -> None:
    target = Http(url=peer.url(), headers={"X-Key": "secret://gone"})
    for lookup in (secrets, None):
        with Caller(secrets=lookup) as caller:
            outcome = caller.call(target)
        assert isinstance(outcome, Failed)
        assert "secret://gone" in outcome.error
        assert outcome.final is False
    assert peer.heard == []


def test_an_answer_that_repeats_a_secret_is_kept_without_it(caller: Caller, peer: Peer) -> None:
    target = Http(url=peer.url(), headers={"X-Key": "secret://token"})
    echo = json.dumps({"headers": {"x-key": "canary-token"}, "list": ["a canary-token b"]}).encode()
    for status, kind in ((200, "application/json"), (500, "text/plain"), (200, "text/html")):
        peer.scripts["/"] = answer(status, echo, Content_Type=kind, X_Request_Id="canary-token")
        outcome = caller.call(target)
        assert "canary" not in str(outcome)
        assert "secret://token" in str(outcome)


@pytest.mark.parametrize(
    "said",
    [
        b"canary-token\r\n\r\n",
        b"HTTP/1.1 canary-token\r\n\r\n",
        b"HTTP/1.1 200 canary-token\r\nContent-Length: canary-token\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: \0canary-token\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncanary-token\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: " + b"canary-token" * 1000 + b"\r\n\r\n",
        b"HTTP/1.1 307 X\r\nLocation: http://canary-token@127.0.0.1/\r\n\r\n",
        b"HTTP/1.1 307 X\r\nLocation: ftp://canary-token/\r\n\r\n",
        b"HTTP/1.1 307 X\r\nLocation: http://canary-token.test/\r\n\r\n",
        b"HTTP/1.1 307 X\r\nLocation: /a canary-token\r\n\r\n",
    ],
    ids=lambda said: ascii(said)[:60],
)
def test_an_answer_that_makes_no_sense_is_not_quoted(caller: Caller, peer: Peer, said: bytes) -> None:
    peer.scripts["/"] = wire(said)
    outcome = caller.call(Http(url=peer.url(), headers={"X-Key": "secret://token"}, redirects=1))
    assert isinstance(outcome, Failed)
    assert "canary" not in str(outcome)


def test_an_answer_cut_inside_a_secret_keeps_none_of_it(caller: Caller, peer: Peer) -> None:
    peer.scripts["/"] = answer(200, b"x" * 1017 + b"canary-token" + b"y" * 100)
    outcome = caller.call(Http(url=peer.url(), headers={"X-Key": "secret://token"}, max_response_kb=1))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == "x" * 1017


# Signature.


def signed_right(heard: Heard) -> bool:
    message = heard.headers["x-timewright-timestamp"].encode() + b"." + heard.body
    digest = hmac.new(KEY.encode(), message, hashlib.sha256).hexdigest()
    return heard.headers["x-timewright-signature"] == f"v1={digest}"


@pytest.mark.parametrize("body", [None, "text", {"a": 1}])
def test_a_signature_fits_the_bytes_that_arrive(caller: Caller, peer: Peer, body: Any) -> None:
    caller.call(Http(url=peer.url(), method="POST", body=body, sign_with="secret://key"))
    assert peer.heard[0].headers["x-timewright-timestamp"] == str(int(NOON.timestamp()))
    assert signed_right(peer.heard[0])
    assert KEY not in str(peer.heard[0].pairs)


def test_without_a_key_nothing_is_signed(caller: Caller, peer: Peer) -> None:
    caller.call(Http(url=peer.url()))
    assert not [name for name in peer.heard[0].headers if "signature" in name or "timestamp" in name]


# Redirects.


def test_redirects_are_off_unless_asked_for(caller: Caller, peer: Peer) -> None:
    peer.scripts["/"] = moved(302, "/next")
    outcome = caller.call(Http(url=peer.url()))
    assert isinstance(outcome, Failed)
    assert outcome.error == "HTTP 302 Found, a redirect that is not followed"
    assert outcome.result["headers"]["location"] == "/next"
    assert len(peer.heard) == 1


def test_redirects_are_followed_as_often_as_allowed_and_no_oftener(caller: Caller, peer: Peer) -> None:
    peer.scripts |= {f"/{step}": moved(307, f"/{step + 1}") for step in range(5)}
    peer.scripts["/3"] = answer(200, b"end")
    arrived = caller.call(Http(url=peer.url("/0"), redirects=3))
    assert isinstance(arrived, Succeeded)
    assert arrived.result["body"] == "end"
    stopped = caller.call(Http(url=peer.url("/0"), redirects=2))
    assert isinstance(stopped, Failed)
    assert stopped.error == "HTTP 307 Temporary Redirect, a redirect that is not followed"
    assert [heard.path for heard in peer.heard] == ["/0", "/1", "/2", "/3", "/0", "/1", "/2"]


def test_a_loop_of_redirects_ends(caller: Caller, peer: Peer) -> None:
    peer.scripts["/"] = moved(301, "/")
    assert isinstance(caller.call(Http(url=peer.url(), redirects=3)), Failed)
    assert len(peer.heard) == 4


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (302, "GET", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
    ],
)
def test_a_redirect_keeps_method_and_body_only_if_it_says_so(
    caller: Caller, peer: Peer, status: int, method: Any, then: str
) -> None:
    peer.scripts |= {"/": moved(status, "/next"), "/next": answer(200)}
    body = None if method in ("GET", "HEAD") else {"a": 1}
    caller.call(Http(url=peer.url(), method=method, body=body, redirects=1, sign_with="secret://key"))
    first, second = peer.heard
    assert second.method == then
    assert second.body == (first.body if then == method else b"")
    assert ("content-type" in second.headers) is bool(second.body)
    assert signed_right(second)


def test_the_same_origin_is_told_everything_again(caller: Caller, peer: Peer) -> None:
    peer.scripts |= {"/": moved(307, "/next"), "/next": answer(200)}
    target = Http(url=peer.url(), headers={"Authorization": "secret://token"}, redirects=1)
    caller.call(target)
    assert peer.heard[1].headers == peer.heard[0].headers


SAFE = {"host", "accept", "accept-encoding", "user-agent", "content-type", "connection", "content-length"}


@pytest.mark.parametrize("status", [302, 307])
def test_another_origin_is_told_nothing_but_what_anyone_may_know(
    caller: Caller, peer: Peer, status: int
) -> None:
    with Peer({"/": answer(200)}) as other:
        peer.scripts["/"] = moved(status, other.url())
        target = Http(
            url=peer.url(),
            method="POST",
            body={"a": 1},
            headers={
                "Authorization": "Bearer secret://token",
                "X-Anything": "canary-literal",
                "Accept": "secret://token",
                "User-Agent": "mine",
                "Cookie": "canary-cookie",
            },
            redirects=1,
            sign_with="secret://key",
        )
        assert isinstance(caller.call(target), Succeeded)
        told = other.heard[0]
        assert set(told.headers) <= SAFE
        assert "canary" not in str(told.pairs)
        assert told.headers["user-agent"] == "mine"
        assert told.body == (b"" if status == 302 else b'{"a":1}')


def test_what_was_dropped_once_does_not_come_back(caller: Caller, peer: Peer) -> None:
    there, back = peer.url("/there", host="two.test"), peer.url("/back")
    peer.scripts |= {"/": moved(307, there), "/there": moved(307, back), "/back": answer(200)}
    caller.call(Http(url=peer.url(), headers={"X-Key": "secret://token"}, redirects=3))
    assert [heard.path for heard in peer.heard] == ["/", "/there", "/back"]
    assert "x-key" in peer.heard[0].headers
    assert "canary" not in str(peer.heard[1].pairs) + str(peer.heard[2].pairs)


def hop_to(url: str) -> Hop:
    ready = prepare(Http(url=url, headers={"X-Key": "secret://token"}))
    revealed = Revealed({"token": "canary"})
    return first_hop(ready, launch_of(Http(url=url)), revealed=revealed, agent="a", signed=unsigned)


@pytest.mark.parametrize("location", ["http://example.com/", "//example.com:80", "http://other.example/"])
def test_a_redirect_never_leaves_tls(location: str) -> None:
    if location.startswith("//"):
        assert next_hop(hop_to(SITE), Redirect(307, location), signed=unsigned).url.scheme == "https"
        return
    with pytest.raises(NoAnswer, match="from https only to https"):
        next_hop(hop_to(SITE), Redirect(307, location), signed=unsigned)


@pytest.mark.parametrize(
    "location",
    [
        "ftp://x/",
        "javascript:alert(1)",
        "http://a@b/",
        "https://[::1",
        "https://x\\y/",
        "http://127.1/",
        "/a b",
        "ht\ttp://x/",
        "/\udcff",
    ],
)
def test_a_redirect_to_what_is_no_plain_url_is_refused(location: str) -> None:
    with pytest.raises(NoAnswer, match="redirect refused"):
        next_hop(hop_to("http://example.com/"), Redirect(307, location), signed=unsigned)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("next", "https://example.com/next"),
        ("/a?b#fragment", "https://example.com/a?b"),
        ("?q", "https://example.com/hook?q"),
        ("//example.com/x", "https://example.com/x"),
        ("https://EXAMPLE.com:443/y", "https://example.com/y"),
    ],
)
def test_a_redirect_is_read_from_where_it_came(location: str, url: str) -> None:
    hop = next_hop(hop_to(SITE), Redirect(308, location), signed=unsigned)
    assert hop.url == parse_url(url)
    assert hop.headers["X-Key"] == "canary"


def test_an_upgrade_to_tls_is_another_origin() -> None:
    hop = next_hop(hop_to("http://example.com/"), Redirect(301, SITE), signed=unsigned)
    assert "X-Key" not in hop.headers
