"""HTTP details: bodies, queries, problems, ETags, idempotency keys, paging and security headers."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.interfaces.http.http_client import HOST, HttpAnswer, HttpTestClient, client_for
from tests.operations.harness import OperationsHarness
from timewright import errors
from timewright.errors import TimewrightError
from timewright.interfaces.http.problems import STATUS_BY_CODE, status_of
from timewright.interfaces.http.request import MAX_BODY_BYTES, MAX_QUERY_BYTES
from timewright.operations import operations
from timewright.operations.idempotency import RETENTION

CREATE = "/api/v1/schedules"
ONE = "/api/v1/schedules/nightly-report"


def send_json(client: HttpTestClient, raw: bytes, kind: str = "application/json", **more: str) -> HttpAnswer:
    headers = [("host", HOST), ("content-type", kind), *more.items()]
    return client.send("POST", CREATE, raw, headers)


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
def test_a_body_that_is_not_json_is_refused(client: HttpTestClient, raw: bytes) -> None:
    answer = send_json(client, raw)
    assert (answer.status, answer.data["code"]) == (400, "invalid_json")
    assert "sys." not in answer.data["detail"]


@pytest.mark.parametrize("raw", [b"[]", b"1", b"null", b'"x"', b"true", b"[[[[{}]]]]"])
def test_a_body_must_be_an_object(client: HttpTestClient, raw: bytes) -> None:
    assert send_json(client, raw).status == 422


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
def test_invalid_fields_get_the_error_of_the_operation(
    client: HttpTestClient, harness: OperationsHarness, fields: dict[str, Any]
) -> None:
    answer = client.request("POST", CREATE, fields)
    with pytest.raises(TimewrightError) as refusal:
        operations["schedule create"](harness.context, fields)
    assert answer.status == 422
    assert (answer.data["code"], answer.data["detail"]) == (
        refusal.value.code,
        refusal.value.message.encode("utf-8", "replace").decode(),
    )


@pytest.mark.parametrize(
    "text", ["{{7*7}}", "${jndi:ldap://x}", "%s%n", "<img src=x onerror=1>", "=cmd|' /C calc'!A0"]
)
def test_text_is_stored_unchanged(client: HttpTestClient, text: str) -> None:
    answer = client.request("POST", CREATE, {"name": text, "every": "5m", "note": text})
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
def test_only_json_bodies_are_accepted(client: HttpTestClient, kind: str) -> None:
    answer = send_json(client, b'{"name": "x"}', kind)
    assert (answer.status, answer.data["code"]) == (415, "unsupported_media_type")


def test_json_may_have_a_charset_and_a_write_without_fields_needs_no_body(client: HttpTestClient) -> None:
    assert (
        send_json(client, b'{"name":"x","every":"5m","note":"x"}', 'Application/JSON; charset="UTF-8"').status
        == 201
    )
    assert client.send("POST", f"{ONE}/pause", b"", [("host", HOST)]).status == 200


def test_a_compressed_body_is_refused(client: HttpTestClient) -> None:
    said = {"content-encoding": "gzip"}
    assert send_json(client, b"\x1f\x8b", **said).status == 415


def test_a_large_body_is_refused_with_or_without_content_length(client: HttpTestClient) -> None:
    assert send_json(client, b"{}", **{"content-length": str(MAX_BODY_BYTES + 1)}).status == 413
    assert send_json(client, b" " * (MAX_BODY_BYTES + 1)).status == 413
    assert send_json(client, b"{}", **{"content-length": "9" * 400}).status != 500


def test_a_get_request_takes_no_body(client: HttpTestClient) -> None:
    answer = client.request("GET", CREATE, {"limit": 1})
    assert (answer.status, answer.data["code"]) == (400, "unexpected_body")


def test_a_write_takes_its_fields_from_the_body(client: HttpTestClient) -> None:
    answer = client.request("POST", f"{ONE}/pause?until=2026-03-11T08:00:00Z", {})
    assert (answer.status, answer.data["field"]) == (422, "until")
    dry = client.request("POST", f"{ONE}/pause?dry_run=true&reason=why", {})
    assert (dry.status, dry.data["progress"]["state"]) == (200, "paused")
    assert client.request("GET", ONE).data["progress"]["state"] == "active"


def test_path_and_body_must_agree(client: HttpTestClient) -> None:
    assert client.request("POST", f"{ONE}/pause", {"schedule": "nightly-report"}).status == 200
    answer = client.request("POST", f"{ONE}/pause", {"schedule": "orders-poll"})
    assert (answer.status, answer.data["field"]) == (422, "schedule")
    assert (
        client.request("PUT", "/api/v1/schedules/a", {"name": "b", "every": "5m", "note": "x"}).status == 422
    )


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
def test_an_invalid_filter_is_refused_by_name(client: HttpTestClient, query: str, field: str) -> None:
    answer = client.request("GET", f"{CREATE}?{query}")
    assert answer.status == 422, answer.data
    assert field in (answer.data.get("field") or answer.data["detail"])


def test_an_invalid_query_is_refused(client: HttpTestClient) -> None:
    assert client.request("GET", f"{CREATE}?name_starts=%ff").status == 400
    assert client.request("GET", f"{CREATE}?" + "&".join(["a=1"] * 300)).status == 400
    assert client.request("GET", f"{CREATE}?name_starts=" + "x" * MAX_QUERY_BYTES).status == 414


def test_filter_text_is_not_interpreted_as_sql(client: HttpTestClient) -> None:
    for text in ("' or 1=1 --", "%25", "_", "a%27%3B drop table runs"):
        assert client.request("GET", f"{CREATE}?name_starts={text}").data["schedules"] == []


def test_the_link_header_leads_to_the_next_page(client: HttpTestClient) -> None:
    path, seen = f"{CREATE}?limit=1&state=active", []
    for _ in range(10):
        answer = client.request("GET", path)
        seen += [row["name"] for row in answer.data["schedules"]]
        if "link" not in answer.headers:
            break
        path = answer.headers["link"].split(">")[0].lstrip("<")
        assert answer.headers["link"].endswith('; rel="next"')
    assert seen == sorted(seen)
    assert len(seen) >= 2


def test_a_cursor_is_bound_to_its_list_filters_and_namespace(
    client: HttpTestClient, harness: OperationsHarness
) -> None:
    cursor = client.request("GET", f"{CREATE}?limit=1").data["cursor"]
    for path in (
        f"/api/v1/runs?cursor={cursor}",
        f"{CREATE}?limit=1&state=paused&cursor={cursor}",
        f"{CREATE}?limit=1&cursor={cursor[:10]}",
        f"{CREATE}?limit=1&cursor=A{cursor[1:]}",
    ):
        assert client.request("GET", path).status == 422, path
    elsewhere = {"timewright-namespace": "other"}
    assert client.request("GET", f"{CREATE}?limit=1&cursor={cursor}", headers=elsewhere).status == 422


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "FETCH", "get", "", "X" * 5000])
def test_an_unknown_method_is_refused_with_the_allowed_ones(client: HttpTestClient, method: str) -> None:
    answer = client.request(method, CREATE)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")


def test_wrong_methods_and_overrides_change_nothing(client: HttpTestClient) -> None:
    before = client.request("GET", ONE).data
    assert client.request("POST", ONE, {}).status == 405
    assert client.request("GET", f"{ONE}/pause").status == 405
    answer = client.request("GET", "/api/v1/secrets/crm-token")  # it can be set and deleted, not read
    assert (answer.status, answer.data["fix"]) == (405, "/openapi.json lists the methods of each path")
    said = {"x-http-method-override": "DELETE", "x-http-method": "DELETE", "x-method-override": "DELETE"}
    assert client.request("GET", f"{ONE}?_method=DELETE", headers=said).status == 422
    assert client.request("GET", ONE, headers=said).status == 200
    assert client.request("GET", ONE).data == before


def test_head_and_options_are_answered(client: HttpTestClient) -> None:
    assert client.request("HEAD", ONE).status == 200
    assert client.request("HEAD", "/api/v1/events").status == 200
    answer = client.request("OPTIONS", CREATE)
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
def test_an_unknown_path_is_not_found(client: HttpTestClient, path: str) -> None:
    answer = client.request("GET", path)
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
def test_any_name_can_be_part_of_a_path(client: HttpTestClient, name: str, spelled: str) -> None:
    assert client.request("PUT", f"{CREATE}/{spelled}", {"every": "5m", "note": "x"}).status == 201
    assert client.request("GET", f"{CREATE}/{spelled}").data["schedule"]["name"] == name


def test_a_path_that_is_not_utf8_or_too_long_is_refused(client: HttpTestClient) -> None:
    assert client.request("GET", f"{CREATE}/%ff").status == 400
    assert client.request("GET", f"{CREATE}/" + "x" * 10_000).status == 414


def test_a_subject_that_may_be_left_out_is_a_dash(client: HttpTestClient) -> None:
    answer = client.request("GET", f"{CREATE}/-/next?cron=0+9+*+*+1-5&count=2")
    assert len(answer.data["next"]) == 2
    drafted = client.request("POST", f"{CREATE}/-/next", {"trigger": {"every": "90m"}, "count": 2})
    assert len(drafted.data["next"]) == 2


def test_a_write_can_require_the_etag_of_a_read(client: HttpTestClient) -> None:
    tag = client.request("GET", ONE).headers["etag"]
    assert tag == '"1"'
    changed = client.request("PATCH", ONE, {"grace": "5m"}, {"if-match": tag})
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    for method, path, body in (
        ("PATCH", ONE, {"grace": "6m"}),
        ("PUT", ONE, {"every": "5m", "note": "x"}),
        ("POST", f"{ONE}/pause", {}),
        ("DELETE", ONE, None),
    ):
        answer = client.request(method, path, body, {"if-match": tag})
        assert (answer.status, answer.data["code"]) == (412, "conflict"), method
    assert client.request("GET", ONE).data["schedule"]["grace"] == "5m"
    assert client.request("POST", f"{ONE}/pause", {}, {"if-match": '"2"'}).status == 200
    assert client.request("POST", f"{ONE}/resume", {}, {"if-match": "*"}).status == 200


def test_a_dry_run_with_if_match_writes_nothing(client: HttpTestClient) -> None:
    before = client.request("GET", ONE).data
    answer = client.request("POST", f"{ONE}/pause", {"dry_run": True}, {"if-match": '"1"'})
    assert (answer.status, answer.data["progress"]["state"]) == (200, "paused")
    assert client.request("DELETE", f"{ONE}?dry_run=true", headers={"if-match": '"1"'}).status == 200
    assert client.request("GET", ONE).data == before


@pytest.mark.parametrize("tag", ["1", 'W/"1"', '"x"', '""', '"1", "2"', '"-1"', '"' + "1" * 40 + '"'])
def test_an_invalid_etag_is_refused(client: HttpTestClient, tag: str) -> None:
    answer = client.request("PATCH", ONE, {"grace": "5m"}, {"if-match": tag})
    assert (answer.status, answer.data["field"]) == (422, "if-match")
    assert "not supported" not in answer.data["detail"]
    assert answer.data["fix"] == 'If-Match: "7"'


def test_if_match_is_refused_for_objects_without_revisions(client: HttpTestClient) -> None:
    answer = client.request("DELETE", "/api/v1/calendars/old-office", headers={"if-match": '"1"'})
    assert (answer.status, answer.data["field"]) == (422, "if-match")
    assert "schedule" in answer.data["rule"]
    assert answer.data["fix"] == "leave If-Match out"


def test_a_repeated_write_with_an_idempotency_key_happens_once(
    client: HttpTestClient, harness: OperationsHarness
) -> None:
    body, key = {"queue": "letters", "payload": 1}, {"idempotency-key": "7f1c"}
    first = client.request("POST", "/api/v1/queues", body, key)
    again = client.request("POST", "/api/v1/queues", body, key)
    assert (first.status, first.body) == (again.status, again.body)
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (
        None,
        "true",
    )
    other = client.request("POST", "/api/v1/queues", {**body, "payload": 2}, key)
    assert (other.status, other.data["field"]) == (422, "idempotency-key")
    elsewhere = client.request("POST", f"{CREATE}/nightly-report/run", {}, key)
    assert elsewhere.status == 422
    assert len(harness.ask("queue show", queue="letters")["entries"]) == 1


def test_idempotency_keys_are_separate_per_caller_and_namespace(harness: OperationsHarness) -> None:
    body, key = {"queue": "mail", "payload": 1}, {"idempotency-key": "same"}
    with client_for(harness) as ada, client_for(harness.in_namespace()) as other:
        one = ada.request("POST", "/api/v1/queues", body, key)
        two = other.request("POST", "/api/v1/queues", body, key)
    assert one.data["entries"][0]["id"] != two.data["entries"][0]["id"]


def test_errors_and_dry_runs_are_not_replayed(client: HttpTestClient) -> None:
    key = {"idempotency-key": "k"}
    body = {"name": "later", "every": "5m", "note": "x"}
    assert client.request("POST", CREATE, {**body, "every": "never"}, key).status == 422
    assert client.request("POST", CREATE, {**body, "dry_run": True}, key).status == 200
    assert client.request("POST", CREATE, body, key).status == 201


def test_an_idempotency_key_expires_after_a_day(client: HttpTestClient, harness: OperationsHarness) -> None:
    body, key = {"queue": "mail", "payload": 1}, {"idempotency-key": "k"}
    first = client.request("POST", "/api/v1/queues", body, key).data
    harness.sleep(hours=23)
    assert client.request("POST", "/api/v1/queues", body, key).data == first
    harness.bench.clock.advance(RETENTION + timedelta(hours=13))
    assert client.request("POST", "/api/v1/queues", body, key).data != first


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "ä", "a\tb"])
def test_an_idempotency_key_must_be_printable(client: HttpTestClient, key: str) -> None:
    answer = client.request(
        "POST", "/api/v1/queues", {"queue": "mail", "payload": 1}, {"idempotency-key": key}
    )
    assert (answer.status, answer.data["field"]) == (422, "idempotency-key")


def test_the_answer_with_a_new_key_is_not_stored(client: HttpTestClient, harness: OperationsHarness) -> None:
    made = client.request("POST", "/api/v1/keys", {"key": "k", "role": "viewer"}, {"idempotency-key": "k"})
    secret = made.data["token"].split("_", 2)[2]
    rows = harness.store.read(lambda tx: [row for kind in _kinds(harness) for row in tx.get_objects(kind)])
    assert all(secret.encode() not in row.body for row in rows)


def _kinds(harness: OperationsHarness) -> list[str]:
    read = harness.store._writer.connection.execute  # type: ignore[attr-defined]
    return [kind for (kind,) in read("SELECT DISTINCT kind FROM objects")]


def test_every_error_class_has_a_status_and_a_problem() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TimewrightError)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        assert 400 <= status_of(kind) < 600
    assert {status_of(errors.InvalidCron), status_of(errors.SchemaMismatch)} == {422, 503}
    assert set(STATUS_BY_CODE) <= {kind.code for kind in kinds}


def test_a_problem_has_detail_field_rule_and_fix(client: HttpTestClient) -> None:
    answer = client.request("POST", CREATE, {"name": "x", "cron": "0 0 31 2 *", "note": "x"})
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


def test_a_refused_value_is_shortened(client: HttpTestClient) -> None:
    answer = client.request("POST", CREATE, {"name": "x" * 100_000, "every": "5m", "note": "x"})
    assert len(answer.body) < 3000


def test_an_internal_error_reveals_no_details(harness: OperationsHarness) -> None:
    def fault(_: object) -> Any:
        raise RuntimeError("the password is hunter2")

    with client_for(harness, caller=None, authenticate=fault) as client:
        answer = client.request("GET", CREATE)
    assert (answer.status, answer.data["code"]) == (500, "internal")
    assert b"hunter2" not in answer.body


def test_every_response_has_security_headers(client: HttpTestClient) -> None:
    for path in ("/", "/docs", "/docs/reference.js", CREATE, "/nothing", "/healthz", "/openapi.json"):
        headers = client.request("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["cache-control"] in ("no-store", "no-cache")


def test_answers_are_strict_json(client: HttpTestClient) -> None:
    body = client.request("GET", CREATE).body
    assert json.loads(body, parse_constant=pytest.fail)


def test_a_new_object_gives_201_and_an_existing_one_200(client: HttpTestClient) -> None:
    body = {"every": "5m", "note": "x"}
    assert client.request("PUT", f"{CREATE}/fresh", body).status == 201
    assert client.request("PUT", f"{CREATE}/fresh", body).status == 200
    assert client.request("POST", CREATE, {**body, "name": "dry", "dry_run": True}).status == 200


def test_an_empty_body_says_so(client: HttpTestClient) -> None:
    answer = send_json(client, b"")
    assert (answer.data["detail"], answer.data["fix"]) == (
        "the body is empty",
        "{}, or leave Content-Type out",
    )
