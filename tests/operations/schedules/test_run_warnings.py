"""A schedule that is accepted but cannot run is written with a warning."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operations.harness import OperationsHarness
from timewright import Cron, Settings
from timewright.errors import InvalidCron, UnknownField
from timewright.operations import operations
from timewright.settings import AllowedNetwork, EgressRules

PUBLISH = {"to": "celery", "name": "jobs.send", "url": "redis://localhost:6379/0"}


def warnings(harness: OperationsHarness, settings: Settings | None = None, **fields: Any) -> list[str]:
    context = replace(harness.context, settings=settings or Settings())
    request = {"name": "warned", "every": "5m", "dry_run": True, **fields}
    return list(operations["schedule create"](context, request)["warnings"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"publish": PUBLISH}, "publishing to celery is off"),
        ({"note": "x", "limits": ["crm"]}, "limit 'crm' is not set, so it allows one run at a time"),
        ({"http": "POST http://10.0.0.1/x"}, "requests to 10.0.0.1 are refused"),
        ({"http": "GET http://169.254.169.254/latest"}, "requests to 169.254.169.254 are refused"),
        ({"http": "GET http://[fd00::1]/"}, "requests to fd00::1 are refused"),
        ({"shell": ["echo", "$HOME/x"]}, "no shell interprets the command, so '$HOME/x' stays as it is"),
        ({"shell": ["ls", "~/bin"]}, "no shell interprets the command, so '~/bin' stays as it is"),
        ({"shell": ["cd", "/tmp"]}, "'cd' is a command of a shell, not a program; to use a shell: sh -c"),
        ({"call": "jobs.greet()"}, "a function has the name that its program gives it, without path"),
        ({"call": "jobs/greet.py"}, "a function has the name that its program gives it, without path"),
    ],
)
def test_a_target_that_cannot_run_is_warned_about(
    harness: OperationsHarness, fields: dict[str, Any], words: str
) -> None:
    assert any(one.startswith(words) for one in warnings(harness, **fields))


def test_an_allowed_target_is_not_warned_about(harness: OperationsHarness) -> None:
    harness.ask("limit set", limit="crm", max_running=2)
    assert warnings(harness, note="x", limits=["crm"]) == []
    assert warnings(harness, http="GET http://127.0.0.1:8000/") == []
    allowed_shell = Settings(shell=True)
    assert warnings(harness, allowed_shell, shell=["bash", "-c", "echo $HOME"]) == []
    assert warnings(harness, allowed_shell, shell=["echo", "costs $5", "a~b"]) == []
    assert warnings(harness, call="reports.morning") == []
    assert warnings(harness, http="GET https://93.184.216.34/") == []
    allowed = EgressRules(allow=(AllowedNetwork(cidr="10.0.0.0/8"),))
    assert warnings(harness, Settings(egress=allowed), http="GET http://10.0.0.1/x") == []
    assert warnings(harness, Settings(publish=("celery",)), publish=PUBLISH) == []


@pytest.mark.parametrize(
    "line", ["0 22 * * 1-5 root", "0 22 * * 1-5 ROOT /usr/bin/backup", "5 4 * * * www-data"]
)
def test_the_user_of_a_system_crontab_is_not_read_as_a_field(line: str) -> None:
    with pytest.raises(InvalidCron) as refusal:
        Cron(line)
    assert "line of a crontab" in refusal.value.message
    assert refusal.value.fix is not None
    assert refusal.value.fix.startswith(f"'{' '.join(line.split()[:5])}'")


def test_the_list_of_fields_in_an_error_is_complete(harness: OperationsHarness) -> None:
    with pytest.raises(UnknownField) as refusal:
        harness.ask("schedule create", name="x", evry="5m", note="x")
    listed = (refusal.value.rule or "").removeprefix("the fields are: ").split(", ")
    assert {"every", "cron", "call", "trigger", "target", "retry", "tags", "max_running"} <= set(listed)
    assert "created_by" not in listed
