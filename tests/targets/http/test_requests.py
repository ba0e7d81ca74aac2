"""Requests: validation, headers, secrets, signatures and redirects."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.targets.http.kit import NOON, FakeResolver, HttpCaller, launch_of
from tests.targets.http.scripted_server import ReceivedRequest, ScriptedServer, redirect, respond, send_bytes
from timewright.core.run.run import Failed, Succeeded
from timewright.core.target import Http, SecretDestination
from timewright.errors import InvalidInput
from timewright.targets.http.connector import RequestFailed
from timewright.targets.http.egress import parse_url
from timewright.targets.http.request import (
    Redirect,
    RequestHop,
    add_payload,
    check_http,
    first_hop,
    next_hop,
    prepare_request,
)
from timewright.targets.secret_references import RevealedSecrets

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


def secrets(namespace: str, name: str, destination: SecretDestination) -> str:
    return {"token": "canary-token", "key": KEY}[name]


@pytest.fixture
def peer() -> Iterator[ScriptedServer]:
    with ScriptedServer({"/": respond(200)}) as running:
        yield running


@pytest.fixture
def caller() -> Iterator[HttpCaller]:
    names = FakeResolver({"one.test": [["127.0.0.1"]], "two.test": [["127.0.0.1"]]})
    with HttpCaller(resolver=names, secrets=secrets) as calling:
        yield calling


# Validation.


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


def test_the_value_of_a_refused_header_is_not_shown() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=SITE, headers={"Authorization": "Bearer canary\n"}))
    assert "canary" not in caught.value.explain() + str(caught.value.value)


@pytest.mark.parametrize("written", ["canary", "", "Bearer secret://key", "secret://"])
def test_a_signing_key_must_be_a_reference(written: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=SITE, sign_with=written))
    assert caught.value.field == "target.sign_with"
    assert "canary" not in caught.value.explain()


def test_an_invalid_stored_target_fails_finally(caller: HttpCaller) -> None:
    outcome = caller.call(Http(url="http://127.1/"))
    assert isinstance(outcome, Failed)
    assert outcome.final
    assert "non-standard form" in outcome.error


# Headers and body.


@pytest.mark.parametrize("case", corpus("bodies", "accept"), ids=lambda case: ascii(case)[:70])
def test_a_body_arrives_unchanged(caller: HttpCaller, peer: ScriptedServer, case: dict[str, Any]) -> None:
    outcome = caller.call(Http(url=peer.url(), method=case["method"], body=case["body"]))
    assert isinstance(outcome, Succeeded)
    request = peer.requests[0]
    assert request.method == case["method"]
    assert request.body.decode() == (case["sent"] or "")
    if case["body"] is None:
        assert "content-type" not in request.headers
    elif isinstance(case["body"], str):
        assert request.headers["content-type"] == "text/plain; charset=utf-8"
    else:
        assert request.headers["content-type"] == "application/json"


def test_a_given_content_type_is_not_replaced(caller: HttpCaller, peer: ScriptedServer) -> None:
    caller.call(Http(url=peer.url(), method="POST", body={"a": 1}, headers={"content-type": "text/x"}))
    assert [value for name, value in peer.requests[0].pairs if name.lower() == "content-type"] == ["text/x"]


def test_every_request_has_identity_headers(caller: HttpCaller, peer: ScriptedServer) -> None:
    caller.call(Http(url=peer.url("/?a=1&b=%2f"), headers={"X-Mine": "yes"}))
    request = peer.requests[0]
    assert request.path == "/?a=1&b=%2f"
    headers = {name: value for name, value in request.headers.items() if name != "user-agent"}
    assert headers == {
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
    assert request.headers["user-agent"].startswith("timewright")


def test_user_headers_replace_default_headers(caller: HttpCaller, peer: ScriptedServer) -> None:
    mine = {"USER-AGENT": "mine", "accept": "text/plain", "Accept-Encoding": "gzip"}
    caller.call(Http(url=peer.url(), headers=mine))
    request = peer.requests[0].headers
    assert (request["user-agent"], request["accept"], request["accept-encoding"]) == (
        "mine",
        "text/plain",
        "gzip",
    )


def test_a_queue_run_has_no_schedule_header(caller: HttpCaller, peer: ScriptedServer) -> None:
    caller.call(Http(url=peer.url()), schedule_id="")
    assert "x-timewright-schedule" not in peer.requests[0].headers


def test_cookies_are_not_stored(caller: HttpCaller, peer: ScriptedServer) -> None:
    peer.scripts["/"] = respond(200, Set_Cookie="a=b; Path=/")
    caller.call(Http(url=peer.url(host="one.test")))
    caller.call(Http(url=peer.url(host="one.test")))
    assert "cookie" not in peer.requests[1].headers


# Secrets.


def test_a_secret_is_filled_in_when_the_request_is_sent(caller: HttpCaller, peer: ScriptedServer) -> None:
    named = {"Authorization": "Bearer secret://token", "X-Key": "secret://token"}
    outcome = caller.call(Http(url=peer.url(), headers=named))
    assert isinstance(outcome, Succeeded)
    assert peer.requests[0].headers["authorization"] == "Bearer canary-token"
    assert peer.requests[0].headers["x-key"] == "canary-token"


def test_a_missing_secret_fails_and_names_only_its_reference(peer: ScriptedServer) -> None:
    target = Http(url=peer.url(), headers={"X-Key": "secret://gone"})
    for lookup in (secrets, None):
        with HttpCaller(secrets=lookup) as caller:
            outcome = caller.call(target)
        assert isinstance(outcome, Failed)
        assert "secret://gone" in outcome.error
        assert outcome.final is False
    assert peer.requests == []


def test_a_secret_in_a_response_is_redacted(caller: HttpCaller, peer: ScriptedServer) -> None:
    target = Http(url=peer.url(), headers={"X-Key": "secret://token"})
    echo = json.dumps({"headers": {"x-key": "canary-token"}, "list": ["a canary-token b"]}).encode()
    for status, kind in ((200, "application/json"), (500, "text/plain"), (200, "text/html")):
        peer.scripts["/"] = respond(status, echo, Content_Type=kind, X_Request_Id="canary-token")
        outcome = caller.call(target)
        assert "canary" not in str(outcome)
        assert "secret://token" in str(outcome)


@pytest.mark.parametrize(
    "headers",
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
    ids=lambda headers: ascii(headers)[:60],
)
def test_an_invalid_response_is_not_quoted(caller: HttpCaller, peer: ScriptedServer, headers: bytes) -> None:
    peer.scripts["/"] = send_bytes(headers)
    outcome = caller.call(Http(url=peer.url(), headers={"X-Key": "secret://token"}, redirects=1))
    assert isinstance(outcome, Failed)
    assert "canary" not in str(outcome)


def test_a_response_truncated_inside_a_secret_keeps_no_part_of_it(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    peer.scripts["/"] = respond(200, b"x" * 1017 + b"canary-token" + b"y" * 100)
    outcome = caller.call(Http(url=peer.url(), headers={"X-Key": "secret://token"}, max_response_kb=1))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == "x" * 1017


# Signature.


def signed_right(request: ReceivedRequest) -> bool:
    message = request.headers["x-timewright-timestamp"].encode() + b"." + request.body
    digest = hmac.new(KEY.encode(), message, hashlib.sha256).hexdigest()
    return request.headers["x-timewright-signature"] == f"v1={digest}"


@pytest.mark.parametrize("body", [None, "text", {"a": 1}])
def test_a_signature_matches_the_received_body(caller: HttpCaller, peer: ScriptedServer, body: Any) -> None:
    caller.call(Http(url=peer.url(), method="POST", body=body, sign_with="secret://key"))
    assert peer.requests[0].headers["x-timewright-timestamp"] == str(int(NOON.timestamp()))
    assert signed_right(peer.requests[0])
    assert KEY not in str(peer.requests[0].pairs)


def test_without_a_key_there_is_no_signature(caller: HttpCaller, peer: ScriptedServer) -> None:
    caller.call(Http(url=peer.url()))
    assert not [name for name in peer.requests[0].headers if "signature" in name or "timestamp" in name]


# Redirects.


def test_redirects_are_off_by_default(caller: HttpCaller, peer: ScriptedServer) -> None:
    peer.scripts["/"] = redirect(302, "/next")
    outcome = caller.call(Http(url=peer.url()))
    assert isinstance(outcome, Failed)
    assert outcome.error == "HTTP 302 Found, redirect not followed"
    assert outcome.result["headers"]["location"] == "/next"
    assert len(peer.requests) == 1


def test_redirects_are_followed_up_to_the_limit(caller: HttpCaller, peer: ScriptedServer) -> None:
    peer.scripts |= {f"/{step}": redirect(307, f"/{step + 1}") for step in range(5)}
    peer.scripts["/3"] = respond(200, b"end")
    arrived = caller.call(Http(url=peer.url("/0"), redirects=3))
    assert isinstance(arrived, Succeeded)
    assert arrived.result["body"] == "end"
    stopped = caller.call(Http(url=peer.url("/0"), redirects=2))
    assert isinstance(stopped, Failed)
    assert stopped.error == "HTTP 307 Temporary Redirect, redirect not followed"
    assert [request.path for request in peer.requests] == ["/0", "/1", "/2", "/3", "/0", "/1", "/2"]


def test_a_loop_of_redirects_ends(caller: HttpCaller, peer: ScriptedServer) -> None:
    peer.scripts["/"] = redirect(301, "/")
    assert isinstance(caller.call(Http(url=peer.url(), redirects=3)), Failed)
    assert len(peer.requests) == 4


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
def test_a_redirect_keeps_method_and_body_for_307_and_308_only(
    caller: HttpCaller, peer: ScriptedServer, status: int, method: Any, then: str
) -> None:
    peer.scripts |= {"/": redirect(status, "/next"), "/next": respond(200)}
    body = None if method in ("GET", "HEAD") else {"a": 1}
    caller.call(Http(url=peer.url(), method=method, body=body, redirects=1, sign_with="secret://key"))
    first, second = peer.requests
    assert second.method == then
    assert second.body == (first.body if then == method else b"")
    assert ("content-type" in second.headers) is bool(second.body)
    assert signed_right(second)


def test_the_same_origin_gets_all_headers_again(caller: HttpCaller, peer: ScriptedServer) -> None:
    peer.scripts |= {"/": redirect(307, "/next"), "/next": respond(200)}
    target = Http(url=peer.url(), headers={"Authorization": "secret://token"}, redirects=1)
    caller.call(target)
    assert peer.requests[1].headers == peer.requests[0].headers


SAFE = {"host", "accept", "accept-encoding", "user-agent", "content-type", "connection", "content-length"}


@pytest.mark.parametrize("status", [302, 307])
def test_another_origin_gets_shareable_headers_only(
    caller: HttpCaller, peer: ScriptedServer, status: int
) -> None:
    with ScriptedServer({"/": respond(200)}) as other:
        peer.scripts["/"] = redirect(status, other.url())
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
        received = other.requests[0]
        assert set(received.headers) <= SAFE
        assert "canary" not in str(received.pairs)
        assert received.headers["user-agent"] == "mine"
        assert received.body == (b"" if status == 302 else b'{"a":1}')


def test_a_header_dropped_by_a_redirect_is_not_sent_again(caller: HttpCaller, peer: ScriptedServer) -> None:
    there, back = peer.url("/there", host="two.test"), peer.url("/back")
    peer.scripts |= {"/": redirect(307, there), "/there": redirect(307, back), "/back": respond(200)}
    caller.call(Http(url=peer.url(), headers={"X-Key": "secret://token"}, redirects=3))
    assert [request.path for request in peer.requests] == ["/", "/there", "/back"]
    assert "x-key" in peer.requests[0].headers
    assert "canary" not in str(peer.requests[1].pairs) + str(peer.requests[2].pairs)


def hop_to(url: str) -> RequestHop:
    ready = prepare_request(Http(url=url, headers={"X-Key": "secret://token"}))
    revealed = RevealedSecrets({"token": "canary"})
    return first_hop(ready, launch_of(Http(url=url)), revealed=revealed, agent="a", sign=unsigned)


@pytest.mark.parametrize("location", ["http://example.com/", "//example.com:80", "http://other.example/"])
def test_a_redirect_never_leaves_tls(location: str) -> None:
    if location.startswith("//"):
        assert next_hop(hop_to(SITE), Redirect(307, location), sign=unsigned).url.scheme == "https"
        return
    with pytest.raises(RequestFailed, match="a redirect from https must lead to https"):
        next_hop(hop_to(SITE), Redirect(307, location), sign=unsigned)


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
def test_a_redirect_to_an_invalid_url_is_refused(location: str) -> None:
    with pytest.raises(RequestFailed, match="redirect refused"):
        next_hop(hop_to("http://example.com/"), Redirect(307, location), sign=unsigned)


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
def test_a_relative_redirect_is_resolved_against_the_current_url(location: str, url: str) -> None:
    hop = next_hop(hop_to(SITE), Redirect(308, location), sign=unsigned)
    assert hop.url == parse_url(url)
    assert hop.headers["X-Key"] == "canary"


def test_an_upgrade_to_tls_is_another_origin() -> None:
    hop = next_hop(hop_to("http://example.com/"), Redirect(301, SITE), sign=unsigned)
    assert "X-Key" not in hop.headers


# The payload of a manual run.


def test_a_payload_is_the_body_and_two_objects_become_one() -> None:
    post = Http(url=SITE, method="POST", body={"day": "today", "full": True})
    assert add_payload(post, {"day": "monday"}).body == {"day": "monday", "full": True}
    assert add_payload(post, [1]).body == [1]
    assert add_payload(Http(url=SITE, method="PUT"), {"id": 7}).body == {"id": 7}
    assert add_payload(post, None) is post


def test_a_payload_is_refused_where_no_body_can_be_sent_and_if_it_names_a_secret() -> None:
    with pytest.raises(InvalidInput, match="cannot be sent with GET"):
        add_payload(Http(url=SITE, method="GET"), {"id": 7})
    with pytest.raises(InvalidInput, match="refers to a secret"):
        add_payload(Http(url=SITE, method="POST"), {"id": "secret://token"})


def test_the_payload_of_a_run_is_sent(peer: ScriptedServer, caller: HttpCaller) -> None:
    target = Http(url=peer.url(), method="POST", body={"day": "today"})
    outcome = caller.call(target, payload={"id": 7})
    assert isinstance(outcome, Succeeded)
    assert json.loads(peer.requests[0].body) == {"day": "today", "id": 7}
