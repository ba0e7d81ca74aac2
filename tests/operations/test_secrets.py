"""Secrets: kept locked, never shown, bound to their namespace, and opened by the key that locked them."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.doors.terminal import ask
from tests.operations.house import OLD_TOKEN, House, as_json, dump, furnished
from timewright.errors import (
    InvalidInput,
    MissingExtra,
    NotAllowed,
    NotFound,
    TimewrightError,
    UnreadableRow,
    UnsafeStore,
)
from timewright.ledger.keyring import Keyring, drawn_from
from timewright.ledger.sealing import seal, unseal
from timewright.ledger.secret_shelf import SECRET, reveal
from timewright.operations import operations
from timewright.operations.access import EVERYTHING, Caller, acting
from timewright.operations.doorkeeper import Doorkeeper
from timewright.operations.examples import LEASE
from timewright.ports import Stored, Transaction

CANARY = "canary-7d1f-é\n-second line of it"
OLD, NEW = b"an old secret key of 32 letters.", b"a new secret key, of 32 letters."


@pytest.fixture(params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest) -> House:
    """A house of its own; on PostgreSQL a namespace of its own in a shared one."""
    if request.param == "sqlite":
        return House()
    shared: House = request.getfixturevalue("postgres_street")
    return shared.elsewhere(f"secret-{request.node.name[:40]}")


def keyring_of(house: House) -> Keyring:
    assert house.context.doorkeeper is not None
    return house.context.doorkeeper.keyring


def shown(house: House, name: str) -> str:
    return reveal(house.store, keyring_of(house), namespace=house.context.namespace, name=name)


def test_a_secret_is_found_by_a_launch_and_shown_to_nobody(house: House) -> None:
    answer = house.ask("secret set", secret="crm-token", value=CANARY, reason="new vendor")
    assert shown(house, "crm-token") == CANARY
    said = as_json([answer, house.ask("secret list"), house.ask("audit list")])
    kept = str(dump(house.store))
    for piece in ("canary-7d1f", "second line of it"):
        assert piece not in said
        assert piece not in kept


def test_a_secret_that_is_set_again_has_the_new_value_and_a_new_revision(house: House) -> None:
    first = house.ask("secret set", secret="crm-token", value="one")["secret"]
    house.sleep(minutes=1)
    second = house.ask("secret set", secret="crm-token", value="two")["secret"]
    assert (first["revision"], second["revision"]) == (1, 2)
    assert first["created_at"] == second["created_at"] < second["set_at"]
    assert shown(house, "crm-token") == "two"


def test_a_secret_belongs_to_its_namespace(house: House) -> None:
    house.ask("secret set", secret="crm-token", value=CANARY)
    other = house.elsewhere(f"{house.context.namespace[:50]}-2")
    assert other.ask("secret list")["secrets"] == []
    with pytest.raises(NotFound):
        shown(other, "crm-token")
    with pytest.raises(NotFound):
        other.ask("secret delete", secret="crm-token")


def test_a_row_that_was_moved_or_changed_in_the_store_does_not_open(house: House) -> None:
    house.ask("secret set", secret="mine", value="mine")
    house.ask("secret set", secret="other", value="other")

    def rewrite(body: dict[str, Any]) -> None:
        def work(tx: Transaction) -> None:
            (row,) = tx.get_objects(SECRET, namespace=house.context.namespace, names=["mine"])
            tx.put_objects([msgspec.structs.replace(row, body=msgspec.json.encode(body))])

        house.store.write(work)

    def rows(tx: Transaction) -> list[Stored]:
        return tx.get_objects(SECRET, namespace=house.context.namespace)

    mine, other = (msgspec.json.decode(row.body) for row in house.store.read(rows))
    for sealed in (
        other["sealed"],
        {**mine["sealed"], "text": other["sealed"]["text"]},
        {**mine["sealed"], "key": "AAAA"},
    ):
        rewrite({**mine, "sealed": sealed})
        with pytest.raises(UnreadableRow):
            shown(house, "mine")
    rewrite(mine)
    assert shown(house, "mine") == "mine"


def test_a_secret_that_a_schedule_names_stays(house: House) -> None:
    house.ask("secret set", secret="crm-token", value=CANARY)
    house.ask(
        "schedule create",
        name="sync",
        every="1h",
        http="POST https://example.com/",
        headers={"Authorization": "Bearer secret://crm-token"},
    )
    assert house.ask("secret set", secret="crm-token", value="x")["used_by"] == ["sync"]
    with pytest.raises(NotAllowed, match="used by sync"):
        house.ask("secret delete", secret="crm-token")
    house.ask("schedule archive", schedule="sync")
    house.ask("secret delete", secret="crm-token")
    with pytest.raises(NotFound):
        shown(house, "crm-token")


@pytest.mark.parametrize("name", ["", " a", "a b", "-a", "a\nb", "é", "a" * 129, "../a", "secret://a"])
def test_a_name_that_no_target_could_write_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        House().ask("secret set", secret=name, value="x")
    assert refusal.value.field == "secret"


@pytest.mark.parametrize(
    "value", [["canary"], {"canary": 1}, "canary\0", "canary\ud800", "canary" * 20_000, "", None, 77711]
)
def test_a_value_that_cannot_be_kept_is_refused_without_repeating_it(value: Any) -> None:
    house = furnished()
    with pytest.raises(TimewrightError) as refusal:
        house.ask("secret set", secret="x", value=value)
    assert refusal.value.field == "value"
    said = f"{refusal.value.explain()} {refusal.value.problem()}"
    assert "canary" not in said
    assert "77711" not in said


def test_a_request_with_a_secret_does_not_show_it_when_it_is_printed() -> None:
    request = operations["secret set"].request(secret="x", value=CANARY)
    assert "canary" not in repr(request)
    assert "canary" not in repr(keyring_of(House()))


def test_a_new_secret_key_opens_what_the_old_one_locked_and_rotation_makes_the_old_one_needless() -> None:
    house = House()

    def under(*masters: bytes) -> House:
        again = house.elsewhere("default")
        again.context = replace(again.context, doorkeeper=Doorkeeper(lambda: drawn_from(masters)))
        return again

    under(OLD).ask("secret set", secret="a", value=CANARY)
    both = under(NEW, OLD)
    both.ask("secret set", secret="b", value="b")
    assert shown(both, "a") == CANARY
    rehearsed = both.ask("secret rotate", dry_run=True)
    assert both.ask("secret rotate") == rehearsed == {"rotated": 1, "left": 1}
    assert both.ask("secret rotate", everywhere=True) == {"rotated": 0, "left": 2}
    assert (shown(under(NEW), "a"), shown(under(NEW), "b")) == (CANARY, "b")
    with pytest.raises(UnsafeStore, match="another secret key"):
        shown(under(OLD), "a")


def test_the_same_value_is_never_locked_the_same_way_twice() -> None:
    ring = drawn_from([OLD]).current
    one, two = seal(ring, CANARY, place="p"), seal(ring, CANARY, place="p")
    assert one.text != two.text
    assert one.key != two.key
    assert unseal(drawn_from([OLD]), one, place="p") == CANARY
    with pytest.raises(UnreadableRow):
        unseal(drawn_from([OLD]), one, place="q")


def test_without_the_extra_a_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra) as refusal:
        House().ask("secret set", secret="a", value="b")
    assert refusal.value.fix == "pip install 'timewright[secrets]'"


def test_the_command_line_reads_a_secret_from_its_input_and_shows_it_nowhere(house: House) -> None:
    said = ask(house, "secret", "set", "pem", typed=f"{CANARY}\n")
    assert (said.code, said.err) == (0, "")
    assert "canary" not in said.out
    assert shown(house, "pem") == CANARY
    for words in (("secret", "list"), ("audit", "list"), ("secret", "delete", "pem")):
        for output in ("table", "json"):
            assert (
                "canary"
                not in ask(house, *words, "-o", output, "--dry-run" if words[1] == "delete" else "-q").out
            )


def test_old_values_of_the_furnished_house_are_nowhere() -> None:
    assert OLD_TOKEN not in str(dump(furnished().store))


# The audit log.


def test_the_chain_of_the_audit_log_names_the_first_line_that_was_changed(house: House) -> None:
    assert house.ask("audit verify")["intact"]
    for number in range(3):
        house.ask("secret set", secret=f"s{number}", value="x", reason=f"reason {number}")
    proof = house.ask("audit verify")
    assert proof["intact"]
    tampered = proof["lines"] - 1
    for change, back in (
        ("UPDATE audit SET actor = 'eve' WHERE seq = {}", "UPDATE audit SET actor = 'ada' WHERE seq = {}"),
        (
            "UPDATE audit SET reason = 'x' WHERE seq = {}",
            "UPDATE audit SET reason = 'reason 1' WHERE seq = {}",
        ),
    ):
        execute(house, change.format(tampered))
        found = house.ask("audit verify")
        assert (found["intact"], found["first_broken"]) == (False, tampered)
        assert found["entry"]["subject"] == "s1"
        execute(house, back.format(tampered))
        assert house.ask("audit verify")["intact"]


def test_a_line_that_was_taken_out_is_missed() -> None:
    house = furnished()
    lines = house.ask("audit verify")["lines"]
    execute(house, f"DELETE FROM audit WHERE seq = {lines}")
    assert house.ask("audit verify")["first_broken"] == lines
    execute(house, "DELETE FROM audit WHERE seq = 2")
    found = house.ask("audit verify")
    assert (found["intact"], found["first_broken"], found["entry"]) == (False, 2, None)


def execute(house: House, statement: str) -> None:
    """Write behind the back of the store."""
    store: Any = house.store
    if hasattr(store, "_writer"):
        store._writer.connection.execute(statement)
        return
    with store._pool.connection() as connection:
        connection.execute(statement)


def test_the_audit_log_is_sifted_by_who_from_where_and_when(house: House) -> None:
    house.ask("secret set", secret="a", value="x")
    middle: datetime = house.now
    house.sleep(minutes=5)
    agent = replace(house.context, by=replace(house.context.by, actor="bot", origin="agent"))
    operations["secret set"](agent, {"secret": "b", "value": "x"})

    def found(**filters: Any) -> list[str]:
        return [row["subject"] for row in house.ask("audit list", **filters)["entries"]]

    assert found(origin="agent") == found(actor="bot") == ["b"]
    assert found(until=middle.isoformat()) == ["a"]
    assert found(since=house.now.isoformat(), action="secret.") == ["b"]
    assert found(origin="file") == []


# Secrets that someone writes out.


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"kind": "http", "headers": {"Authorization": "Bearer canary"}}, "target.headers.Authorization"),
        ({"kind": "http", "headers": {"x-api-key": "canary"}}, "target.headers.x-api-key"),
        ({"kind": "http", "headers": {"Cookie": "sid=canary"}}, "target.headers.Cookie"),
        ({"kind": "shell", "env": {"DB_PASSWORD": "canary"}}, "target.env.DB_PASSWORD"),
        ({"kind": "shell", "env": {"TOKEN": "canary"}}, "target.env.TOKEN"),
        ({"kind": "http", "headers": {"Authorization": "Bearer secret://a"}}, ""),
        ({"kind": "http", "headers": {"X-Team": "finance"}}, ""),
        ({"kind": "shell", "env": {"TOKEN": "secret://a", "TOKENS": "5", "MODE": "x"}}, ""),
    ],
)
def test_a_key_cannot_leave_a_secret_in_plain_text_in_a_schedule(target: dict[str, Any], field: str) -> None:
    house = House()
    remote = acting(house.context, Caller(actor="ci", scopes=EVERYTHING, key="aaaaaaaaaaaa"))
    whole = {"url": "https://example.com"} if target["kind"] == "http" else {"command": ["true"]}
    request = {"name": "a", "every": "1h", "target": {**whole, **target}}
    if not field:
        operations["schedule create"](remote, request)
        return
    for verb in ("create", "put"):
        with pytest.raises(InvalidInput) as refusal:
            operations[f"schedule {verb}"](remote, request)
        assert refusal.value.field == field
        assert "canary" not in refusal.value.explain()
    house.ask("schedule create", request)


def test_what_is_told_in_a_reason_or_an_error_is_kept_without_what_follows_a_telling_name() -> None:
    house = furnished()
    house.ask("schedule pause", schedule="nightly-report", reason="they sent password=canary by mail")
    house.ask("queue release", lease=LEASE, failed=True, error="login failed: Authorization: Bearer canary")
    assert "canary" not in str(dump(house.store))
    assert house.ask("audit list", limit=1)["entries"][0]["reason"] == "they sent password=… by mail"
