"""Settings from the file, the environment and the arguments."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.terminal import invoke, run
from timewright.core.moments import MINUTE, SECOND
from timewright.errors import InvalidInput, TimewrightError, UnknownField, UnsafeStore
from timewright.interfaces.cli.fields import setting_fields
from timewright.interfaces.cli.settings import load_settings
from timewright.settings import Settings


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without TIMEWRIGHT_ variables."""
    for name in [name for name in os.environ if name.startswith("TIMEWRIGHT_")]:
        monkeypatch.delenv(name)


def write(text: str, *, name: str = "timewright.toml", mode: int = 0o600) -> None:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def load(config: str | None = None, /, **given: Any) -> Settings:
    return load_settings(config, given, strict=True)


def test_defaults_without_any_source() -> None:
    assert load() == Settings()


def test_arguments_win_over_the_environment_and_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write('capacity = 1\nbatch = 1\nthreads = 1\nstop_wait = "1m"\n')
    monkeypatch.setenv("TIMEWRIGHT_BATCH", "2")
    monkeypatch.setenv("TIMEWRIGHT_THREADS", "2")
    found = load(threads=3)
    assert (found.capacity, found.batch, found.threads, found.stop_wait) == (1, 2, 3, MINUTE)


def test_every_setting_can_be_set_in_each_way(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    written = {
        "capacity": "7",
        "batch": "7",
        "threads": "7",
        "workers": "7",
        "queues": "[mail, reports]",
        "labels": "[gpu]",
        "max_sleep": "7s",
        "max_clock_step": "48h",
        "admit": "leader",
        "shard": "1/1",
        "policy_file": "queues.yaml",
        "entry_points": "off",
        "look_ahead": "7s",
        "defaults": "{overlap: queue, lease: {length: 2m}}",
        "stop_wait": "7s",
        "interval_floor": "{interval: 7s, action: raise}",
        "keep_history": "7d",
        "keep_runs": "7000",
        "keep_bytes": "7000000",
        "artifacts": "/srv/artifacts",
        "commands": "{programs: [backup.sh], folder: /srv, memory_mb: 512}",
        "shell": "true",
        "local": "no",
        "log": "json",
        "log_level": "debug",
        "metrics": "on",
        "metrics_port": "7",
        "metrics_host": "::1",
        "metric_schedules": "7",
        "trace": "off",
        "secret_key_file": "/run/secrets/timewright",
        "allowed_zones": "[UTC, Europe/Berlin]",
        "zone": "Europe/Berlin",
        "environment": "{pass: [DATABASE_URL], deny: ['AWS_*']}",
        "egress": "{allow: [{cidr: 10.0.0.0/8, host: crm.internal, port: 443}], ports: [443]}",
        "publish": "[celery, 'redis://127.0.0.1:6379']",
        "port": "7",
        "bind": "::1",
        "hosts": "[scheduler.example.com]",
        "tls_cert": "server.pem",
        "tls_key": "server.key",
        "behind_proxy": "off",
        "jwt_keys": "keys.json",
        "jwt_algorithms": "[ES256]",
        "jwt_audience": "timewright",
        "jwt_issuer": "https://login.example.com",
        "tls_client_ca": "clients.pem",
        "oidc": "{issuer: 'https://login.example.com', client_id: timewright, roles: {ops: admin}}",
        "planner": "llm",
        "planner_every": "7m",
        "advisor": "{model: m-1, key: 'env:MODEL_KEY', tools: json}",
    }
    assert set(written) == set(Settings.__struct_fields__)
    for name, text in written.items():
        monkeypatch.setenv(f"TIMEWRIGHT_{name.upper()}", text)
    found = load()
    assert (found.capacity, found.max_sleep, found.keep_history) == (7, 7 * SECOND, timedelta(days=7))
    assert (found.shell, found.local) == (True, False)
    assert (found.artifacts, found.oidc.roles) == ("/srv/artifacts", {"ops": "admin"})
    assert (found.interval_floor.interval, found.interval_floor.action) == (7 * SECOND, "raise")
    flags = {field.flag for field in setting_fields(Settings())}
    help_text = invoke(None, "up", "--help").out
    assert all(flag in help_text for flag in flags)


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("capcity = 3", "capcity", "did you mean capacity?"),
        ("capacity = 'many'", "capacity", "a whole number"),
        ("capacity = 0", "capacity", "from 1 to 100000"),
        ("max_sleep = '2h'", "max_sleep", "0.01s to 1m"),
        ("stop_wait = 30", "stop_wait", "text with a unit"),
        ("capacity = 1\ncapacity = 2", "config", "is not TOML"),
        ("capacity =", "config", "is not TOML"),
        ("x = " + "[" * 5000, "config", "is not TOML"),
        ("# " + "x" * 70_000, "config", "larger than 64 KiB"),
    ],
)
def test_an_invalid_settings_file_is_refused_by_name(text: str, field: str, said: str) -> None:
    write(text)
    with pytest.raises(TimewrightError) as refusal:
        load()
    assert refusal.value.field == field
    assert refusal.value.message.startswith("timewright.toml")
    assert said in refusal.value.explain()


def test_a_settings_file_writable_by_others_is_refused() -> None:
    for mode in (0o666, 0o620, 0o602):
        write("capacity = 1", mode=mode)
        with pytest.raises(UnsafeStore) as refusal:
            load()
        assert refusal.value.fix == "chmod go-w timewright.toml"


def test_a_given_settings_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        load("missing.toml")
    write("capacity = 5", name="other.toml")
    assert load("other.toml").capacity == 5
    monkeypatch.setenv("TIMEWRIGHT_CONFIG", "other.toml")
    assert load().capacity == 5


def test_an_unknown_variable_is_refused_with_a_suggestion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIMEWRIGHT_CAPCITY", "3")
    with pytest.raises(UnknownField) as refusal:
        load()
    assert (refusal.value.field, refusal.value.fix) == ("TIMEWRIGHT_CAPCITY", "TIMEWRIGHT_CAPACITY")
    monkeypatch.delenv("TIMEWRIGHT_CAPCITY")
    monkeypatch.setenv("TIMEWRIGHT_capacity", "3")
    with pytest.raises(UnknownField):
        load()


def test_variables_of_runs_and_global_options_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUN_ID", "RUN_PLANNED_AT", "STORE", "NAMESPACE", "INPUT"):
        monkeypatch.setenv(f"TIMEWRIGHT_{name}", "x")
    assert load() == Settings()


def test_an_invalid_value_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMEWRIGHT_CAPACITY", "many")
    with pytest.raises(TimewrightError, match="the environment: capacity"):
        load()
    monkeypatch.delenv("TIMEWRIGHT_CAPACITY")
    with pytest.raises(TimewrightError, match="--capacity 0 is out of range"):
        load(capacity=0)


def test_boolean_words_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text, truth in (("on", True), ("1", True), ("FALSE", False), ("no", False)):
        monkeypatch.setenv("TIMEWRIGHT_SHELL", text)
        assert load().shell is truth
    monkeypatch.setenv("TIMEWRIGHT_SHELL", "perhaps")
    with pytest.raises(InvalidInput, match="is not true or false"):
        load()


def test_commands_use_settings_and_ignore_unknown_variables(here: Path) -> None:
    write("interval_floor = { interval = '1m' }")
    words = ["schedule", "create", "x", "--every", "5s", "--note", "x", "--dry-run"]
    said = invoke(None, *words, TIMEWRIGHT_WHATEVER="x")
    assert said.code == 1
    assert "below the minimum of 1m" in said.err


def test_up_refuses_unknown_settings(here: Path) -> None:
    write("capcity = 3")
    for said in (run(here, "up"), run(here, "worker")):
        assert (said.code, said.out) == (1, "")
        assert "did you mean capacity?" in said.err
    assert [path.name for path in here.iterdir()] == ["timewright.toml"]
