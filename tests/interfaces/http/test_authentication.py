"""Authentication: keys, roles, namespaces, login links and sessions."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.interfaces.http.http_client import (
    HOST,
    HttpAnswer,
    HttpTestClient,
    bearer,
    client_for,
    create_key,
)
from tests.operations.harness import OperationsHarness
from timewright.errors import OverQuota, StoreFull
from timewright.interfaces.http.app import ConcurrencyLimit
from timewright.interfaces.http.routing import Route, routes_of
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES, Caller, authenticate, require_auth_cache

ROUTES = [route for one in operations for route in routes_of(one)]


def path_of(route: Route) -> str:
    return route.template.replace("{", "").replace("}", "")


@pytest.fixture
def anonymous(harness: OperationsHarness) -> Iterator[HttpTestClient]:
    """A client without credentials."""
    with client_for(harness, caller=None) as found:
        yield found


@pytest.fixture
def token(harness: OperationsHarness) -> str:
    return create_key(harness, "admin", role="admin")


def test_every_route_except_healthz_requires_authentication(
    anonymous: HttpTestClient, harness: OperationsHarness
) -> None:
    assert anonymous.request("GET", "/healthz").status == 200
    asked = [(route.method, path_of(route)) for route in ROUTES]
    asked += [
        ("GET", path)
        for path in ("/readyz", "/overdue", "/metrics", "/openapi.json", "/docs", "/", "/nothing")
    ]
    asked += [
        ("GET", "/api/v1/events"),
        ("POST", "/session/links"),
        ("OPTIONS", "/api/v1/schedules"),
        ("FETCH", "/x"),
    ]
    for method, path in asked:
        harness.sleep(seconds=2)
        answer = anonymous.request(method, path)
        assert (answer.status, answer.data["code"]) == (401, "unauthorized"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")


def forged(header: dict[str, object], claims: dict[str, object], signature: str = "") -> str:
    """Return a forged JWT."""
    parts = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)
    )
    return ".".join([*parts, signature])


def wrong_ones(token: str) -> list[str]:
    """Return invalid Authorization headers."""
    prefix = "_".join(token.split("_")[:2])
    claims: dict[str, object] = {"sub": "admin", "exp": 2**40}
    tokens = [forged({"alg": word}, claims) for word in ("none", "None", "nOnE", "HS256", "RS256")]
    tokens += [forged({"alg": "HS256", "kid": "../../dev/null"}, claims, "x")]
    tokens += [forged({"alg": "RS256", "jku": "http://evil.example", "x5u": "x"}, claims, "x")]
    tokens += [forged({"alg": "none"}, {"exp": exp}) for exp in (-1, 10**30)]
    tokens += [
        token[:-1],
        token + "x",
        token[: len(prefix)],
        prefix,
        prefix + "_",
        token.upper(),
        f"{prefix}_{'x' * 43}",
    ]
    tokens += [
        "tw",
        "tw_",
        "tw__",
        "tw_x_y",
        "_",
        "x" * 1_000_000,
        "\u00ff" * 20,
        token.replace("_", "-"),
        "%s%n",
        "' or 1=1 --",
    ]
    odd = [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer  {token}",
        f"Bearer {token} ",
        f" Bearer {token}",
        f"Bearer\t{token}",
    ]
    odd += [f"Basic {token}", token, f"Bearer {token},Bearer {token}", f'Bearer "{token}"', f"Token {token}"]
    return [f"Bearer {one}" for one in tokens] + odd


def test_every_invalid_key_gets_the_same_error(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    revoked = create_key(harness, "gone", role="admin")
    harness.ask("key revoke", key="gone")
    brief = create_key(harness, "brief", role="admin", expires_in="1h")
    harness.sleep(hours=2)
    said = set()
    for one in [*wrong_ones(token), f"Bearer {revoked}", f"Bearer {brief}"]:
        harness.sleep(seconds=2)
        said.add(anonymous.request("GET", "/api/v1/schedules", headers={"authorization": one}).body)
    assert len(said) == 1
    assert json.loads(said.pop())["code"] == "unauthorized"


def test_failed_keys_are_rate_limited_without_locking_out_others(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    said = [anonymous.request("GET", "/api/v1/health", headers=bearer("tw_x_y")).status for _ in range(40)]
    assert (said[0], said[-1]) == (401, 429)
    waiting = anonymous.request("GET", "/api/v1/health", headers=bearer("tw_x_y"))
    assert waiting.headers["retry-after"] == "1"
    assert anonymous.request("GET", "/api/v1/health", headers=bearer(token)).status == 200
    harness.sleep(seconds=30)
    assert anonymous.request("GET", "/api/v1/health", headers=bearer("tw_x_y")).status == 401


def test_requests_over_the_quota_of_a_key_get_retry_after(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    harness.ask("namespace set", name="default", requests_per_minute=2)
    said = [anonymous.request("GET", "/api/v1/health", headers=bearer(token)) for _ in range(4)]
    assert [answer.status for answer in said] == [200, 200, 429, 429]
    assert said[-1].headers["retry-after"] == "30"
    other = create_key(harness, "other", role="viewer")
    assert anonymous.request("GET", "/api/v1/health", headers=bearer(other)).status == 200


def test_requests_count_against_the_namespace_of_the_key(
    anonymous: HttpTestClient, harness: OperationsHarness
) -> None:
    harness.ask("namespace create", name="small", requests_per_minute=1)
    headers = bearer(create_key(harness, "s", role="viewer", within=["small"]))
    assert [anonymous.request("GET", "/api/v1/health", headers=headers).status for _ in range(2)] == [
        200,
        429,
    ]


def test_concurrent_requests_are_limited_per_caller() -> None:
    limit, one, other = (
        ConcurrencyLimit(max_requests=2),
        Caller(actor="one", key="k1"),
        Caller(actor="other", key="k2"),
    )
    mine = [limit.acquire(one), limit.acquire(one)]
    with pytest.raises(OverQuota):
        limit.acquire(one)
    limit.release(limit.acquire(other))
    limit.release(mine.pop())
    mine.append(limit.acquire(one))
    for whose in mine:
        limit.release(whose)
    assert not limit._in_progress


def test_two_authorization_headers_are_refused(anonymous: HttpTestClient, token: str) -> None:
    twice = [("host", HOST), ("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")]
    assert anonymous.send("GET", "/api/v1/schedules", b"", twice).status == 401


def test_the_bearer_scheme_is_case_insensitive(anonymous: HttpTestClient, token: str) -> None:
    for word in ("Bearer", "bearer", "BEARER"):
        assert (
            anonymous.request("GET", "/api/v1/health", headers={"authorization": f"{word} {token}"}).status
            == 200
        )


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_role_permits_exactly_the_routes_of_its_scopes(
    anonymous: HttpTestClient, harness: OperationsHarness, role: str
) -> None:
    headers = bearer(create_key(harness, f"a-{role}", role=role, within=["*"]))
    for route in ROUTES:
        body: dict[str, str] | None = {} if route.input_from == "body" else None
        answer = anonymous.request(
            route.method, path_of(route) + "?dry_run=true" * (not route.operation.read_only), body, headers
        )
        # Without a scope in the body, these two pause and resume the whole installation.
        needed = "admin" if route.operation.name in ("pause", "resume") else route.operation.scope
        allowed = needed in ROLES[role]  # type: ignore[index]
        assert (answer.status != 403) is allowed, (route.operation.name, answer.data)


def test_a_key_only_sees_its_namespaces(anonymous: HttpTestClient, harness: OperationsHarness) -> None:
    harness.in_namespace("team-b").ask("schedule create", name="secret-plan", every="1h", note="x")
    headers = bearer(create_key(harness, "b", role="editor", within=["team-b"]))
    assert [
        row["name"]
        for row in anonymous.request("GET", "/api/v1/schedules", headers=headers).data["schedules"]
    ] == ["secret-plan"]
    foreign = anonymous.request("GET", "/api/v1/schedules/nightly-report", headers=headers)
    never = anonymous.request("GET", "/api/v1/schedules/never-was-one", headers=headers)
    assert (foreign.status, never.status) == (404, 404)
    assert "sch_" not in foreign.body.decode()
    other = {**headers, "timewright-namespace": "default"}
    assert anonymous.request("GET", "/api/v1/schedules", headers=other).status == 403
    assert anonymous.request("GET", "/overdue?namespace=default", headers=headers).status == 403
    assert anonymous.request("GET", "/api/v1/events?namespace=default", headers=headers).status == 403


def test_a_key_with_several_namespaces_must_select_one(
    anonymous: HttpTestClient, harness: OperationsHarness
) -> None:
    headers = bearer(create_key(harness, "two", role="viewer", within=["default", "team-b"]))
    named = anonymous.request(
        "GET", "/api/v1/schedules", headers={**headers, "timewright-namespace": "team-b"}
    )
    assert named.data["schedules"] == []
    assert len(anonymous.request("GET", "/api/v1/schedules", headers=headers).data["schedules"]) > 1


def let_in(anonymous: HttpTestClient, harness: OperationsHarness, token: str) -> tuple[HttpAnswer, str]:
    """Open a login link; return the response and the cookie."""
    link = anonymous.request("POST", "/session/links", headers=bearer(token)).data["link"]
    answer = anonymous.request("GET", link)
    return answer, answer.headers["set-cookie"].split(";")[0]


def test_a_login_link_works_once(anonymous: HttpTestClient, harness: OperationsHarness, token: str) -> None:
    link = anonymous.request("POST", "/session/links", headers=bearer(token)).data["link"]
    answer = anonymous.request("GET", link)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert token not in cookie
    again = anonymous.request("GET", link)
    assert (again.status, "set-cookie" in again.headers) == (401, False)


def test_an_expired_or_forged_login_link_is_refused(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    link = anonymous.request("POST", "/session/links", headers=bearer(token)).data["link"]
    harness.sleep(minutes=6)
    for path in (link, "/?key=", "/?key=x", "/?key=" + "x" * 5000, "/?key=a&key=b"):
        assert anonymous.request("GET", path).status == 401


def test_a_session_needs_the_csrf_token_to_write(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    _, cookie = let_in(anonymous, harness, token)
    _, other = let_in(anonymous, harness, token)
    csrf = anonymous.request("GET", "/session", headers={"cookie": cookie}).data["csrf"]
    theirs = anonymous.request("GET", "/session", headers={"cookie": other}).data["csrf"]
    assert anonymous.request("GET", "/api/v1/schedules", headers={"cookie": cookie}).status == 200
    path = "/api/v1/schedules/nightly-report/pause"
    for shown in (None, "", "x", theirs, csrf[:-1], csrf + "x"):
        answer = anonymous.request("POST", path, {}, {"cookie": cookie, "timewright-csrf": shown})
        assert (answer.status, answer.data["code"]) == (403, "csrf"), shown
    assert anonymous.request("POST", path, {}, {"cookie": cookie, "timewright-csrf": csrf}).status == 200


def test_no_write_route_works_with_the_cookie_alone(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    _, cookie = let_in(anonymous, harness, token)
    for route in ROUTES:
        if route.method != "GET":
            answer = anonymous.request(route.method, path_of(route), {}, {"cookie": cookie})
            assert answer.data["code"] == "csrf", route.template
    for method, path in (("DELETE", "/session"), ("POST", "/session/links")):
        assert anonymous.request(method, path, headers={"cookie": cookie}).data["code"] == "csrf"


def test_a_modified_cookie_is_refused(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    _, cookie = let_in(anonymous, harness, token)
    name, _, value = cookie.partition("=")
    session, signature = value.split(".")
    for touched in (
        f"{session}x.{signature}",
        f"{session[::-1]}.{signature}",
        f"{session}.",
        f"{session}.{'0' * 64}",
        "",
        "x" * 5000,
        "a.b.c.d",
    ):
        assert anonymous.request("GET", "/session", headers={"cookie": f"{name}={touched}"}).status == 401, (
            touched
        )
    assert anonymous.request("GET", "/session", headers={"cookie": f"timewright_1={value}"}).status == 401


def test_a_session_ends_when_it_expires_or_its_key_is_revoked(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    _, cookie = let_in(anonymous, harness, token)
    harness.ask("key revoke", key="admin")
    assert anonymous.request("GET", "/session", headers={"cookie": cookie}).status == 401
    second = create_key(harness, "second", role="viewer")
    _, cookie = let_in(anonymous, harness, second)
    assert anonymous.request("GET", "/session", headers={"cookie": cookie}).data["scopes"] == ["read"]
    harness.sleep(hours=13)
    assert anonymous.request("GET", "/session", headers={"cookie": cookie}).status == 401


def test_a_session_lasts_while_it_is_used_and_at_most_30_days(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    _, cookie = let_in(anonymous, harness, token)
    for _ in range(71):
        harness.sleep(hours=10)
        assert anonymous.request("GET", "/session", headers={"cookie": cookie}).status == 200
    harness.sleep(hours=10)
    assert anonymous.request("GET", "/session", headers={"cookie": cookie}).status == 401


def test_a_session_is_started_with_a_key_and_not_with_a_wrong_one(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    form = [*anonymous.headers.items(), ("content-type", "application/x-www-form-urlencoded")]
    wrong = anonymous.send("POST", "/", b"key=tw_wrong", form)
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    answer = anonymous.send("POST", "/", f"key={token}".encode(), form)
    cookie = answer.headers["set-cookie"].split(";")[0]
    assert answer.status == 303
    assert token not in cookie
    shown = harness.ask("session list", all=True)["sessions"]
    assert [one["actor"] for one in shown] == ["admin"]
    harness.ask("session end", session=shown[0]["id"])
    assert anonymous.request("GET", "/session", headers={"cookie": cookie}).status == 401


def test_logging_out_removes_the_cookie(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    _, cookie = let_in(anonymous, harness, token)
    csrf = anonymous.request("GET", "/session", headers={"cookie": cookie}).data["csrf"]
    gone = anonymous.request("DELETE", "/session", headers={"cookie": cookie, "timewright-csrf": csrf})
    assert (gone.status, "Max-Age=0" in gone.headers["set-cookie"]) == (204, True)


def test_an_unauthenticated_browser_gets_a_page_and_a_program_gets_json(anonymous: HttpTestClient) -> None:
    page = anonymous.request("GET", "/", headers={"accept": "text/html,*/*"})
    assert (page.status, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "timewright dashboard" in page.body.decode()
    assert page.headers["referrer-policy"] == "same-origin"  # its form is sent with our origin, not `null`
    assert anonymous.request("GET", "/", headers={"accept": "*/*"}).data["code"] == "unauthorized"


def test_the_last_use_of_a_key_is_saved(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str
) -> None:
    assert harness.ask("key get", key="admin")["key"]["used_at"] is None
    anonymous.request("GET", "/api/v1/health", headers=bearer(token))
    assert harness.ask("key get", key="admin")["key"]["used_at"] is not None


def test_reads_work_while_the_store_refuses_writes(
    anonymous: HttpTestClient, harness: OperationsHarness, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise StoreFull("disk full")

    monkeypatch.setattr(harness.store, "write", full)
    assert anonymous.request("GET", "/api/v1/schedules", headers=bearer(token)).status == 200
    answer = anonymous.request("POST", "/api/v1/schedules/nightly-report/pause", {}, bearer(token))
    assert (answer.status, answer.data["code"]) == (507, "store_full")


def test_no_answer_contains_a_key(anonymous: HttpTestClient, harness: OperationsHarness, token: str) -> None:
    asked = ["/api/v1/keys", "/api/v1/keys/admin", "/api/v1/audit", "/session", "/openapi.json"]
    secret = token.split("_", 2)[2]
    for path in asked:
        assert secret not in anonymous.request("GET", path, headers=bearer(token)).body.decode()


def test_a_login_link_belongs_to_its_caller(harness: OperationsHarness) -> None:
    viewer = authenticate(harness.context, create_key(harness, "v", role="viewer"))
    token = require_auth_cache(harness.context).create_login_link(viewer, now=harness.now)
    assert re.fullmatch(r"[\w-]{43}", token)
    assert (
        require_auth_cache(harness.context).redeem_login_link(token, now=harness.now + timedelta(minutes=1))
        == viewer
    )
