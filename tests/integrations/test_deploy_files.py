"""The files of `deploy`: what can be checked without a container engine."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.project import ROOT
from timewright.interfaces.cli.process.setup_commands import unit_text
from timewright.interfaces.cli.root import cli
from timewright.interfaces.cli.session import Session

DEPLOY = ROOT / "deploy"


def check_command(words: list[str]) -> None:
    """The command line knows this command and its options."""
    name, *rest = words
    with click.Context(cli, obj=Session()) as context:
        command = cli.get_command(context, name)
        assert command is not None, name
        command.make_context(name, list(rest), parent=context)


def test_the_services_of_compose_call_commands_that_exist() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    assert services["worker"]["deploy"]["replicas"] == 2
    for name in ("up", "worker"):
        check_command(services[name]["command"])
        assert services[name]["depends_on"]["setup"]["condition"] == "service_completed_successfully"
    for command in re.findall(r"timewright ([^&|>)]+)", services["setup"]["command"][0]):
        words = command.split()
        check_command(words[:1]) if words[0] == "migrate" else check_command(words[:2])


def test_every_file_that_compose_mounts_exists() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    mounted = [one.split(":")[0] for service in services.values() for one in service.get("volumes", [])]
    paths = [DEPLOY / one for one in mounted if one.startswith(".")]
    assert paths
    assert [path for path in paths if not path.exists()] == []
    for path in DEPLOY.rglob("*.yaml"):
        assert [*yaml.safe_load_all(path.read_text("utf-8"))], path


def test_the_image_does_not_run_as_root_and_has_a_health_check() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    assert "USER 65532" in lines
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    assert all((ROOT / one).exists() for names in copied for one in names)
    included = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {f"!{one}" for names in copied for one in names} <= set(included)


def test_the_manifest_has_only_fields_that_kubernetes_knows() -> None:
    """Reading drops unknown fields and refuses missing ones, so what is written back is the same."""
    from kubernetes_asyncio.client import ApiClient

    class Response:
        def __init__(self, data: Any) -> None:
            self.data = json.dumps(data)

    async def read_back(document: dict[str, Any]) -> Any:
        async with ApiClient() as api:
            kind = {"Deployment": "V1Deployment", "Service": "V1Service"}[document["kind"]]
            return api.sanitize_for_serialization(api.deserialize(Response(document), kind))

    documents = [*yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))]
    assert [document["kind"] for document in documents] == ["Deployment", "Deployment", "Service"]
    for document in documents:
        assert asyncio.run(read_back(document)) == document
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", []):
            check_command(container["args"])


def test_the_unit_of_a_user_is_one_that_systemd_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unit = tmp_path / "timewright.service"
    unit.write_text(unit_text("timewright.db", "jobs:app"))
    assert f'Environment="TIMEWRIGHT_STORE={tmp_path}/timewright.db"' in unit.read_text()
    assert unit.read_text().count("-m timewright up --app jobs:app\n") == 1
    check = shutil.which("systemd-analyze")
    if check is not None:
        done = subprocess.run(
            [check, "verify", "--user", unit], capture_output=True, text=True, check=False, env={"HOME": "/"}
        )
        assert "timewright.service" not in done.stderr, done.stderr


def test_service_install_writes_the_unit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    unit = tmp_path / "systemd/user/timewright.service"
    assert cli.main(["service", "install"], standalone_mode=False) != 0
    assert not unit.exists()
    assert cli.main(["service", "install", "--user"], standalone_mode=False) == 0
    assert "ExecStart=" in unit.read_text()
    assert cli.main(["service", "install", "--user"], standalone_mode=False) != 0
    assert cli.main(["service", "install", "--user", "--force"], standalone_mode=False) == 0
