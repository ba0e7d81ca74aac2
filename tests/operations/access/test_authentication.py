"""Authentication: API keys, scopes of every operation, namespaces, the local key and login links."""

from __future__ import annotations

import sqlite3
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness, as_json, dump
from timewright.access.keyring import derive_keyring, generate_secret_key, parse_secret_keys
from timewright.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotAllowed,
    NotFound,
    TimewrightError,
    Unauthorized,
    UnsafeStore,
)
from timewright.ids import TimedIds
from timewright.operations import Operation, OperationContext, operations
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.authentication import (
    LOCAL_CALLER,
    ROLES,
    Caller,
    authenticate,
    context_for,
    save_key_uses,
)
from timewright.operations.access.keys import ensure_local_key, read_local_key
from timewright.settings import Settings
from timewright.wiring import build_auth_cache, open_store, private_file


@pytest.fixture(params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest) -> OperationsHarness:
    """An empty harness; on PostgreSQL a separate namespace of a shared one."""
    if request.param == "sqlite":
        return OperationsHarness()
    shared: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
    return shared.in_namespace(f"access-{request.node.name[:40]}")


def make(harness: OperationsHarness, key: str = "ci", **fields: Any) -> str:
    """Create a key, by default a viewer's, and return its token."""
    wanted = fields if {"role", "scopes"} & set(fields) else {"role": "viewer", **fields}
    return str(harness.ask("key create", key=f"{key} {harness.context.namespace}", **wanted)["token"])


def context_of(harness: OperationsHarness, token: str, namespace: str | None = None) -> OperationContext:
    return context_for(harness.context, authenticate(harness.context, token), namespace)


# Keys.


def test_a_token_authenticates_with_the_scopes_and_namespace_of_its_key(
    harness: OperationsHarness,
) -> None:
    caller = authenticate(harness.context, make(harness, "grafana", role="operator", origin="agent"))
    assert caller.actor.startswith("grafana")
    assert caller.origin == "agent"
    assert caller.scopes == {"read", "trigger", "hint"}
    assert caller.namespaces == (harness.context.namespace,)
    assert not caller.local


def test_a_token_is_256_random_bits_behind_a_prefix_and_never_the_same_twice(
    harness: OperationsHarness,
) -> None:
    tokens = [make(harness, f"key {number}") for number in range(3)]
    assert len(set(tokens)) == 3
    for token in tokens:
        start, prefix, secret = token.split("_", 2)
        assert (start, len(prefix), len(secret)) == ("tw", 12, 43)


def test_the_store_contains_no_token(harness: OperationsHarness) -> None:
    token = make(harness)
    kept = str(dump(harness.store))
    prefix, secret = token.split("_", 2)[1:]
    assert prefix in kept
    assert secret not in kept
    answers = as_json([harness.ask("key list", all=True), harness.ask("audit list")])
    assert secret not in answers
    digest = harness.context.auth_cache.keyring.current.digest(token) if harness.context.auth_cache else ""
    assert digest in kept
    assert digest not in answers


def test_only_private_files_beside_the_store_contain_tokens(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    store = open_store(place)
    context = OperationContext(
        store=store, ids=TimedIds(), auth_cache=build_auth_cache(place, Settings()), notify=lambda facts: None
    )
    admin = ensure_local_key(context, tmp_path / "store.db.admin")
    token = operations["key create"](context, {"key": "ci", "role": "viewer"})["token"]
    pages = b"".join(
        path.read_bytes() for path in tmp_path.iterdir() if path.suffix not in (".key", ".admin")
    )
    for secret in (
        admin.split("_", 2)[2],
        token.split("_", 2)[2],
        (tmp_path / "store.db.key").read_text().strip(),
    ):
        assert secret.encode() not in pages
    store.close()
    with sqlite3.connect(place) as connection:
        assert token.split("_", 2)[2] not in "\n".join(connection.iterdump())


ODD_TOKENS = [
    "", " ", "Bearer", "Bearer x", "bearer  x", "tw", "tw_", "tw__", "tw_abc_def", "x" * 1_000_000, "\ud800",
    "tw_" + "a" * 12, "tw_aaaaaaaaaaaa_", "tw_aaaaaaaaaaaa_x", "tw_ａaaaaaaaaaaa_x", "tw_aaaaaaaaaaaa_\0",
    "tw_AAAAAAAAAAAA_x", "tw_../../../etc_x", "eyJhbGciOiJub25lIn0.e30.", "' or 1=1 --",
]  # fmt: skip


def test_unknown_wrong_expired_and_revoked_keys_raise_the_same_error(
    harness: OperationsHarness,
) -> None:
    good, over, gone = make(harness, "good"), make(harness, "over", expires_in="1m"), make(harness, "gone")
    other = make(harness, "other")
    harness.ask("key revoke", key=f"gone {harness.context.namespace}")
    harness.sleep(minutes=1)
    mixed = "_".join([*good.split("_", 2)[:2], other.split("_", 2)[2]])
    tried = [*ODD_TOKENS, over, gone, good[:-1], f"{good}x", f" {good}", good.upper(), mixed]
    result = {refusal_of(harness, token) for token in tried}
    assert len(result) == 1
    assert authenticate(harness.context, good).actor.startswith("good")


def refusal_of(harness: OperationsHarness, token: str) -> str:
    with pytest.raises(Unauthorized) as error:
        authenticate(harness.context, token)
    return error.value.explain()


def test_a_key_expires_at_its_instant_and_not_before(harness: OperationsHarness) -> None:
    token = make(harness, expires_in="1h")
    harness.sleep(minutes=59, seconds=59)
    assert authenticate(harness.context, token).actor
    harness.sleep(seconds=1)
    with pytest.raises(Unauthorized):
        authenticate(harness.context, token)


def test_a_rotated_key_keeps_its_permissions_and_the_old_one_is_valid_until_the_overlap_ends(
    harness: OperationsHarness,
) -> None:
    old = make(harness, "ci", scopes=["read", "hint"])
    answer = harness.ask("key rotate", key=f"ci {harness.context.namespace}", overlap="10m")
    new = answer["token"]
    assert authenticate(harness.context, new).scopes == authenticate(harness.context, old).scopes
    harness.sleep(minutes=10)
    assert authenticate(harness.context, new).actor
    with pytest.raises(Unauthorized):
        authenticate(harness.context, old)
    newest = harness.ask("key rotate", key=answer["key"]["id"])["token"]
    assert authenticate(harness.context, newest).actor
    with pytest.raises(Unauthorized):
        authenticate(harness.context, new)


def test_the_last_use_is_saved_at_most_once_a_minute_and_not_during_a_request(
    harness: OperationsHarness,
) -> None:
    token = make(harness)
    save_key_uses(harness.context)
    before = dump(harness.store)
    for _ in range(5):
        authenticate(harness.context, token)
    assert dump(harness.store) == before
    assert save_key_uses(harness.context) == 1
    used = harness.ask("key get", key=f"ci {harness.context.namespace}")["key"]["used_at"]
    assert used is not None
    authenticate(harness.context, token)
    assert save_key_uses(harness.context) == 0
    harness.sleep(minutes=1)
    authenticate(harness.context, token)
    assert save_key_uses(harness.context) == 1


def test_the_name_of_an_active_key_is_unique_and_free_again_after_revocation(
    harness: OperationsHarness,
) -> None:
    make(harness)
    with pytest.raises(Conflict, match="already has the name"):
        make(harness)
    harness.ask("key revoke", key=f"ci {harness.context.namespace}")
    make(harness)
    rows = harness.ask("key list", all=True)["keys"]
    assert [row["state"] for row in rows if row["name"].startswith("ci")].count("revoked") == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"key": "x"}, "role"),
        ({"key": "x", "role": "owner"}, "role"),
        ({"key": "x", "scopes": ["everything"]}, "scopes[0]"),
        ({"key": "x", "role": "viewer", "expires_in": "1s"}, "expires_in"),
        ({"key": "x", "role": "viewer", "expires_in": "100000d"}, "expires_in"),
        ({"key": "x", "role": "viewer", "within": ["a\nb"]}, "within"),
        ({"key": "", "role": "viewer"}, "key"),
        ({"key": "x", "role": "viewer", "origin": "root"}, "origin"),
    ],
)
def test_an_invalid_key_request_is_rejected(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        OperationsHarness().ask("key create", fields)
    assert error.value.field == field
    assert error.value.fix


# Permissions of a key.

EVERY = [pytest.param(one, id=one.name) for one in operations]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("one", EVERY)
def test_each_role_may_do_what_its_scopes_say_and_nothing_else(one: Operation[Any], role: Any) -> None:
    caller = Caller(actor="somebody", scopes=ROLES[role])
    context = replace(EMPTY.context, caller=caller)
    if one.scope in caller.scopes:
        with pytest.raises(TimewrightError) as error:
            one(context, {"nobody knows this": 1})
        assert not isinstance(error.value, Forbidden)
        return
    with pytest.raises(Forbidden) as error:
        # Without the scope, the error is about the scope and not about the request.
        one(context, {"nobody knows this": 1})
    assert one.scope in error.value.message
    assert any(able in (error.value.rule or "") for able in ROLES if one.scope in ROLES[able])
    assert role not in (error.value.rule or "").partition(";")[0]


EMPTY = OperationsHarness()


def test_a_caller_without_scopes_may_do_nothing_and_the_local_one_everything() -> None:
    nobody = replace(EMPTY.context, caller=Caller(actor="nobody"))
    for one in operations:
        assert one.scope in LOCAL_CALLER.scopes
        with pytest.raises(Forbidden):
            one(nobody, one.examples[0])


def test_roles_contain_one_another_and_only_admin_sees_keys_and_secrets() -> None:
    assert ROLES["viewer"] < ROLES["operator"] < ROLES["editor"] < ROLES["admin"]
    assert ROLES["admin"] - ROLES["editor"] == {"admin", "secret", "secret-use"}
    needs = {one.scope for one in operations if one.noun in ("key", "secret")}
    assert needs == {"admin", "secret"}


def test_a_key_may_have_a_role_and_more_scopes(harness: OperationsHarness) -> None:
    made = harness.ask("key create", key="deploy", role="editor", scopes=["secret-use"])["key"]
    assert made["scopes"] == ["hint", "read", "secret-use", "trigger", "write"]


def test_a_write_records_the_name_and_origin_of_its_caller(harness: OperationsHarness) -> None:
    inside = context_of(harness, make(harness, "agent", role="editor", origin="agent"))
    operations["schedule create"](inside, {"name": "by-agent", "every": "1h", "note": "hi", "reason": "why"})
    found = harness.ask("schedule get", schedule="by-agent")["schedule"]
    assert (found["created_by"], found["origin"]) == (inside.caller.actor, "agent")
    (line,) = harness.ask("audit list", origin="agent")["entries"]
    assert (line["actor"], line["action"], line["reason"]) == (inside.caller.actor, "schedule.create", "why")


def test_a_caller_sees_its_own_namespace_and_no_other(harness: OperationsHarness) -> None:
    token = make(harness)
    assert context_of(harness, token).namespace == harness.context.namespace
    for other in ("elsewhere", "default " if harness.context.namespace == "default" else "default"):
        with pytest.raises((Forbidden, InvalidInput)):
            context_of(harness, token, other)
    everywhere = make(harness, "everywhere", within=["*"])
    assert context_of(harness, everywhere, "elsewhere").namespace == "elsewhere"


def test_a_caller_cannot_grant_more_than_it_has(harness: OperationsHarness) -> None:
    admin = context_of(harness, make(harness, "admin", role="admin"))
    create = operations["key create"]
    with pytest.raises(Forbidden, match="more access than yours"):
        create(admin, {"key": "wider", "role": "viewer", "within": ["*"]})
    with pytest.raises(Forbidden, match="more access than yours"):
        create(admin, {"key": "wider", "role": "viewer", "within": [admin.namespace, "other"]})
    keeper = context_of(harness, make(harness, "keeper", scopes=["admin", "read"]))
    with pytest.raises(Forbidden, match="more access than yours"):
        create(keeper, {"key": "stronger", "role": "editor"})
    assert create(keeper, {"key": f"weaker {admin.namespace}", "role": "viewer"})["token"]


def test_keys_with_more_namespaces_than_the_caller_are_hidden_from_it(harness: OperationsHarness) -> None:
    wide = harness.ask("key create", key=f"wide {harness.context.namespace}", role="admin", within=["*"])[
        "key"
    ]
    admin = context_of(harness, make(harness, "admin", role="admin"))
    assert wide["id"] not in as_json(operations["key list"](admin, {"all": True}))
    for name in (wide["id"], wide["name"]):
        for verb in ("get", "revoke", "rotate"):
            with pytest.raises(NotFound):
                operations[f"key {verb}"](admin, {"key": name})
    harness.ask("key revoke", key=wide["id"])


def test_a_key_limited_to_a_namespace_cannot_set_its_quotas(harness: OperationsHarness) -> None:
    admin = context_of(harness, make(harness, "admin", role="admin"))
    for verb in ("create", "set"):
        with pytest.raises(Forbidden):
            operations[f"namespace {verb}"](admin, {"name": admin.namespace, "schedules": 10**6})
    shown = operations["namespace list"](admin, {})["namespaces"]
    assert [one["name"] for one in shown] == [admin.namespace]
    with pytest.raises(NotFound):
        operations["namespace get"](admin, {"name": "team-a"})


# The secret key, the local key and login links.


def test_a_context_without_a_keyring_rejects_every_token(harness: OperationsHarness) -> None:
    token = make(harness)
    with pytest.raises(NotAllowed):
        authenticate(replace(harness.context, auth_cache=None), token)


def test_a_wrong_secret_key_is_reported_by_name() -> None:
    harness = OperationsHarness()
    token = make(harness)
    stranger = AuthCache(lambda: derive_keyring([b"another key, also of 32 letters."]))
    with pytest.raises(UnsafeStore, match="another secret key"):
        authenticate(replace(harness.context, auth_cache=stranger), token)


def test_a_new_secret_key_before_the_old_one_keeps_old_api_keys_valid() -> None:
    harness = OperationsHarness()
    token = make(harness)
    old = b"a secret key for tests, not more"
    both = AuthCache(lambda: derive_keyring([b"another key, also of 32 letters.", old]))
    context = replace(harness.context, auth_cache=both)
    assert authenticate(context, token).actor
    newer = operations["key create"](context, {"key": "newer", "role": "viewer"})["token"]
    assert authenticate(context, newer).actor


def test_the_secret_key_is_created_once_in_a_file_only_its_owner_can_read(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    first = build_auth_cache(place, Settings()).keyring
    path = private_file(place, "key")
    assert path == tmp_path / "store.db.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert build_auth_cache(place, Settings()).keyring == first
    assert [one.name for one in tmp_path.iterdir()] == ["store.db.key"]


def test_a_secret_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    build_auth_cache(place, Settings()).load_keys()
    (tmp_path / "store.db.key").chmod(0o640)
    with pytest.raises(UnsafeStore, match="may be read or written by others") as error:
        _ = build_auth_cache(place, Settings()).keyring
    assert error.value.fix == f"chmod 600 {place}.key"


def test_a_configured_secret_key_takes_precedence_over_the_file_beside_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, file = tmp_path / "store.db", tmp_path / "key"
    file.write_text(f"# ours since march\n{generate_secret_key()}\n")
    file.chmod(0o600)
    by_file = build_auth_cache(place, Settings(secret_key_file=str(file))).keyring
    monkeypatch.setenv("TIMEWRIGHT_SECRET_KEY", "ab" * 32)
    by_word = build_auth_cache(place, Settings(secret_key_file=str(file))).keyring
    assert by_word == derive_keyring([bytes.fromhex("ab" * 32)]) != by_file
    assert not (tmp_path / "store.db.key").exists()
    monkeypatch.delenv("TIMEWRIGHT_SECRET_KEY")
    with pytest.raises(InvalidInput, match="there is no secret key"):
        _ = build_auth_cache(place, Settings(secret_key_file=f"{file}2")).keyring


@pytest.mark.parametrize("text", ["", "short", "password" * 8, "zz" * 32, "a" * 42, "# nothing\n", "é" * 43])
def test_a_weak_secret_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_secret_keys(text, source="the environment")
    assert not text or text not in error.value.explain()


def test_the_local_key_is_created_at_the_first_start_and_reused_at_the_second(tmp_path: Path) -> None:
    harness, file = OperationsHarness(), tmp_path / "store.db.admin"
    token = ensure_local_key(harness.context, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ensure_local_key(harness.context, file) == token == read_local_key(file)
    caller = authenticate(harness.context, token)
    assert (caller.actor, caller.local, caller.scopes) == ("local-admin", True, LOCAL_CALLER.scopes)
    assert caller.namespaces == ()


def test_a_local_key_whose_file_was_lost_is_revoked_and_replaced(tmp_path: Path) -> None:
    harness, file = OperationsHarness(), tmp_path / "store.db.admin"
    lost = ensure_local_key(harness.context, file)
    file.unlink()
    assert authenticate(harness.context, ensure_local_key(harness.context, file)).local
    with pytest.raises(Unauthorized):
        authenticate(harness.context, lost)


def test_two_machines_on_one_store_each_have_a_local_key(tmp_path: Path) -> None:
    harness = OperationsHarness()
    first, second = (
        ensure_local_key(harness.context, tmp_path / name) for name in ("one.admin", "two.admin")
    )
    assert first != second
    assert authenticate(harness.context, first).local
    assert authenticate(harness.context, second).local


def test_the_local_key_cannot_be_rotated(tmp_path: Path) -> None:
    harness = OperationsHarness()
    ensure_local_key(harness.context, tmp_path / "store.db.admin")
    with pytest.raises(NotAllowed, match="cannot be rotated"):
        harness.ask("key rotate", key="local-admin")


def test_a_local_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    harness, file = OperationsHarness(), tmp_path / "store.db.admin"
    ensure_local_key(harness.context, file)
    file.chmod(0o644)
    with pytest.raises(UnsafeStore):
        ensure_local_key(harness.context, file)


def test_a_login_link_works_once_and_expires() -> None:
    harness = OperationsHarness()
    keeper = harness.context.auth_cache
    assert keeper is not None
    link = keeper.create_login_link(LOCAL_CALLER, now=harness.now)
    assert keeper.redeem_login_link("unknown", now=harness.now) is None
    assert keeper.redeem_login_link(link, now=harness.now + timedelta(minutes=4)) == LOCAL_CALLER
    assert keeper.redeem_login_link(link, now=harness.now) is None
    late = keeper.create_login_link(LOCAL_CALLER, now=harness.now)
    assert keeper.redeem_login_link(late, now=harness.now + timedelta(minutes=5)) is None
