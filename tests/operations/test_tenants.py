"""Two tenants, every operation: whatever one names, nothing of the other is found, shown or changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import inspect as mi
from msgspec.structs import replace

from tests.operations.house import OLD_TOKEN, House, as_json, dump, furnished
from timewright.errors import NotFound, TimewrightError
from timewright.operations import Operation, operations
from timewright.operations.access import EVERYTHING, Caller, acting
from timewright.operations.examples import FAILED_RUN, LEASE, LEASED_RUN, PARKED_RUN

TENANT = Caller(actor="mallory", scopes=EVERYTHING, namespaces=("other",), key="aaaaaaaaaaaa")
# What only the first tenant's rows say.
THEIRS = (
    FAILED_RUN, LEASED_RUN, PARKED_RUN, LEASE, "nightly-report", "orders-poll", "paused-export", "old-token",
    "grafana-old", "holidays", "old-office", "crm-api", "finance", "example.com", "mailbox is full", "team-a",
    "the disk is full", "502 Bad Gateway", OLD_TOKEN,
)  # fmt: skip
NAMES = ("nightly-report", "reports", "holidays", "grafana-old", "old-token", "crm-api", "team-a")
# An entry of one's own queue may have the name that another's queue has; then it is one's own that is meant.
OWN = ("mail",)
EVERY = [pytest.param(one, id=one.name) for one in operations]


def ids_of(house: House) -> tuple[str, ...]:
    """Every id of the first tenant, and the names its things have."""
    rows = house.ask("schedule list")["schedules"]
    keys = house.ask("key list", all=True)["keys"]
    runs = (LEASED_RUN, PARKED_RUN, FAILED_RUN)
    return (*(row["id"] for row in rows), *(row["id"] for row in keys), *runs, LEASE, *NAMES, *OWN)


def texts_of(one: Operation[Any]) -> Iterator[str]:
    """The fields of a request in which someone could put the id of something."""
    info = mi.type_info(one.request)
    assert isinstance(info, mi.StructType)
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, mi.UnionType) else (field.type,)
        if any(isinstance(kind, mi.StrType) for kind in kinds) and field.encode_name not in (
            "reason",
            "value",
        ):
            yield field.encode_name
    if one.request.spreads is not None and "name" in one.request.spreads[1].__struct_fields__:
        yield "name"


def tried(one: Operation[Any], foreign: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request that names something of the first tenant, in any field; and the examples as they are."""
    for example in one.examples:
        yield "", dict(example)
    for field in texts_of(one):
        for name in foreign:
            yield name, {**one.examples[0], field: name}


@pytest.mark.parametrize("one", EVERY)
def test_a_tenant_finds_nothing_of_another_whatever_it_names(one: Operation[Any]) -> None:
    house = furnished()
    check(house, one, keep=True)


@pytest.mark.parametrize("one", EVERY)
def test_a_tenant_finds_nothing_of_another_on_postgresql(postgres_house: House, one: Operation[Any]) -> None:
    check(postgres_house, one, keep=False)


def check(house: House, one: Operation[Any], *, keep: bool) -> None:
    foreign = ids_of(house)
    hidden = {*foreign, *THEIRS} - {"reports", "mail"}
    told: list[Any] = []
    context = acting(replace(house.context, tell=told.extend), TENANT)
    before = rows_of(house)
    for name, payload in tried(one, foreign):
        rehearsed = {} if one.reads_only or keep else {"dry_run": True}
        said = said_to(one, context, {**payload, **rehearsed})
        mine = as_json([name, payload])
        shown = [word for word in hidden if word in said and word not in mine]
        assert shown == [], f"{payload} shows {shown}"
    after = rows_of(house)
    for table, rows in before.items():
        assert rows - after[table] == set(), f"rows of {table} changed"
        added = after[table] - rows
        assert [row for row in added if "other" not in row and "mallory" not in row] == []


def said_to(one: Operation[Any], context: Any, payload: Mapping[str, Any]) -> str:
    """The answer, or all that the refusal tells."""
    try:
        return as_json(one(context, payload))
    except TimewrightError as refusal:
        return as_json(refusal.problem())


def rows_of(house: House) -> dict[str, set[str]]:
    """Every row by table, but for the small facts about the store itself."""
    return {table: set(found) for table, found in dump(house.store).items() if table != "meta"}


ABOUT = [
    pytest.param(one, field, id=f"{one.name} {field}")
    for one in operations
    for field in ("schedule", "run", "lease", "calendar", "key", "secret", "group")
    if field in one.request.__struct_fields__
    # Made by its name, or a filter that fits nothing: nothing has to be found.
    and one.name not in {"key create", "secret set", "calendar put"}
    and (field != "group" or one.noun == "group")
]


@pytest.mark.parametrize(("one", "field"), ABOUT)
def test_the_id_of_another_tenant_is_as_unknown_as_one_nobody_ever_had(
    one: Operation[Any], field: str
) -> None:
    house = furnished()
    context = acting(house.context, TENANT)
    theirs = {
        "schedule": house.bench.find("nightly-report"),
        "run": LEASED_RUN,
        "lease": LEASE,
        "calendar": "holidays",
        "key": house.ask("key list")["keys"][0]["id"],
        "secret": "old-token",
        "group": "reports",
    }[field]
    nobodys = {"schedule": f"sch_{0:026d}", "run": f"run_{0:026d}", "lease": f"lease_{0:026d}"}.get(
        field, "nobody"
    )
    refusals = []
    for name in (theirs, nobodys):
        with pytest.raises(NotFound) as refusal:
            one(context, {**one.examples[0], **ids_only(one, field), field: name})
        refusals.append(refusal.value.explain().replace(name, "…"))
    assert refusals[0] == refusals[1]


def ids_only(one: Operation[Any], field: str) -> dict[str, Any]:
    """What else a request needs when this field names its subject."""
    if field == "run" and "fence" in one.request.__struct_fields__:
        return {"lease": "", "fence": 1} if "lease" in one.request.__struct_fields__ else {"fence": 1}
    return {"run": ""} if field == "lease" and "run" in one.request.__struct_fields__ else {}
