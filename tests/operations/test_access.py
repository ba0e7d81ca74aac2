"""Who comes in: keys and their tokens, the scopes of every operation, namespaces, the local key, links."""

from __future__ import annotations

import sqlite3
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.house import House, as_json, dump
from timewright.assembly import doorkeeper_for, open_store, private_place
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
from timewright.ledger.keyring import drawn_from, new_master, read_masters
from timewright.operations import Context, Operation, operations
from timewright.operations.access import LOCAL, ROLES, Caller, acting, authenticate, keep_uses
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.local_key import find_local_key, local_key
from timewright.settings import Settings


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest) -> House:
    """An empty house; on PostgreSQL a namespace of its own in a shared one."""
    if request.param == "sqlite":
        return House()
    shared: House = request.getfixturevalue("postgres_street")
    return shared.elsewhere(f"access-{request.node.name[:40]}")


def make(house: House, key: str = "ci", **fields: Any) -> str:
    """A key that reads, or another; gives back its token."""
    wanted = fields if {"role", "scopes"} & set(fields) else {"role": "viewer", **fields}
    return str(house.ask("key create", key=f"{key} {house.context.namespace}", **wanted)["token"])


def come_in(house: House, token: str, namespace: str | None = None) -> Context:
    return acting(house.context, authenticate(house.context, token), namespace)


# Keys.


def test_a_key_lets_in_who_has_its_token_with_its_scopes_and_in_its_namespace(house: House) -> None:
    caller = authenticate(house.context, make(house, "grafana", role="operator", origin="agent"))
    assert caller.actor.startswith("grafana")
    assert caller.origin == "agent"
    assert caller.scopes == {"read", "trigger", "hint"}
    assert caller.namespaces == (house.context.namespace,)
    assert not caller.local


def test_a_token_is_256_random_bits_behind_a_prefix_and_never_the_same_twice(house: House) -> None:
    tokens = [make(house, f"key {number}") for number in range(3)]
    assert len(set(tokens)) == 3
    for token in tokens:
        start, prefix, secret = token.split("_", 2)
        assert (start, len(prefix), len(secret)) == ("tw", 12, 43)


def test_nothing_in_the_store_opens_a_door(house: House) -> None:
    token = make(house)
    kept = str(dump(house.store))
    prefix, secret = token.split("_", 2)[1:]
    assert prefix in kept
    assert secret not in kept
    answers = as_json([house.ask("key list", all=True), house.ask("audit list")])
    assert secret not in answers
    digest = house.context.doorkeeper.keyring.current.digest(token) if house.context.doorkeeper else ""
    assert digest in kept
    assert digest not in answers


def test_the_files_of_a_store_hold_no_token_but_the_private_ones(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    store = open_store(place)
    context = Context(
        store=store, ids=TimedIds(), doorkeeper=doorkeeper_for(place, Settings()), tell=lambda facts: None
    )
    admin = local_key(context, tmp_path / "store.db.admin")
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


def test_unknown_wrong_expired_and_revoked_keys_are_refused_in_the_same_words(house: House) -> None:
    good, over, gone = make(house, "good"), make(house, "over", expires_in="1m"), make(house, "gone")
    other = make(house, "other")
    house.ask("key revoke", key=f"gone {house.context.namespace}")
    house.sleep(minutes=1)
    mixed = "_".join([*good.split("_", 2)[:2], other.split("_", 2)[2]])
    tried = [*ODD_TOKENS, over, gone, good[:-1], f"{good}x", f" {good}", good.upper(), mixed]
    said = {refusal_of(house, token) for token in tried}
    assert len(said) == 1
    assert authenticate(house.context, good).actor.startswith("good")


def refusal_of(house: House, token: str) -> str:
    with pytest.raises(Unauthorized) as refusal:
        authenticate(house.context, token)
    return refusal.value.explain()


def test_a_key_expires_at_its_instant_and_not_before(house: House) -> None:
    token = make(house, expires_in="1h")
    house.sleep(minutes=59, seconds=59)
    assert authenticate(house.context, token).actor
    house.sleep(seconds=1)
    with pytest.raises(Unauthorized):
        authenticate(house.context, token)


def test_a_rotated_key_permits_the_same_and_the_old_one_opens_until_the_overlap_is_over(house: House) -> None:
    old = make(house, "ci", scopes=["read", "hint"])
    answer = house.ask("key rotate", key=f"ci {house.context.namespace}", overlap="10m")
    new = answer["token"]
    assert authenticate(house.context, new).scopes == authenticate(house.context, old).scopes
    house.sleep(minutes=10)
    assert authenticate(house.context, new).actor
    with pytest.raises(Unauthorized):
        authenticate(house.context, old)
    newest = house.ask("key rotate", key=answer["key"]["id"])["token"]
    assert authenticate(house.context, newest).actor
    with pytest.raises(Unauthorized):
        authenticate(house.context, new)


def test_the_last_use_is_written_at_most_once_a_minute_and_not_while_someone_waits(house: House) -> None:
    token = make(house)
    keep_uses(house.context)
    before = dump(house.store)
    for _ in range(5):
        authenticate(house.context, token)
    assert dump(house.store) == before
    assert keep_uses(house.context) == 1
    used = house.ask("key get", key=f"ci {house.context.namespace}")["key"]["used_at"]
    assert used is not None
    authenticate(house.context, token)
    assert keep_uses(house.context) == 0
    house.sleep(minutes=1)
    authenticate(house.context, token)
    assert keep_uses(house.context) == 1


def test_a_name_tells_one_key_in_force_and_is_free_again_after_it(house: House) -> None:
    make(house)
    with pytest.raises(Conflict, match="is taken"):
        make(house)
    house.ask("key revoke", key=f"ci {house.context.namespace}")
    make(house)
    rows = house.ask("key list", all=True)["keys"]
    assert [row["state"] for row in rows if row["name"].startswith("ci")].count("revoked") == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"key": "x"}, "role"),
        ({"key": "x", "role": "viewer", "scopes": ["read"]}, "role"),
        ({"key": "x", "role": "owner"}, "role"),
        ({"key": "x", "scopes": ["everything"]}, "scopes[0]"),
        ({"key": "x", "role": "viewer", "expires_in": "1s"}, "expires_in"),
        ({"key": "x", "role": "viewer", "expires_in": "100000d"}, "expires_in"),
        ({"key": "x", "role": "viewer", "within": ["a\nb"]}, "within"),
        ({"key": "", "role": "viewer"}, "key"),
        ({"key": "x", "role": "viewer", "origin": "root"}, "origin"),
    ],
)
def test_a_key_that_cannot_be_meant_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        House().ask("key create", fields)
    assert refusal.value.field == field
    assert refusal.value.fix


# What a key permits.

EVERY = [pytest.param(one, id=one.name) for one in operations]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("one", EVERY)
def test_each_role_may_do_what_its_scopes_say_and_nothing_else(one: Operation[Any], role: Any) -> None:
    caller = Caller(actor="somebody", scopes=ROLES[role])
    context = replace(EMPTY.context, caller=caller)
    if one.scope in caller.scopes:
        with pytest.raises(TimewrightError) as refusal:
            one(context, {"nobody knows this": 1})
        assert not isinstance(refusal.value, Forbidden)
        return
    with pytest.raises(Forbidden) as refusal:
        # Whoever may not is told so, and not what is wrong with the request.
        one(context, {"nobody knows this": 1})
    assert one.scope in refusal.value.message
    assert any(able in (refusal.value.rule or "") for able in ROLES if one.scope in ROLES[able])
    assert role not in (refusal.value.rule or "").partition(";")[0]


EMPTY = House()


def test_a_caller_without_scopes_may_do_nothing_and_the_local_one_everything() -> None:
    nobody = replace(EMPTY.context, caller=Caller(actor="nobody"))
    for one in operations:
        assert one.scope in LOCAL.scopes
        with pytest.raises(Forbidden):
            one(nobody, one.examples[0])


def test_roles_contain_one_another_and_only_admin_sees_keys_and_secrets() -> None:
    assert ROLES["viewer"] < ROLES["operator"] < ROLES["editor"] < ROLES["admin"]
    assert ROLES["admin"] - ROLES["editor"] == {"admin", "secret"}
    needs = {one.scope for one in operations if one.noun in ("key", "secret")}
    assert needs == {"admin", "secret"}


def test_what_a_caller_writes_carries_its_name_and_origin(house: House) -> None:
    inside = come_in(house, make(house, "agent", role="editor", origin="agent"))
    operations["schedule create"](inside, {"name": "by-agent", "every": "1h", "note": "hi", "reason": "why"})
    found = house.ask("schedule get", schedule="by-agent")["schedule"]
    assert (found["created_by"], found["origin"]) == (inside.caller.actor, "agent")
    (line,) = house.ask("audit list", origin="agent")["entries"]
    assert (line["actor"], line["action"], line["reason"]) == (inside.caller.actor, "schedule.create", "why")


def test_a_caller_sees_its_own_namespace_and_no_other(house: House) -> None:
    token = make(house)
    assert come_in(house, token).namespace == house.context.namespace
    for other in ("elsewhere", "default " if house.context.namespace == "default" else "default"):
        with pytest.raises((Forbidden, InvalidInput)):
            come_in(house, token, other)
    everywhere = make(house, "everywhere", within=["*"])
    assert come_in(house, everywhere, "elsewhere").namespace == "elsewhere"


def test_nobody_hands_on_more_than_they_have(house: House) -> None:
    admin = come_in(house, make(house, "admin", role="admin"))
    create = operations["key create"]
    with pytest.raises(Forbidden, match="more than yours"):
        create(admin, {"key": "wider", "role": "viewer", "within": ["*"]})
    with pytest.raises(Forbidden, match="more than yours"):
        create(admin, {"key": "wider", "role": "viewer", "within": [admin.namespace, "other"]})
    keeper = come_in(house, make(house, "keeper", scopes=["admin", "read"]))
    with pytest.raises(Forbidden, match="more than yours"):
        create(keeper, {"key": "stronger", "role": "editor"})
    assert create(keeper, {"key": f"weaker {admin.namespace}", "role": "viewer"})["token"]


def test_keys_that_open_more_than_a_caller_may_see_are_not_there_for_it(house: House) -> None:
    wide = house.ask("key create", key=f"wide {house.context.namespace}", role="admin", within=["*"])["key"]
    admin = come_in(house, make(house, "admin", role="admin"))
    assert wide["id"] not in as_json(operations["key list"](admin, {"all": True}))
    for name in (wide["id"], wide["name"]):
        for verb in ("get", "revoke", "rotate"):
            with pytest.raises(NotFound):
                operations[f"key {verb}"](admin, {"key": name})
    house.ask("key revoke", key=wide["id"])


def test_a_key_that_is_bound_to_a_namespace_does_not_set_its_quotas(house: House) -> None:
    admin = come_in(house, make(house, "admin", role="admin"))
    for verb in ("create", "set"):
        with pytest.raises(Forbidden):
            operations[f"namespace {verb}"](admin, {"name": admin.namespace, "schedules": 10**6})
    shown = operations["namespace list"](admin, {})["namespaces"]
    assert [one["name"] for one in shown] == [admin.namespace]
    with pytest.raises(NotFound):
        operations["namespace get"](admin, {"name": "team-a"})


# The secret key, the local key, links.


def test_a_context_without_a_keyring_lets_nobody_in(house: House) -> None:
    token = make(house)
    with pytest.raises(NotAllowed):
        authenticate(replace(house.context, doorkeeper=None), token)


def test_another_secret_key_is_noticed_and_named_instead_of_refusing_every_key() -> None:
    house = House()
    token = make(house)
    stranger = Doorkeeper(lambda: drawn_from([b"another key, also of 32 letters."]))
    with pytest.raises(UnsafeStore, match="another secret key"):
        authenticate(replace(house.context, doorkeeper=stranger), token)


def test_a_new_secret_key_before_the_old_one_keeps_old_keys_open() -> None:
    house = House()
    token = make(house)
    old = b"a secret key for tests, not more"
    both = Doorkeeper(lambda: drawn_from([b"another key, also of 32 letters.", old]))
    context = replace(house.context, doorkeeper=both)
    assert authenticate(context, token).actor
    newer = operations["key create"](context, {"key": "newer", "role": "viewer"})["token"]
    assert authenticate(context, newer).actor


def test_the_secret_key_is_made_once_in_a_file_only_its_owner_reads(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    first = doorkeeper_for(place, Settings()).keyring
    path = private_place(place, "key")
    assert path == tmp_path / "store.db.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert doorkeeper_for(place, Settings()).keyring == first
    assert [one.name for one in tmp_path.iterdir()] == ["store.db.key"]


def test_a_secret_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    doorkeeper_for(place, Settings()).ready()
    (tmp_path / "store.db.key").chmod(0o640)
    with pytest.raises(UnsafeStore, match="may be read or written by others") as refusal:
        _ = doorkeeper_for(place, Settings()).keyring
    assert refusal.value.fix == f"chmod 600 {place}.key"


def test_a_secret_key_from_elsewhere_goes_before_the_one_beside_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, file = tmp_path / "store.db", tmp_path / "key"
    file.write_text(f"# ours since march\n{new_master()}\n")
    file.chmod(0o600)
    by_file = doorkeeper_for(place, Settings(secret_key_file=str(file))).keyring
    monkeypatch.setenv("TIMEWRIGHT_SECRET_KEY", "ab" * 32)
    by_word = doorkeeper_for(place, Settings(secret_key_file=str(file))).keyring
    assert by_word == drawn_from([bytes.fromhex("ab" * 32)]) != by_file
    assert not (tmp_path / "store.db.key").exists()
    monkeypatch.delenv("TIMEWRIGHT_SECRET_KEY")
    with pytest.raises(InvalidInput, match="there is no secret key"):
        _ = doorkeeper_for(place, Settings(secret_key_file=f"{file}2")).keyring


@pytest.mark.parametrize("text", ["", "short", "password" * 8, "zz" * 32, "a" * 42, "# nothing\n", "é" * 43])
def test_a_weak_secret_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_masters(text, place="the environment")
    assert not text or text not in refusal.value.explain()


def test_the_local_key_is_made_at_the_first_start_and_found_at_the_second(tmp_path: Path) -> None:
    house, file = House(), tmp_path / "store.db.admin"
    token = local_key(house.context, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert local_key(house.context, file) == token == find_local_key(file)
    caller = authenticate(house.context, token)
    assert (caller.actor, caller.local, caller.scopes) == ("local-admin", True, LOCAL.scopes)
    assert caller.namespaces == ()


def test_a_local_key_whose_file_was_lost_is_revoked_and_replaced(tmp_path: Path) -> None:
    house, file = House(), tmp_path / "store.db.admin"
    lost = local_key(house.context, file)
    file.unlink()
    assert authenticate(house.context, local_key(house.context, file)).local
    with pytest.raises(Unauthorized):
        authenticate(house.context, lost)


def test_two_machines_on_one_store_each_have_a_local_key(tmp_path: Path) -> None:
    house = House()
    first, second = (local_key(house.context, tmp_path / name) for name in ("one.admin", "two.admin"))
    assert first != second
    assert authenticate(house.context, first).local
    assert authenticate(house.context, second).local


def test_nobody_makes_another_local_key_by_rotating_it(tmp_path: Path) -> None:
    house = House()
    local_key(house.context, tmp_path / "store.db.admin")
    with pytest.raises(NotAllowed, match="not rotated"):
        house.ask("key rotate", key="local-admin")


def test_a_local_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    house, file = House(), tmp_path / "store.db.admin"
    local_key(house.context, file)
    file.chmod(0o644)
    with pytest.raises(UnsafeStore):
        local_key(house.context, file)


def test_a_link_lets_one_browser_in_once_and_soon() -> None:
    house = House()
    keeper = house.context.doorkeeper
    assert keeper is not None
    link = keeper.new_link(LOCAL, now=house.now)
    assert keeper.redeem("nobody's", now=house.now) is None
    assert keeper.redeem(link, now=house.now + timedelta(minutes=4)) == LOCAL
    assert keeper.redeem(link, now=house.now) is None
    late = keeper.new_link(LOCAL, now=house.now)
    assert keeper.redeem(late, now=house.now + timedelta(minutes=5)) is None
