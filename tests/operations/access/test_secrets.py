"""Secrets: encrypted, never shown, bound to their namespace; and verification of the audit log."""

from __future__ import annotations

import sys
from copy import copy
from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.interfaces.terminal import invoke
from tests.operations.harness import OLD_TOKEN, OperationsHarness, as_json, dump, sample_harness
from timewright.access.keyring import Keyring, derive_keyring
from timewright.access.secret_records import SECRET, decrypt, encrypt, read_secret_value
from timewright.core.target import SecretDestination
from timewright.errors import (
    Forbidden,
    InvalidInput,
    MissingExtra,
    NotAllowed,
    NotFound,
    TimewrightError,
    UnreadableRow,
    UnsafeStore,
)
from timewright.operations import operations
from timewright.operations.access.auth_cache import AuthCache
from timewright.operations.access.authentication import ALL_SCOPES, Caller, Scope, context_for
from timewright.operations.registry import LEASE
from timewright.ports import StoredObject, Transaction

CANARY = "canary-7d1f-é\n-second line of it"
OLD, NEW = b"an old secret key of 32 letters.", b"a new secret key, of 32 letters."


@pytest.fixture(params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest) -> OperationsHarness:
    """An empty harness; on PostgreSQL a separate namespace of a shared one."""
    if request.param == "sqlite":
        return OperationsHarness()
    shared: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
    return shared.in_namespace(f"secret-{request.node.name[:40]}")


def keyring_of(harness: OperationsHarness) -> Keyring:
    assert harness.context.auth_cache is not None
    return harness.context.auth_cache.keyring


def shown(harness: OperationsHarness, name: str) -> str:
    return read_secret_value(
        harness.store,
        keyring_of(harness),
        namespace=harness.context.namespace,
        name=name,
        destination=SecretDestination("host", "api.crm.example"),
    )


def test_a_secret_is_available_to_a_launch_and_never_shown(harness: OperationsHarness) -> None:
    answer = harness.ask("secret set", secret="crm-token", value=CANARY, reason="new vendor")
    assert shown(harness, "crm-token") == CANARY
    result = as_json([answer, harness.ask("secret list"), harness.ask("audit list")])
    kept = str(dump(harness.store))
    for piece in ("canary-7d1f", "second line of it"):
        assert piece not in result
        assert piece not in kept


def test_a_secret_that_is_set_again_has_the_new_value_and_a_new_revision(harness: OperationsHarness) -> None:
    first = harness.ask("secret set", secret="crm-token", value="one")["secret"]
    harness.sleep(minutes=1)
    second = harness.ask("secret set", secret="crm-token", value="two")["secret"]
    assert (first["revision"], second["revision"]) == (1, 2)
    assert first["created_at"] == second["created_at"] < second["set_at"]
    assert shown(harness, "crm-token") == "two"


def test_a_secret_belongs_to_its_namespace(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY)
    other = harness.in_namespace(f"{harness.context.namespace[:50]}-2")
    assert other.ask("secret list")["secrets"] == []
    with pytest.raises(NotFound):
        shown(other, "crm-token")
    with pytest.raises(NotFound):
        other.ask("secret delete", secret="crm-token")


def test_a_moved_or_changed_secret_row_cannot_be_decrypted(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="mine", value="mine")
    harness.ask("secret set", secret="other", value="other")

    def rewrite(body: dict[str, Any]) -> None:
        def work(tx: Transaction) -> None:
            (row,) = tx.get_objects(SECRET, namespace=harness.context.namespace, names=["mine"])
            tx.put_objects([msgspec.structs.replace(row, body=msgspec.json.encode(body))])

        harness.store.write(work)

    def rows(tx: Transaction) -> list[StoredObject]:
        return tx.get_objects(SECRET, namespace=harness.context.namespace)

    mine, other = (msgspec.json.decode(row.body) for row in harness.store.read(rows))
    for encrypted in (
        other["encrypted"],
        {**mine["encrypted"], "ciphertext": other["encrypted"]["ciphertext"]},
        {**mine["encrypted"], "wrapped_key": "AAAA"},
    ):
        rewrite({**mine, "encrypted": encrypted})
        with pytest.raises(UnreadableRow):
            shown(harness, "mine")
    rewrite(mine)
    assert shown(harness, "mine") == "mine"


def test_a_secret_in_use_cannot_be_deleted(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY)
    harness.ask(
        "schedule create",
        name="sync",
        every="1h",
        http="POST https://example.com/",
        headers={"Authorization": "Bearer secret://crm-token"},
    )
    assert harness.ask("secret set", secret="crm-token", value="x")["used_by"] == ["sync"]
    with pytest.raises(NotAllowed, match="used by sync"):
        harness.ask("secret delete", secret="crm-token")
    harness.ask("schedule archive", schedule="sync")
    harness.ask("secret delete", secret="crm-token")
    with pytest.raises(NotFound):
        shown(harness, "crm-token")


def test_a_secret_is_used_by_a_schedule_that_names_exactly_it_also_in_its_check(
    harness: OperationsHarness,
) -> None:
    for name in ("crm", "crm-token", "crm-token-2"):
        harness.ask("secret set", secret=name, value="x")
    check = {"url": "https://crm.example.com/changes", "headers": {"Authorization": "secret://crm-token-2"}}
    http = {"url": "https://crm.example.com/sync", "headers": {"Authorization": "Bearer secret://crm-token"}}
    harness.ask("schedule create", name="sync", every="1h", http=http, check={"http": check})
    used = {
        name: harness.ask("secret bind", secret=name)["used_by"]
        for name in ("crm", "crm-token", "crm-token-2")
    }
    assert used == {"crm": [], "crm-token": ["sync"], "crm-token-2": ["sync"]}


@pytest.mark.parametrize("name", ["", " a", "a b", "-a", "a\nb", "é", "a" * 129, "../a", "secret://a"])
def test_a_secret_name_unusable_in_references_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        OperationsHarness().ask("secret set", secret=name, value="x")
    assert error.value.field == "secret"


@pytest.mark.parametrize(
    "value", [["canary"], {"canary": 1}, "canary\0", "canary\ud800", "canary" * 20_000, "", None, 77711]
)
def test_an_invalid_value_is_rejected_without_repeating_it(value: Any) -> None:
    harness = sample_harness()
    with pytest.raises(TimewrightError) as error:
        harness.ask("secret set", secret="x", value=value)
    assert error.value.field == "value"
    result = f"{error.value.explain()} {error.value.problem()}"
    assert "canary" not in result
    assert "77711" not in result


def test_a_request_with_a_secret_does_not_show_it_when_it_is_printed() -> None:
    request = operations["secret set"].request_type(secret="x", value=CANARY)
    assert "canary" not in repr(request)
    assert "canary" not in repr(keyring_of(OperationsHarness()))


def test_rotation_re_encrypts_with_the_new_secret_key() -> None:
    harness = OperationsHarness()

    def under(*masters: bytes) -> OperationsHarness:
        again = harness.in_namespace("default")
        again.context = replace(again.context, auth_cache=AuthCache(lambda: derive_keyring(masters)))
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


def test_the_same_value_is_encrypted_differently_each_time() -> None:
    ring = derive_keyring([OLD]).current
    one, two = encrypt(ring, CANARY, context="p"), encrypt(ring, CANARY, context="p")
    assert one.ciphertext != two.ciphertext
    assert one.wrapped_key != two.wrapped_key
    assert decrypt(derive_keyring([OLD]), one, context="p") == CANARY
    with pytest.raises(UnreadableRow):
        decrypt(derive_keyring([OLD]), one, context="q")


def test_a_missing_extra_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra) as error:
        OperationsHarness().ask("secret set", secret="a", value="b")
    assert error.value.fix == "pip install 'timewright[secrets]'"


def test_the_command_line_reads_a_secret_from_standard_input_and_never_shows_it(
    harness: OperationsHarness,
) -> None:
    result = invoke(harness, "secret", "set", "pem", stdin=f"{CANARY}\n")
    assert (result.code, result.err) == (0, "")
    assert "canary" not in result.out
    assert shown(harness, "pem") == CANARY
    for words in (("secret", "list"), ("audit", "list"), ("secret", "delete", "pem")):
        for output in ("table", "json"):
            assert (
                "canary"
                not in invoke(
                    harness, *words, "-o", output, "--dry-run" if words[1] == "delete" else "-q"
                ).out
            )


def test_old_values_of_the_sample_data_are_nowhere() -> None:
    assert OLD_TOKEN not in str(dump(sample_harness().store))


# The audit log.


def test_audit_verification_names_the_first_changed_entry(harness: OperationsHarness) -> None:
    assert harness.ask("audit verify")["intact"]
    for number in range(3):
        harness.ask("secret set", secret=f"s{number}", value="x", reason=f"reason {number}")
    harness.store.write(lambda tx: tx.seal_audit())
    proof = harness.ask("audit verify")
    assert (proof["intact"], proof["unsealed"]) == (True, 0)
    tampered = proof["lines"] - 1
    for change, back in (
        (
            "UPDATE audit SET actor = 'mallory' WHERE seq = {}",
            "UPDATE audit SET actor = 'ada' WHERE seq = {}",
        ),
        (
            "UPDATE audit SET reason = 'x' WHERE seq = {}",
            "UPDATE audit SET reason = 'reason 1' WHERE seq = {}",
        ),
    ):
        execute(harness, change.format(tampered))
        found = harness.ask("audit verify")
        assert (found["intact"], found["first_broken"]) == (False, tampered)
        assert found["entry"]["subject"] == "s1"
        execute(harness, back.format(tampered))
        assert harness.ask("audit verify")["intact"]


def test_audit_verification_detects_a_removed_entry() -> None:
    harness = sample_harness()
    lines = harness.ask("audit verify")["lines"]
    execute(harness, f"DELETE FROM audit WHERE seq = {lines}")
    assert harness.ask("audit verify")["first_broken"] == lines
    execute(harness, "DELETE FROM audit WHERE seq = 2")
    found = harness.ask("audit verify")
    assert (found["intact"], found["first_broken"], found["entry"]) == (False, 2, None)


def execute(harness: OperationsHarness, statement: str) -> None:
    """Change a row directly in the database."""
    store: Any = harness.store
    if hasattr(store, "_writer"):
        store._writer.connection.execute(statement)
        return
    with store._pool.connection() as connection:
        connection.execute(statement)


def test_the_audit_log_is_filtered_by_actor_origin_and_time(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="a", value="x")
    middle: datetime = harness.now
    harness.sleep(minutes=5)
    agent = replace(harness.context, by=replace(harness.context.by, name="bot", origin="agent"))
    operations["secret set"](agent, {"secret": "b", "value": "x"})

    def found(**filters: Any) -> list[str]:
        return [row["subject"] for row in harness.ask("audit list", **filters)["entries"]]

    assert found(origin="agent") == found(actor="bot") == ["b"]
    assert found(until=middle.isoformat()) == ["a"]
    assert found(since=harness.now.isoformat(), action="secret.") == ["b"]
    assert found(origin="file") == []


# Secrets in plain text.


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"kind": "http", "headers": {"Authorization": "Bearer canary"}}, "target.headers.Authorization"),
        ({"kind": "http", "headers": {"x-api-key": "canary"}}, "target.headers.x-api-key"),
        ({"kind": "http", "headers": {"Private-Token": "canary"}}, "target.headers.Private-Token"),
        ({"kind": "http", "headers": {"X-Vault-Token": "canary"}}, "target.headers.X-Vault-Token"),
        ({"kind": "http", "headers": {"Cookie": "sid=canary"}}, "target.headers.Cookie"),
        ({"kind": "shell", "env": {"DB_PASSWORD": "canary"}}, "target.env.DB_PASSWORD"),
        ({"kind": "shell", "env": {"TOKEN": "canary"}}, "target.env.TOKEN"),
        ({"kind": "http", "headers": {"Authorization": "Bearer secret://a"}}, ""),
        ({"kind": "http", "headers": {"X-Team": "finance"}}, ""),
        ({"kind": "shell", "env": {"TOKEN": "secret://a", "TOKENS": "5", "MODE": "x"}}, ""),
    ],
)
def test_a_remote_caller_cannot_store_a_plain_text_secret_in_a_schedule(
    target: dict[str, Any], field: str
) -> None:
    harness = OperationsHarness()
    remote = context_for(harness.context, Caller(actor="ci", scopes=ALL_SCOPES, key="aaaaaaaaaaaa"))
    whole = {"url": "https://example.com"} if target["kind"] == "http" else {"command": ["true"]}
    request = {"name": "a", "every": "1h", "target": {**whole, **target}}
    if not field:
        operations["schedule create"](remote, request)
        return
    for verb in ("create", "put"):
        with pytest.raises(InvalidInput) as error:
            operations[f"schedule {verb}"](remote, request)
        assert error.value.field == field
        assert "canary" not in error.value.explain()
    harness.ask("schedule create", request)


@pytest.mark.parametrize("executor", [False, True])
@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"kind": "http", "headers": {"Authorization": "Bearer canary"}}, "headers.Authorization"),
        ({"kind": "http", "headers": {"Private-Token": "canary"}}, "headers.Private-Token"),
        ({"kind": "shell", "env": {"DB_PASSWORD": "canary"}}, "env.DB_PASSWORD"),
        ({"kind": "http", "headers": {"X-Vault-Token": "secret://vault"}}, ""),
        ({"kind": "shell", "env": {"DB_PASSWORD": "secret://db"}}, ""),
    ],
)
def test_a_remote_caller_cannot_store_a_plain_text_secret_in_a_workflow(
    target: dict[str, Any], field: str, *, executor: bool
) -> None:
    if executor and target["kind"] == "shell":
        return
    harness = OperationsHarness()
    remote = context_for(harness.context, Caller(actor="ci", scopes=ALL_SCOPES, key="aaaaaaaaaaaa"))
    whole = {"url": "https://example.com"} if target["kind"] == "http" else {"command": ["true"]}
    note = {"name": "first", "target": {"kind": "note", "text": "x"}}
    parts: dict[str, Any] = {"executor": {**whole, **target}, "steps": [note]}
    if not executor:
        parts = {"steps": [note, {"name": "second", "target": {**whole, **target}}]}
    if not field:
        operations["workflow put"](remote, {"name": "flow", **parts})
        return
    with pytest.raises(InvalidInput) as error:
        operations["workflow put"](remote, {"name": "flow", **parts})
    assert error.value.field == f"{'executor' if executor else 'steps[1].target'}.{field}"
    assert "canary" not in error.value.explain()
    harness.ask("workflow put", {"name": "flow", **parts})


def test_reasons_and_errors_are_stored_without_secrets() -> None:
    harness = sample_harness()
    harness.ask("schedule pause", schedule="nightly-report", reason="they sent password=canary by mail")
    harness.ask("queue release", lease=LEASE, failed=True, error="login failed: Authorization: Bearer canary")
    assert "canary" not in str(dump(harness.store))
    assert harness.ask("audit list", limit=1)["entries"][0]["reason"] == "they sent password=… by mail"


def guest(harness: OperationsHarness, *scopes: Scope, origin: str = "human") -> OperationsHarness:
    """The harness as seen by a remote key with read, write and some scopes."""
    caller = Caller(actor="guest", scopes=frozenset({"read", "write", *scopes}), origin=origin)
    other = copy(harness)
    other.context = context_for(harness.context, caller, harness.context.namespace)
    return other


def create(harness: OperationsHarness, url: str = "https://api.crm.example/v1", **fields: Any) -> Any:
    target = {"kind": "http", "url": url, "headers": {"Authorization": "Bearer secret://crm-token"}}
    return harness.ask("schedule create", **{"name": "sync", "every": "1h", "target": target, **fields})


def test_write_alone_does_not_allow_the_use_of_a_secret(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY, hosts=["api.crm.example"])
    with pytest.raises(Forbidden) as refusal:
        create(guest(harness))
    assert refusal.value.value == "secret-use"
    assert create(guest(harness, "secret-use"))["schedule"]["name"] == "sync"


def test_a_key_without_secret_use_may_edit_the_rest_of_a_schedule(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY, hosts=["api.crm.example"])
    create(harness)
    guest(harness).ask("schedule update", schedule="sync", every="2h")
    moved = {"kind": "http", "url": "https://api.crm.example/v2", "headers": {"X-Key": "secret://crm-token"}}
    with pytest.raises(Forbidden):
        guest(harness).ask("schedule update", schedule="sync", target=moved)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.crm.example/v1", True),
        ("https://API.crm.example:8443/v1", True),
        ("https://eu.crm.example/", True),
        ("https://crm.example/", False),
        ("https://api.crm.example.attacker.test/", False),
        ("https://attacker.test/?x=api.crm.example", False),
        ("https://api.crm.example@attacker.test/", False),
    ],
)
def test_a_bound_secret_goes_only_to_its_hosts(url: str, allowed: bool) -> None:
    harness = OperationsHarness()
    harness.ask("secret set", secret="crm-token", value=CANARY, hosts=["api.crm.example", "*.crm.example"])
    if allowed:
        assert create(harness, url)["warnings"] == []
    else:
        with pytest.raises(TimewrightError, match=r"may not go to host|user name"):
            create(harness, url)


def test_the_binding_is_checked_again_at_each_launch(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY)
    assert shown(harness, "crm-token") == CANARY
    bound = harness.ask("secret bind", secret="crm-token", hosts=["other.example"], users=["ci"])["secret"]
    assert (bound["hosts"], bound["users"], bound["revision"]) == (["other.example"], ["ci"], 2)
    with pytest.raises(NotAllowed, match=r"may not go to host api\.crm\.example"):
        shown(harness, "crm-token")
    harness.ask("secret set", secret="crm-token", value="new")
    with pytest.raises(NotAllowed):
        shown(harness, "crm-token")


def test_a_command_gets_a_secret_only_if_the_secret_names_it(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY, commands=["/usr/bin/report"])
    for program, allowed in (("/usr/bin/report", True), ("/usr/bin/env", False)):
        target = {"kind": "shell", "command": [program], "env": {"TOKEN": "secret://crm-token"}}
        if allowed:
            create(harness, target=target, name=program[9:])
        else:
            with pytest.raises(NotAllowed, match="may not go to command /usr/bin/env"):
                create(harness, target=target, name=program[9:])


def test_only_the_named_users_may_refer_to_a_secret(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY, hosts=["api.crm.example"], users=["ci"])
    with pytest.raises(Forbidden, match="guest may not use"):
        create(guest(harness, "secret-use"))
    harness.ask("secret bind", secret="crm-token", hosts=["api.crm.example"], users=["ci", "guest"])
    create(guest(harness, "secret-use"))


def test_an_unbound_secret_is_refused_for_an_agent_and_warned_about_for_a_person(
    harness: OperationsHarness,
) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY)
    with pytest.raises(Forbidden, match="not bound to a destination"):
        create(guest(harness, "secret-use", origin="agent"))
    (warning,) = create(guest(harness, "secret-use"))["warnings"]
    assert warning.endswith("timewright secret bind crm-token --host api.crm.example")


def test_a_missing_secret_is_warned_about(harness: OperationsHarness) -> None:
    (warning,) = create(guest(harness, "secret-use"))["warnings"]
    assert warning == (
        "there is no secret crm-token, and runs fail without it: timewright secret set crm-token"
    )


def test_a_new_step_of_a_workflow_needs_secret_use_too(harness: OperationsHarness) -> None:
    harness.ask("secret set", secret="crm-token", value=CANARY, hosts=["api.crm.example"])
    target = {"kind": "http", "url": "https://api.crm.example", "headers": {"X-Key": "secret://crm-token"}}
    steps: list[dict[str, Any]] = [{"name": "sync", "target": target}]
    with pytest.raises(Forbidden):
        guest(harness).ask("workflow put", name="crm", steps=steps)
    harness.ask("workflow put", name="crm", steps=steps)
    steps.append({"name": "after", "target": {"kind": "note", "text": "done"}, "needs": ["sync"]})
    assert guest(harness).ask("workflow put", name="crm", steps=steps)["version"] == 2
    steps[0] = {"name": "sync", "target": {**target, "url": "https://attacker.test"}}
    with pytest.raises(Forbidden):
        guest(harness).ask("workflow put", name="crm", steps=steps)
    with pytest.raises(NotAllowed):
        guest(harness, "secret-use").ask("workflow put", name="crm", steps=steps)


@pytest.mark.parametrize("host", ["https://api.example", "api.example:443", "api.example/x", "*", "", "a b"])
def test_a_host_that_is_not_a_name_is_refused(harness: OperationsHarness, host: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        harness.ask("secret set", secret="crm-token", value=CANARY, hosts=[host])
    assert refusal.value.field is not None
    assert refusal.value.field.startswith("hosts")
