"""The authentication cache and the JSON encoding of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from tests.interfaces.http.http_client import ADMIN, HttpTestClient, bearer, client_for, create_key
from tests.operations.harness import KEYRING, NOON, OperationsHarness, sample_harness
from timewright.core.input.encoding import encode
from timewright.interfaces.http.responses import encode_answer, is_plain_for_msgspec
from timewright.operations import Operation, operations
from timewright.operations.access.auth_cache import DEFAULT_TTL_S, AuthCache, CachedCaller
from timewright.operations.views import RunSummary, ScheduleSummary
from timewright.ports import Transaction

T = TypeVar("T")
PATH = "/api/v1/schedules/nightly-report"
EXAMPLES = [
    pytest.param(one, example, id=f"{one.name} {number}")
    for one in operations
    for number, example in enumerate(one.examples)
]


class Counted:
    """A store that counts its reads."""

    def __init__(self, harness: OperationsHarness) -> None:
        self._store = harness.store
        self.now = harness.store.now
        self.close = harness.store.close
        self.reads = 0
        self.writes = 0

    def read(self, work: Callable[[Transaction], T]) -> T:
        self.reads += 1
        return self._store.read(work)

    def write(self, work: Callable[[Transaction], T], *, commit_at: datetime | None = None) -> T:
        self.writes += 1
        return self._store.write(work, commit_at=commit_at)


def counted(harness: OperationsHarness) -> Counted:
    store = Counted(harness)
    harness.context = replace(harness.context, store=store)
    return store


def asked(client: HttpTestClient, token: str) -> int:
    return client.request("GET", PATH, headers=bearer(token)).status


def test_a_cached_key_needs_no_store_access(harness: OperationsHarness) -> None:
    token = create_key(harness, "k", role="viewer")
    store = counted(harness)
    with client_for(harness, caller=None) as client:
        assert asked(client, token) == 200
        store.reads = store.writes = 0
        assert asked(client, token) == 200
        assert (store.reads, store.writes) == (1, 0)


def test_a_key_revoked_in_this_process_is_refused_immediately(harness: OperationsHarness) -> None:
    token, other = create_key(harness, "k", role="viewer"), create_key(harness, "other", role="viewer")
    with client_for(harness, caller=None) as client:
        assert [asked(client, one) for one in (token, other)] == [200, 200]
        harness.ask("key revoke", key="k")
        assert [asked(client, one) for one in (token, other)] == [401, 200]


def test_a_key_revoked_in_another_process_is_refused_after_two_seconds(harness: OperationsHarness) -> None:
    token = create_key(harness, "k", role="viewer")
    with client_for(harness, caller=None) as client:
        assert asked(client, token) == 200
        elsewhere = replace(harness.context, auth_cache=AuthCache(lambda: KEYRING))
        operations["key revoke"](elsewhere, {"key": "k"})
        harness.sleep(seconds=DEFAULT_TTL_S)
        assert asked(client, token) == 401


def test_an_expired_key_is_not_served_from_the_cache(harness: OperationsHarness) -> None:
    token = create_key(harness, "k", role="viewer", expires_in="1m")
    with client_for(harness, caller=None) as client:
        harness.sleep(seconds=59)
        assert asked(client, token) == 200
        harness.sleep(seconds=1)
        assert asked(client, token) == 401


def test_new_quotas_apply_to_the_next_request(harness: OperationsHarness) -> None:
    token = create_key(harness, "k", role="viewer")
    with client_for(harness, caller=None) as client:
        assert asked(client, token) == 200
        harness.ask("namespace create", name="default", requests_per_minute=1)
        # Of what was left under the old terms, one fits into the new ones.
        assert [asked(client, token) for _ in range(2)] == [200, 429]


def test_an_invalid_key_is_never_cached(harness: OperationsHarness) -> None:
    token = create_key(harness, "k", role="viewer")
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    with client_for(harness, caller=None) as client:
        assert [asked(client, one) for one in (token, wrong, token, wrong)] == [200, 401, 200, 401]


def test_a_caller_read_before_a_change_is_not_cached_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timewright.operations.access.auth_cache.MAX_ENTRIES", 2)
    memory, before = AuthCache(lambda: KEYRING), 0
    ada = CachedCaller(caller=ADMIN, now=NOON)
    memory.forget_callers()
    memory.put_caller("a", ada, at=0, generation=before)
    assert memory.get_caller("a", at=0) is None
    memory.put_caller("a", ada, at=0, generation=memory.generation)
    assert memory.get_caller("a", at=DEFAULT_TTL_S / 2) is not None
    assert memory.get_caller("a", at=DEFAULT_TTL_S) is None
    assert memory.get_caller("a", at=-1) is None
    for name in "bcd":
        memory.put_caller(name, ada, at=0, generation=memory.generation)
    assert memory.get_caller("d", at=0) is not None
    assert memory.get_caller("a", at=0) is None


@pytest.mark.parametrize(("one", "example"), EXAMPLES)
def test_every_answer_has_the_same_bytes_as_its_general_encoding(
    one: Operation[Any], example: Mapping[str, Any]
) -> None:
    answers: list[Any] = []

    def spell(answer: Any) -> dict[str, Any]:
        answers.append(answer)
        return {}

    one.call_with_encoder(sample_harness().context, example, spell)
    assert msgspec.json.encode(encode_answer(answers[0])) == msgspec.json.encode(encode(answers[0]))


def test_long_lists_and_zoned_times_have_the_general_encoding() -> None:
    assert is_plain_for_msgspec(ScheduleSummary)
    assert is_plain_for_msgspec(RunSummary)
    harness = sample_harness()
    harness.ask("schedule create", name="zoned", cron="0 9 * * *", zone="Europe/Berlin", note="x")
    harness.ask("schedule create", name="ruled", rrule="FREQ=DAILY", zone="America/New_York", note="x")
    for name in ("zoned", "ruled"):
        get = operations["schedule get"]
        expected = msgspec.json.encode(get(harness.context, {"schedule": name}))
        for _ in range(2):
            sent = get.call_with_encoder(harness.context, {"schedule": name}, encode_answer)
            assert msgspec.json.encode(sent) == expected
