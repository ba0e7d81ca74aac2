"""Tenant isolation: no operation of one tenant finds, shows or changes anything of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import inspect as mi
from msgspec.structs import replace

from tests.operations.harness import OLD_TOKEN, OperationsHarness, as_json, dump, sample_harness
from timewright.errors import NotFound, TimewrightError
from timewright.operations import Operation, operations
from timewright.operations.access.authentication import ALL_SCOPES, Caller, context_for
from timewright.operations.registry import FAILED_RUN, LEASE, LEASED_RUN, PARKED_RUN

TENANT = Caller(actor="mallory", scopes=ALL_SCOPES, namespaces=("other",), key="aaaaaaaaaaaa")
# Texts that occur only in the first tenant's rows.
THEIRS = (
    FAILED_RUN, LEASED_RUN, PARKED_RUN, LEASE, "nightly-report", "orders-poll", "paused-export", "old-token",
    "grafana-old", "holidays", "old-office", "crm-api", "finance", "example.com", "mailbox is full", "team-a",
    "the disk is full", "502 Bad Gateway", OLD_TOKEN,
)  # fmt: skip
NAMES = ("nightly-report", "reports", "holidays", "grafana-old", "old-token", "crm-api", "team-a")
# Queues of two tenants may have the same name; each tenant sees its own.
OWN = ("mail",)
# The schema of definition files is the same for every tenant.
EVERY = [pytest.param(one, id=one.name) for one in operations if one.name != "schema"]


def ids_of(harness: OperationsHarness) -> tuple[str, ...]:
    """Return every id and object name of the first tenant."""
    rows = harness.ask("schedule list")["schedules"]
    keys = harness.ask("key list", all=True)["keys"]
    runs = (LEASED_RUN, PARKED_RUN, FAILED_RUN)
    return (*(row["id"] for row in rows), *(row["id"] for row in keys), *runs, LEASE, *NAMES, *OWN)


def texts_of(one: Operation[Any]) -> Iterator[str]:
    """Return the fields of a request that can contain an id."""
    info = mi.type_info(one.request_type)
    assert isinstance(info, mi.StructType)
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, mi.UnionType) else (field.type,)
        if any(isinstance(kind, mi.StrType) for kind in kinds) and field.encode_name not in (
            "reason",
            "value",
        ):
            yield field.encode_name
    if one.request_type.flattens is not None and "name" in one.request_type.flattens[1].__struct_fields__:
        yield "name"


def tried(one: Operation[Any], foreign: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests that name objects of the first tenant in any field, and the examples."""
    for example in one.examples:
        yield "", dict(example)
    for field in texts_of(one):
        for name in foreign:
            yield name, {**one.examples[0], field: name}


@pytest.mark.parametrize("one", EVERY)
def test_a_tenant_finds_nothing_of_another(one: Operation[Any]) -> None:
    harness = sample_harness()
    check(harness, one, keep=True)


@pytest.mark.parametrize("one", EVERY)
def test_a_tenant_finds_nothing_of_another_on_postgresql(
    postgres_harness: OperationsHarness, one: Operation[Any]
) -> None:
    check(postgres_harness, one, keep=False)


def check(harness: OperationsHarness, one: Operation[Any], *, keep: bool) -> None:
    foreign = ids_of(harness)
    hidden = {*foreign, *THEIRS} - {"reports", "mail"}
    answer: list[Any] = []
    context = context_for(replace(harness.context, notify=answer.extend), TENANT)
    before = rows_of(harness)
    for name, payload in tried(one, foreign):
        rehearsed = {} if one.read_only or keep else {"dry_run": True}
        result = said_to(one, context, {**payload, **rehearsed})
        mine = as_json([name, payload])
        shown = [word for word in hidden if word in result and word not in mine]
        assert shown == [], f"{payload} shows {shown}"
    after = rows_of(harness)
    for table, rows in before.items():
        assert rows - after[table] == set(), f"rows of {table} changed"
        added = after[table] - rows
        assert [row for row in added if "other" not in row and "mallory" not in row] == []


def said_to(one: Operation[Any], context: Any, payload: Mapping[str, Any]) -> str:
    """Return the answer or the error as text."""
    try:
        return as_json(one(context, payload))
    except TimewrightError as error:
        return as_json(error.problem())


def rows_of(harness: OperationsHarness) -> dict[str, set[str]]:
    """Return every row by table, without the store's own metadata."""
    return {table: set(found) for table, found in dump(harness.store).items() if table != "meta"}


ABOUT = [
    pytest.param(one, field, id=f"{one.name} {field}")
    for one in operations
    for field in ("schedule", "run", "lease", "calendar", "key", "secret", "group")
    if field in one.request_type.__struct_fields__
    # Creating by name, or a filter without matches, needs no existing object.
    and one.name not in {"key create", "secret set", "calendar put"}
    # The key of a limit is an expression over its runs, with a test of its own below.
    and (one.name, field) != ("limit set", "key")
    and (field != "group" or one.noun == "group")
]


@pytest.mark.parametrize(("one", "field"), ABOUT)
def test_an_id_of_another_tenant_is_not_found(one: Operation[Any], field: str) -> None:
    harness = sample_harness()
    context = context_for(harness.context, TENANT)
    theirs = {
        "schedule": harness.bench.find("nightly-report"),
        "run": LEASED_RUN,
        "lease": LEASE,
        "calendar": "holidays",
        "key": harness.ask("key list")["keys"][0]["id"],
        "secret": "old-token",
        "group": "reports",
    }[field]
    nobodys = {"schedule": f"sch_{0:026d}", "run": f"run_{0:026d}", "lease": f"lease_{0:026d}"}.get(
        field, "nobody"
    )
    refusals = []
    for name in (theirs, nobodys):
        with pytest.raises(NotFound) as error:
            one(context, {**one.examples[0], **ids_only(one, field), field: name})
        refusals.append(error.value.explain().replace(name, "…"))
    assert refusals[0] == refusals[1]


def test_a_limit_with_a_key_counts_only_the_runs_of_its_tenant() -> None:
    harness = OperationsHarness()
    leased = []
    for context in (harness.context, context_for(harness.context, TENANT)):
        requests = (
            ("limit set", {"limit": "crm", "key": "payload.customer", "max_running": 1}),
            ("queue policy set", {"queue": "mail", "max_running": 9, "limits": ["crm"]}),
            ("queue add", {"queue": "mail", "payloads": [{"customer": "a"}, {"customer": "a"}]}),
        )
        for name, payload in requests:
            operations[name](context, payload)
        leased.append(len(operations["queue lease"](context, {"queue": "mail", "limit": 5})["leases"]))

    assert leased == [1, 1]


def ids_only(one: Operation[Any], field: str) -> dict[str, Any]:
    """Return the other fields that a request needs when this field names its object."""
    if field == "run" and "fence" in one.request_type.__struct_fields__:
        return {"lease": "", "fence": 1} if "lease" in one.request_type.__struct_fields__ else {"fence": 1}
    return {"run": ""} if field == "lease" and "run" in one.request_type.__struct_fields__ else {}
