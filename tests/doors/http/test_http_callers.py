"""Who comes in, and as whom: keys, roles, namespaces, and a browser with a session."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.doors.http.visitor import HOST, Answer, Visitor, visiting
from tests.operations.house import House
from timewright.doors.http.places import Place, places_of
from timewright.doors.http.turns import Turns
from timewright.errors import OverQuota, StoreFull
from timewright.operations import operations
from timewright.operations.access import ROLES, Caller, authenticate, doorkeeper_of

PLACES = [place for one in operations for place in places_of(one)]


def made_key(house: House, name: str, **fields: object) -> str:
    token: str = house.ask("key create", key=name, **fields)["token"]
    return token


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def spelled(place: Place) -> str:
    return place.template.replace("{", "").replace("}", "")


@pytest.fixture
def stranger(house: House) -> Iterator[Visitor]:
    """Someone who has shown nothing yet."""
    with visiting(house, caller=None) as found:
        yield found


@pytest.fixture
def token(house: House) -> str:
    return made_key(house, "admin", role="admin")


def test_every_route_but_one_asks_who_is_there(stranger: Visitor, house: House) -> None:
    assert stranger.ask("GET", "/healthz").status == 200
    asked = [(place.method, spelled(place)) for place in PLACES]
    asked += [
        ("GET", path)
        for path in ("/readyz", "/overdue", "/metrics", "/openapi.json", "/docs", "/", "/nothing")
    ]
    asked += [
        ("GET", "/api/v1/events"),
        ("POST", "/session/links"),
        ("OPTIONS", "/api/v1/schedules"),
        ("BREW", "/x"),
    ]
    for method, path in asked:
        house.sleep(seconds=2)
        answer = stranger.ask(method, path)
        assert (answer.status, answer.data["code"]) == (401, "unauthorized"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")


def forged(header: dict[str, object], claims: dict[str, object], signature: str = "") -> str:
    """A token of another kind, as someone would forge it."""
    parts = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)
    )
    return ".".join([*parts, signature])


def wrong_ones(token: str) -> list[str]:
    """Everything an attacker or a broken client may send for `Authorization`."""
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


def test_what_is_not_a_key_in_force_opens_nothing_and_is_refused_in_the_same_words(
    stranger: Visitor, house: House, token: str
) -> None:
    revoked = made_key(house, "gone", role="admin")
    house.ask("key revoke", key="gone")
    brief = made_key(house, "brief", role="admin", expires_in="1h")
    house.sleep(hours=2)
    said = set()
    for one in [*wrong_ones(token), f"Bearer {revoked}", f"Bearer {brief}"]:
        house.sleep(seconds=2)
        said.add(stranger.ask("GET", "/api/v1/schedules", headers={"authorization": one}).body)
    assert len(said) == 1
    assert json.loads(said.pop())["code"] == "unauthorized"


def test_whoever_guesses_too_often_is_told_to_wait_and_locks_nobody_else_out(
    stranger: Visitor, house: House, token: str
) -> None:
    said = [stranger.ask("GET", "/api/v1/health", headers=bearer("tw_x_y")).status for _ in range(40)]
    assert (said[0], said[-1]) == (401, 429)
    waiting = stranger.ask("GET", "/api/v1/health", headers=bearer("tw_x_y"))
    assert waiting.headers["retry-after"] == "1"
    assert stranger.ask("GET", "/api/v1/health", headers=bearer(token)).status == 200
    house.sleep(seconds=30)
    assert stranger.ask("GET", "/api/v1/health", headers=bearer("tw_x_y")).status == 401


def test_requests_are_counted_by_key_and_those_beyond_are_told_when_to_come(
    stranger: Visitor, house: House, token: str
) -> None:
    house.ask("namespace set", name="default", requests_per_minute=2)
    said = [stranger.ask("GET", "/api/v1/health", headers=bearer(token)) for _ in range(4)]
    assert [answer.status for answer in said] == [200, 200, 429, 429]
    assert said[-1].headers["retry-after"] == "30"
    other = made_key(house, "other", role="viewer")
    assert stranger.ask("GET", "/api/v1/health", headers=bearer(other)).status == 200


def test_requests_are_counted_in_the_namespace_of_the_key(stranger: Visitor, house: House) -> None:
    house.ask("namespace create", name="small", requests_per_minute=1)
    headers = bearer(made_key(house, "s", role="viewer", within=["small"]))
    assert [stranger.ask("GET", "/api/v1/health", headers=headers).status for _ in range(2)] == [200, 429]


def test_one_caller_has_so_many_requests_under_way_and_others_are_not_held_up() -> None:
    turns, one, other = Turns(most=2), Caller(actor="one", key="k1"), Caller(actor="other", key="k2")
    mine = [turns.take(one), turns.take(one)]
    with pytest.raises(OverQuota):
        turns.take(one)
    turns.leave(turns.take(other))
    turns.leave(mine.pop())
    mine.append(turns.take(one))
    for whose in mine:
        turns.leave(whose)
    assert not turns._under_way


def test_two_keys_at_once_are_no_key(stranger: Visitor, token: str) -> None:
    twice = [("host", HOST), ("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")]
    assert stranger.send("GET", "/api/v1/schedules", b"", twice).status == 401


def test_the_word_before_a_key_may_be_in_any_case(stranger: Visitor, token: str) -> None:
    for word in ("Bearer", "bearer", "BEARER"):
        assert (
            stranger.ask("GET", "/api/v1/health", headers={"authorization": f"{word} {token}"}).status == 200
        )


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_role_opens_exactly_the_places_of_its_scopes(stranger: Visitor, house: House, role: str) -> None:
    headers = bearer(made_key(house, f"a-{role}", role=role, within=["*"]))
    for place in PLACES:
        body: dict[str, str] | None = {} if place.takes == "body" else None
        answer = stranger.ask(
            place.method, spelled(place) + "?dry_run=true" * (not place.operation.reads_only), body, headers
        )
        allowed = place.operation.scope in ROLES[role]  # type: ignore[index]
        assert (answer.status != 403) is allowed, (place.operation.name, answer.data)


def test_a_key_sees_its_namespaces_and_nothing_of_the_others(stranger: Visitor, house: House) -> None:
    house.elsewhere("team-b").ask("schedule create", name="secret-plan", every="1h", note="x")
    headers = bearer(made_key(house, "b", role="editor", within=["team-b"]))
    assert [
        row["name"] for row in stranger.ask("GET", "/api/v1/schedules", headers=headers).data["schedules"]
    ] == ["secret-plan"]
    foreign = stranger.ask("GET", "/api/v1/schedules/nightly-report", headers=headers)
    never = stranger.ask("GET", "/api/v1/schedules/never-was-one", headers=headers)
    assert (foreign.status, never.status) == (404, 404)
    assert "sch_" not in foreign.body.decode()
    other = {**headers, "timewright-namespace": "default"}
    assert stranger.ask("GET", "/api/v1/schedules", headers=other).status == 403
    assert stranger.ask("GET", "/overdue?namespace=default", headers=headers).status == 403
    assert stranger.ask("GET", "/api/v1/events?namespace=default", headers=headers).status == 403


def test_a_key_of_several_namespaces_says_which(stranger: Visitor, house: House) -> None:
    headers = bearer(made_key(house, "two", role="viewer", within=["default", "team-b"]))
    named = stranger.ask("GET", "/api/v1/schedules", headers={**headers, "timewright-namespace": "team-b"})
    assert named.data["schedules"] == []
    assert len(stranger.ask("GET", "/api/v1/schedules", headers=headers).data["schedules"]) > 1


def let_in(stranger: Visitor, house: House, token: str) -> tuple[Answer, str]:
    """Open a link as a browser does; what came back, and the cookie."""
    link = stranger.ask("POST", "/session/links", headers=bearer(token)).data["link"]
    answer = stranger.ask("GET", link)
    return answer, answer.headers["set-cookie"].split(";")[0]


def test_a_link_lets_a_browser_in_once(stranger: Visitor, house: House, token: str) -> None:
    link = stranger.ask("POST", "/session/links", headers=bearer(token)).data["link"]
    answer = stranger.ask("GET", link)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert token not in cookie
    again = stranger.ask("GET", link)
    assert (again.status, "set-cookie" in again.headers) == (401, False)


def test_a_link_that_is_old_or_made_up_lets_nobody_in(stranger: Visitor, house: House, token: str) -> None:
    link = stranger.ask("POST", "/session/links", headers=bearer(token)).data["link"]
    house.sleep(minutes=6)
    for path in (link, "/?key=", "/?key=x", "/?key=" + "x" * 5000, "/?key=a&key=b"):
        assert stranger.ask("GET", path).status == 401


def test_a_session_reads_and_needs_its_token_to_write(stranger: Visitor, house: House, token: str) -> None:
    _, cookie = let_in(stranger, house, token)
    _, other = let_in(stranger, house, token)
    csrf = stranger.ask("GET", "/session", headers={"cookie": cookie}).data["csrf"]
    theirs = stranger.ask("GET", "/session", headers={"cookie": other}).data["csrf"]
    assert stranger.ask("GET", "/api/v1/schedules", headers={"cookie": cookie}).status == 200
    path = "/api/v1/schedules/nightly-report/pause"
    for shown in (None, "", "x", theirs, csrf[:-1], csrf + "x"):
        answer = stranger.ask("POST", path, {}, {"cookie": cookie, "timewright-csrf": shown})
        assert (answer.status, answer.data["code"]) == (403, "csrf"), shown
    assert stranger.ask("POST", path, {}, {"cookie": cookie, "timewright-csrf": csrf}).status == 200


def test_no_route_that_changes_anything_works_by_a_cookie_alone(
    stranger: Visitor, house: House, token: str
) -> None:
    _, cookie = let_in(stranger, house, token)
    for place in PLACES:
        if place.method != "GET":
            answer = stranger.ask(place.method, spelled(place), {}, {"cookie": cookie})
            assert answer.data["code"] == "csrf", place.template
    for method, path in (("DELETE", "/session"), ("POST", "/session/links")):
        assert stranger.ask(method, path, headers={"cookie": cookie}).data["code"] == "csrf"


def test_a_cookie_that_was_touched_is_no_session(stranger: Visitor, house: House, token: str) -> None:
    _, cookie = let_in(stranger, house, token)
    name, _, value = cookie.partition("=")
    key, until, nonce, signature = value.split(".")
    for touched in (
        f"{key}x.{until}.{nonce}.{signature}",
        f"{key}.{int(until) + 1}.{nonce}.{signature}",
        f"{key}.{until}.{nonce[::-1]}.{signature}",
        f"{key}.{until}.{nonce}.",
        f"{key}.{until}.{nonce}.{'0' * 64}",
        "",
        "x" * 5000,
        "a.b.c.d",
    ):
        assert stranger.ask("GET", "/session", headers={"cookie": f"{name}={touched}"}).status == 401, touched
    assert stranger.ask("GET", "/session", headers={"cookie": f"timewright_1={value}"}).status == 401


def test_a_session_ends_with_its_time_and_with_its_key(stranger: Visitor, house: House, token: str) -> None:
    _, cookie = let_in(stranger, house, token)
    house.ask("key revoke", key="admin")
    assert stranger.ask("GET", "/session", headers={"cookie": cookie}).status == 401
    second = made_key(house, "second", role="viewer")
    _, cookie = let_in(stranger, house, second)
    assert stranger.ask("GET", "/session", headers={"cookie": cookie}).data["scopes"] == ["read"]
    house.sleep(hours=13)
    assert stranger.ask("GET", "/session", headers={"cookie": cookie}).status == 401


def test_to_leave_takes_the_cookie_away(stranger: Visitor, house: House, token: str) -> None:
    _, cookie = let_in(stranger, house, token)
    csrf = stranger.ask("GET", "/session", headers={"cookie": cookie}).data["csrf"]
    gone = stranger.ask("DELETE", "/session", headers={"cookie": cookie, "timewright-csrf": csrf})
    assert (gone.status, "Max-Age=0" in gone.headers["set-cookie"]) == (204, True)


def test_a_person_without_a_way_in_is_told_in_a_page_and_a_program_in_data(stranger: Visitor) -> None:
    page = stranger.ask("GET", "/", headers={"accept": "text/html,*/*"})
    assert (page.status, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "timewright up" in page.body.decode()
    assert stranger.ask("GET", "/", headers={"accept": "*/*"}).data["code"] == "unauthorized"


def test_the_last_use_of_a_key_is_kept(stranger: Visitor, house: House, token: str) -> None:
    assert house.ask("key get", key="admin")["key"]["used_at"] is None
    stranger.ask("GET", "/api/v1/health", headers=bearer(token))
    assert house.ask("key get", key="admin")["key"]["used_at"] is not None


def test_a_store_that_takes_no_writes_is_still_read(
    stranger: Visitor, house: House, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise StoreFull("no room left")

    monkeypatch.setattr(house.store, "write", full)
    assert stranger.ask("GET", "/api/v1/schedules", headers=bearer(token)).status == 200
    answer = stranger.ask("POST", "/api/v1/schedules/nightly-report/pause", {}, bearer(token))
    assert (answer.status, answer.data["code"]) == (507, "store_full")


def test_a_key_is_nowhere_in_what_is_answered(stranger: Visitor, house: House, token: str) -> None:
    asked = ["/api/v1/keys", "/api/v1/keys/admin", "/api/v1/audit", "/session", "/openapi.json"]
    secret = token.split("_", 2)[2]
    for path in asked:
        assert secret not in stranger.ask("GET", path, headers=bearer(token)).body.decode()


def test_a_link_is_that_of_the_caller_who_asked(house: House) -> None:
    viewer = authenticate(house.context, made_key(house, "v", role="viewer"))
    token = doorkeeper_of(house.context).new_link(viewer, now=house.now)
    assert re.fullmatch(r"[\w-]{43}", token)
    assert doorkeeper_of(house.context).redeem(token, now=house.now + timedelta(minutes=1)) == viewer
