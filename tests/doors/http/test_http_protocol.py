"""How HTTP is spoken here: strict bodies, problems, revisions, repeats, pages, and protecting headers."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.doors.http.visitor import HOST, Answer, Visitor, visiting
from tests.operations.house import House
from timewright import errors
from timewright.doors.http.asked import LARGEST_BODY, LONGEST_QUERY
from timewright.doors.http.problems import STATUS, status_of
from timewright.errors import TimewrightError
from timewright.operations import operations
from timewright.operations.repeats import KEPT_FOR, forget

CREATE = "/api/v1/schedules"
ONE = "/api/v1/schedules/nightly-report"


def send_json(visitor: Visitor, raw: bytes, kind: str = "application/json", **more: str) -> Answer:
    headers = [("host", HOST), ("content-type", kind), *more.items()]
    return visitor.send("POST", CREATE, raw, headers)


BAD_JSON = {
    "nothing at all": b"",
    "half": b'{"name": "x"',
    "two objects": b'{"name": "x"} {"name": "y"}',
    "lines": b'{"name": "x"}\n{"name": "y"}',
    "a comment": b'{"name": "x" /* y */}',
    "a last comma": b'{"name": "x",}',
    "YAML": b"name: x",
    "a key twice": b'{"name": "x", "name": "y"}',
    "a key twice inside": b'{"name": "x", "metadata": {"a": 1, "a": 2}}',
    "not UTF-8": b'{"name": "\xff"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "a BOM": b'\xef\xbb\xbf{"name": "x"}',
    "NaN": b'{"max_runs": NaN}',
    "Infinity": b'{"max_runs": -Infinity}',
    "too large a number": b'{"max_runs": 1e400}',
    "a number without end": b'{"max_runs": ' + b"9" * 1_000_000 + b"}",
    "too deep": b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "too deep in objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "control characters": b'{"name": "a\nb"}',
    "a form": b"name=x&every=5m",
}


@pytest.mark.parametrize("raw", BAD_JSON.values(), ids=BAD_JSON.keys())
def test_a_body_that_is_not_json_is_refused(visitor: Visitor, raw: bytes) -> None:
    answer = send_json(visitor, raw)
    assert (answer.status, answer.data["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("raw", [b"[]", b"1", b"null", b'"x"', b"true", b"[[[[{}]]]]"])
def test_a_body_is_an_object(visitor: Visitor, raw: bytes) -> None:
    assert send_json(visitor, raw).status == 422


ODD_FIELDS: list[dict[str, Any]] = [
    {"__proto__": {"admin": True}},
    {"constructor": {"prototype": 1}},
    {"name": "x", "every": "5m", "note": "x", "namespace": "other"},
    {"name": "x", "every": "5m", "note": "x", "id": "sch_01KKBXWX00EXAMPLE0LEASED00"},
    {"name": "\ud800"},
    {"name": "x", "metadata": {"\ud800": 1}},
    {"name": "x\0"},
    {"name": {"$gt": ""}},
    {"name": ["x"]},
    {"name": None},
    {"name": "x" * 300},
    {"metadata": {"n": 2**70}},
    {"every": -1},
    {"priority": True},
]


@pytest.mark.parametrize("fields", ODD_FIELDS, ids=range(len(ODD_FIELDS)))
def test_odd_fields_are_refused_by_the_operation_in_its_own_words(
    visitor: Visitor, house: House, fields: dict[str, Any]
) -> None:
    answer = visitor.ask("POST", CREATE, fields)
    with pytest.raises(TimewrightError) as refusal:
        operations["schedule create"](house.context, fields)
    assert answer.status == 422
    assert (answer.data["code"], answer.data["detail"]) == (
        refusal.value.code,
        refusal.value.message.encode("utf-8", "replace").decode(),
    )


@pytest.mark.parametrize(
    "text", ["{{7*7}}", "${jndi:ldap://x}", "%s%n", "<img src=x onerror=1>", "=cmd|' /C calc'!A0"]
)
def test_text_is_text(visitor: Visitor, text: str) -> None:
    answer = visitor.ask("POST", CREATE, {"name": text, "every": "5m", "note": text})
    assert answer.status == 201
    assert answer.data["schedule"]["name"] == text
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin-1",
        "application/json, text/plain",
        "text/json",
        "application/jsonp",
        "application/problem+json",
        "",
    ],
)
def test_only_json_is_read(visitor: Visitor, kind: str) -> None:
    answer = send_json(visitor, b'{"name": "x"}', kind)
    assert (answer.status, answer.data["code"]) == (415, "unsupported_media_type")


def test_json_may_say_its_charset_and_a_write_without_words_needs_no_body(visitor: Visitor) -> None:
    assert (
        send_json(
            visitor, b'{"name":"x","every":"5m","note":"x"}', 'Application/JSON; charset="UTF-8"'
        ).status
        == 201
    )
    assert visitor.send("POST", f"{ONE}/pause", b"", [("host", HOST)]).status == 200


def test_a_compressed_body_is_refused(visitor: Visitor) -> None:
    said = {"content-encoding": "gzip"}
    assert send_json(visitor, b"\x1f\x8b", **said).status == 415


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(visitor: Visitor) -> None:
    assert send_json(visitor, b"{}", **{"content-length": str(LARGEST_BODY + 1)}).status == 413
    assert send_json(visitor, b" " * (LARGEST_BODY + 1)).status == 413
    assert send_json(visitor, b"{}", **{"content-length": "9" * 400}).status != 500


def test_a_question_has_no_body(visitor: Visitor) -> None:
    answer = visitor.ask("GET", CREATE, {"limit": 1})
    assert (answer.status, answer.data["code"]) == (400, "unexpected_body")


def test_what_is_written_is_said_in_the_body(visitor: Visitor) -> None:
    answer = visitor.ask("POST", f"{ONE}/pause?until=2026-03-11T08:00:00Z", {})
    assert (answer.status, answer.data["field"]) == (422, "until")
    dry = visitor.ask("POST", f"{ONE}/pause?dry_run=true&reason=why", {})
    assert (dry.status, dry.data["standing"]["state"]) == (200, "paused")
    assert visitor.ask("GET", ONE).data["standing"]["state"] == "active"


def test_path_and_body_may_not_disagree(visitor: Visitor) -> None:
    assert visitor.ask("POST", f"{ONE}/pause", {"schedule": "nightly-report"}).status == 200
    answer = visitor.ask("POST", f"{ONE}/pause", {"schedule": "orders-poll"})
    assert (answer.status, answer.data["field"]) == (422, "schedule")
    assert visitor.ask("PUT", "/api/v1/schedules/a", {"name": "b", "every": "5m", "note": "x"}).status == 422


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=-1", "limit"),
        ("limit=0", "limit"),
        ("limit=1000000000", "limit"),
        ("limit=9999999999999999999999", "limit"),
        ("limit=ten", "limit"),
        ("limit=1.5", "limit"),
        ("limit=", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=1&limit=2", "limit"),
        ("state=asleep", "state"),
        ("state=active&state=paused", "state"),
        ("sort=name", "sort"),
        ("offset=10", "offset"),
        ("cursor=x", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=" + "A" * 5000, "cursor"),
        ("metadata=x", "metadata"),
        ("metadata=%7B", "metadata"),
        ("metadata=[1]", "metadata"),
        ("name_starts=%00", "name_starts"),
        ("__proto__=1", "__proto__"),
        ("name%5B%24gt%5D=", "name[$gt]"),
    ],
)
def test_a_filter_that_means_nothing_is_refused_by_its_name(visitor: Visitor, query: str, field: str) -> None:
    answer = visitor.ask("GET", f"{CREATE}?{query}")
    assert answer.status == 422, answer.data
    assert field in (answer.data.get("field") or answer.data["detail"])


def test_a_query_that_cannot_be_read_is_refused(visitor: Visitor) -> None:
    assert visitor.ask("GET", f"{CREATE}?name_starts=%ff").status == 400
    assert visitor.ask("GET", f"{CREATE}?" + "&".join(["a=1"] * 300)).status == 400
    assert visitor.ask("GET", f"{CREATE}?name_starts=" + "x" * LONGEST_QUERY).status == 414


def test_filter_text_is_never_more_than_text(visitor: Visitor) -> None:
    for text in ("' or 1=1 --", "%25", "_", "a%27%3B drop table runs"):
        assert visitor.ask("GET", f"{CREATE}?name_starts={text}").data["schedules"] == []


def test_pages_follow_one_another_by_their_links(visitor: Visitor) -> None:
    path, seen = f"{CREATE}?limit=1&state=active", []
    for _ in range(10):
        answer = visitor.ask("GET", path)
        seen += [row["name"] for row in answer.data["schedules"]]
        if "link" not in answer.headers:
            break
        path = answer.headers["link"].split(">")[0].lstrip("<")
        assert answer.headers["link"].endswith('; rel="next"')
    assert seen == sorted(seen)
    assert len(seen) >= 2


def test_a_cursor_belongs_to_its_list_its_filters_and_its_namespace(visitor: Visitor, house: House) -> None:
    cursor = visitor.ask("GET", f"{CREATE}?limit=1").data["cursor"]
    for path in (
        f"/api/v1/runs?cursor={cursor}",
        f"{CREATE}?limit=1&state=paused&cursor={cursor}",
        f"{CREATE}?limit=1&cursor={cursor[:10]}",
        f"{CREATE}?limit=1&cursor=A{cursor[1:]}",
    ):
        assert visitor.ask("GET", path).status == 422, path
    elsewhere = {"timewright-namespace": "other"}
    assert visitor.ask("GET", f"{CREATE}?limit=1&cursor={cursor}", headers=elsewhere).status == 422


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "BREW", "get", "", "X" * 5000])
def test_a_method_nobody_knows_is_refused_with_those_we_do(visitor: Visitor, method: str) -> None:
    answer = visitor.ask(method, CREATE)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")


def test_wrong_methods_and_overrides_change_nothing(visitor: Visitor) -> None:
    before = visitor.ask("GET", ONE).data
    assert visitor.ask("POST", ONE, {}).status == 405
    assert visitor.ask("GET", f"{ONE}/pause").status == 405
    said = {"x-http-method-override": "DELETE", "x-http-method": "DELETE", "x-method-override": "DELETE"}
    assert visitor.ask("GET", f"{ONE}?_method=DELETE", headers=said).status == 422
    assert visitor.ask("GET", ONE, headers=said).status == 200
    assert visitor.ask("GET", ONE).data == before


def test_head_and_options_say_what_they_should(visitor: Visitor) -> None:
    assert visitor.ask("HEAD", ONE).status == 200
    assert visitor.ask("HEAD", "/api/v1/events").status == 200
    answer = visitor.ask("OPTIONS", CREATE)
    assert (answer.status, "GET" in answer.headers["allow"]) == (204, True)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/schedules/",
        "/api/v1/schedules//pause",
        "/api/v1//schedules",
        "//api/v1/schedules",
        "/api/v2/schedules",
        "/API/V1/SCHEDULES",
        "/api/v1/schedules/nightly-report/pause/now",
        "/docs/../../../../etc/passwd",
        "/docs/..%2f..%2fapp.py",
        "/docs/reference.html%00",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/index.html/../../__init__.py",
        "/__init__.py",
        "/api.js%2f..%2f..%2f__init__.py",
    ],
)
def test_a_path_that_leads_nowhere_leads_nowhere(visitor: Visitor, path: str) -> None:
    answer = visitor.ask("GET", path)
    assert (answer.status, answer.data["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("a/b", "a%2Fb"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("a?b#c", "a%3Fb%23c"),
        ("zürich", "z%C3%BCrich"),
        ("..a", "..a"),
        ("a+b", "a+b"),
        ("null", "null"),
        ("--help", "--help"),
        ("$(id)", "%24%28id%29"),
    ],
)
def test_any_name_can_stand_in_a_path(visitor: Visitor, name: str, spelled: str) -> None:
    assert visitor.ask("PUT", f"{CREATE}/{spelled}", {"every": "5m", "note": "x"}).status == 201
    assert visitor.ask("GET", f"{CREATE}/{spelled}").data["schedule"]["name"] == name


def test_a_path_that_is_not_utf8_or_too_long_is_refused(visitor: Visitor) -> None:
    assert visitor.ask("GET", f"{CREATE}/%ff").status == 400
    assert visitor.ask("GET", f"{CREATE}/" + "x" * 10_000).status == 414


def test_a_subject_that_may_be_left_out_is_a_dash(visitor: Visitor) -> None:
    answer = visitor.ask("GET", f"{CREATE}/-/next?cron=0+9+*+*+1-5&count=2")
    assert len(answer.data["next"]) == 2
    drafted = visitor.ask("POST", f"{CREATE}/-/next", {"trigger": {"every": "90m"}, "count": 2})
    assert len(drafted.data["next"]) == 2


def test_getting_gives_an_etag_and_a_write_may_ask_for_it(visitor: Visitor) -> None:
    tag = visitor.ask("GET", ONE).headers["etag"]
    assert tag == '"1"'
    changed = visitor.ask("PATCH", ONE, {"grace": "5m"}, {"if-match": tag})
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    for method, path, body in (
        ("PATCH", ONE, {"grace": "6m"}),
        ("PUT", ONE, {"every": "5m", "note": "x"}),
        ("POST", f"{ONE}/pause", {}),
        ("DELETE", ONE, None),
    ):
        answer = visitor.ask(method, path, body, {"if-match": tag})
        assert (answer.status, answer.data["code"]) == (412, "conflict"), method
    assert visitor.ask("GET", ONE).data["schedule"]["grace"] == "5m"
    assert visitor.ask("POST", f"{ONE}/pause", {}, {"if-match": '"2"'}).status == 200
    assert visitor.ask("POST", f"{ONE}/resume", {}, {"if-match": "*"}).status == 200


def test_a_rehearsal_under_a_revision_keeps_nothing(visitor: Visitor) -> None:
    before = visitor.ask("GET", ONE).data
    answer = visitor.ask("POST", f"{ONE}/pause", {"dry_run": True}, {"if-match": '"1"'})
    assert (answer.status, answer.data["standing"]["state"]) == (200, "paused")
    assert visitor.ask("DELETE", f"{ONE}?dry_run=true", headers={"if-match": '"1"'}).status == 200
    assert visitor.ask("GET", ONE).data == before


@pytest.mark.parametrize("tag", ["1", 'W/"1"', '"x"', '""', '"1", "2"', '"-1"', '"' + "1" * 40 + '"'])
def test_a_tag_we_never_gave_is_refused(visitor: Visitor, tag: str) -> None:
    answer = visitor.ask("PATCH", ONE, {"grace": "5m"}, {"if-match": tag})
    assert (answer.status, answer.data["field"]) == (422, "if-match")


def test_what_has_no_revisions_cannot_be_matched(visitor: Visitor) -> None:
    answer = visitor.ask("DELETE", "/api/v1/calendars/old-office", headers={"if-match": '"1"'})
    assert (answer.status, answer.data["field"]) == (422, "if-match")


def test_a_write_that_is_repeated_with_its_key_happens_once(visitor: Visitor, house: House) -> None:
    body, key = {"queue": "letters", "payload": 1}, {"idempotency-key": "7f1c"}
    first = visitor.ask("POST", "/api/v1/queues", body, key)
    again = visitor.ask("POST", "/api/v1/queues", body, key)
    assert (first.status, first.body) == (again.status, again.body)
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (
        None,
        "true",
    )
    other = visitor.ask("POST", "/api/v1/queues", {**body, "payload": 2}, key)
    assert (other.status, other.data["field"]) == (422, "idempotency-key")
    elsewhere = visitor.ask("POST", f"{CREATE}/nightly-report/run", {}, key)
    assert elsewhere.status == 422
    assert len(house.ask("queue show", queue="letters")["entries"]) == 1


def test_keys_of_two_callers_and_two_namespaces_are_not_the_same(house: House) -> None:
    body, key = {"queue": "mail", "payload": 1}, {"idempotency-key": "same"}
    with visiting(house) as ada, visiting(house.elsewhere()) as other:
        one = ada.ask("POST", "/api/v1/queues", body, key)
        two = other.ask("POST", "/api/v1/queues", body, key)
    assert one.data["entries"][0]["id"] != two.data["entries"][0]["id"]


def test_a_refusal_and_a_rehearsal_are_not_kept(visitor: Visitor) -> None:
    key = {"idempotency-key": "k"}
    body = {"name": "later", "every": "5m", "note": "x"}
    assert visitor.ask("POST", CREATE, {**body, "every": "never"}, key).status == 422
    assert visitor.ask("POST", CREATE, {**body, "dry_run": True}, key).status == 200
    assert visitor.ask("POST", CREATE, body, key).status == 201


def test_a_key_is_forgotten_after_a_day_and_its_row_goes(visitor: Visitor, house: House) -> None:
    body, key = {"queue": "mail", "payload": 1}, {"idempotency-key": "k"}
    first = visitor.ask("POST", "/api/v1/queues", body, key).data
    house.sleep(hours=23)
    assert visitor.ask("POST", "/api/v1/queues", body, key).data == first
    house.bench.clock.advance(KEPT_FOR + timedelta(hours=13))
    assert forget(house.context)
    assert visitor.ask("POST", "/api/v1/queues", body, key).data != first


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "ä", "a\tb"])
def test_a_key_for_repeats_is_visible_text(visitor: Visitor, key: str) -> None:
    answer = visitor.ask("POST", "/api/v1/queues", {"queue": "mail", "payload": 1}, {"idempotency-key": key})
    assert (answer.status, answer.data["field"]) == (422, "idempotency-key")


def test_the_answer_to_a_new_key_is_kept_nowhere(visitor: Visitor, house: House) -> None:
    made = visitor.ask("POST", "/api/v1/keys", {"key": "k", "role": "viewer"}, {"idempotency-key": "k"})
    secret = made.data["token"].split("_", 2)[2]
    rows = house.store.read(lambda tx: [row for kind in _kinds(house) for row in tx.get_objects(kind)])
    assert all(secret.encode() not in row.body for row in rows)


def _kinds(house: House) -> list[str]:
    read = house.store._writer.connection.execute  # type: ignore[attr-defined]
    return [kind for (kind,) in read("SELECT DISTINCT kind FROM objects")]


def test_every_error_of_the_tree_has_a_status_and_a_problem() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TimewrightError)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        assert 400 <= status_of(kind) < 600
    assert {status_of(errors.InvalidCron), status_of(errors.SchemaMismatch)} == {422, 503}
    assert set(STATUS) <= {kind.code for kind in kinds}


def test_a_problem_says_what_where_which_rule_and_what_to_do(visitor: Visitor) -> None:
    answer = visitor.ask("POST", CREATE, {"name": "x", "cron": "0 0 31 2 *", "note": "x"})
    assert (answer.status, answer.headers["content-type"]) == (422, "application/problem+json")
    problem = answer.data
    assert set(problem) == {"type", "title", "status", "detail", "code", "field", "value", "rule", "fix"}
    assert (problem["type"], problem["title"], problem["status"]) == (
        "/docs#invalid_cron",
        "invalid cron",
        422,
    )
    assert problem["detail"] == "cron '0 0 31 2 *' never fires"
    assert problem["fix"] == "'0 0 28 2 *' or 'L' for the last day: '0 0 L 2 *'"


def test_a_value_that_is_refused_is_shown_short(visitor: Visitor) -> None:
    answer = visitor.ask("POST", CREATE, {"name": "x" * 100_000, "every": "5m", "note": "x"})
    assert len(answer.body) < 3000


def test_a_fault_of_ours_tells_nothing_of_itself(house: House) -> None:
    def fault(_: object) -> Any:
        raise RuntimeError("the password is hunter2")

    with visiting(house, caller=None, callers=fault) as visitor:
        answer = visitor.ask("GET", CREATE)
    assert (answer.status, answer.data["code"]) == (500, "internal")
    assert b"hunter2" not in answer.body


def test_every_answer_carries_the_headers_that_protect_a_browser(visitor: Visitor) -> None:
    for path in ("/", "/docs", "/docs/reference.js", CREATE, "/nothing", "/healthz", "/openapi.json"):
        headers = visitor.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["cache-control"] in ("no-store", "no-cache")


def test_answers_are_json_without_anything_that_json_has_not(visitor: Visitor) -> None:
    body = visitor.ask("GET", CREATE).body
    assert json.loads(body, parse_constant=pytest.fail)


def test_a_new_thing_is_created_and_an_old_one_is_not(visitor: Visitor) -> None:
    body = {"every": "5m", "note": "x"}
    assert visitor.ask("PUT", f"{CREATE}/fresh", body).status == 201
    assert visitor.ask("PUT", f"{CREATE}/fresh", body).status == 200
    assert visitor.ask("POST", CREATE, {**body, "name": "dry", "dry_run": True}).status == 200
