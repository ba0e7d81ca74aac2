"""Loads settings from a file, the environment and arguments; later sources win."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from timewright.core.input.decode import decode
from timewright.errors import InvalidInput, TimewrightError, UnknownField, UnsafeStore
from timewright.interfaces.cli.fields import setting_fields
from timewright.interfaces.cli.options import read_field
from timewright.settings import Settings

DEFAULT_CONFIG = "timewright.toml"
ENV_PREFIX = "TIMEWRIGHT_"
MAX_CONFIG_BYTES = 64 * 1024
# TIMEWRIGHT_ variables that are not settings: global options, and the environment of a run.
NON_SETTINGS = ("STORE", "NAMESPACE", "CONFIG", "INPUT", "CHILD", "HOSTED", "SECRET_KEY", "SERVER", "KEY")
RUN_PREFIX = "RUN_"
ARGUMENTS = "the arguments"
SERVER_DEFAULTS = Settings(log="text", log_level="warning", metrics=True)


def load_settings(
    config: str | None, given: Mapping[str, Any], *, strict: bool, base: Settings | None = None
) -> Settings:
    """Return the effective settings; `strict` raises for unknown TIMEWRIGHT_ variables."""
    path, from_file = _read_config(config)
    from_file.pop("store", None)
    from_environment = _from_environment(os.environ, strict=strict)
    # Decode each source by itself, so that an error names the source.
    for source, values in (
        (str(path), from_file),
        ("the environment", from_environment),
        (ARGUMENTS, given),
    ):
        _check(values, source)
    return decode({**from_file, **from_environment, **given}, Settings, base=base)


def store_in_config(config: str | None) -> str:
    """Return the store that the settings file names; empty if it names none."""
    path, values = _read_config(config)
    store = values.get("store", "")
    if not isinstance(store, str):
        raise InvalidInput(
            f"{path}: store {store!r} is not text",
            field="store",
            value=store,
            rule="a file or postgresql://…",
            fix='store = "timewright.db"',
        )
    return store


def _read_config(config: str | None) -> tuple[Path, dict[str, Any]]:
    """Return the settings file and its values; the default file may be absent."""
    named = config or os.environ.get(f"{ENV_PREFIX}CONFIG")
    path = Path(named or DEFAULT_CONFIG)
    return path, _from_file(path) if named or path.exists() else {}


def _check(values: Mapping[str, Any], source: str) -> None:
    try:
        decode(dict(values), Settings)
    except TimewrightError as error:
        flags = {one.key: one.flag for one in setting_fields(SERVER_DEFAULTS)}
        field, message = error.field or "", f"{source}: {error.message}"
        if source == ARGUMENTS and field in flags and error.message.startswith(f"{field} "):
            message = flags[field] + error.message.removeprefix(field)
            field = flags[field]
        raise type(error)(message, field=field, value=error.value, rule=error.rule, fix=error.fix) from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            _check_safe(path, os.fstat(file.fileno()))
            raw = file.read(MAX_CONFIG_BYTES + 1)
        if len(raw) > MAX_CONFIG_BYTES:
            raise _invalid_file(path, f"is larger than {MAX_CONFIG_BYTES // 1024} KiB")
        return tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        raise _invalid_file(path, why, fix="--config with a readable file") from None
    except (ValueError, RecursionError) as error:  # TOML errors, and numbers with too many digits
        raise _invalid_file(path, f"is not TOML: {error}") from None


def _check_safe(path: Path, found: os.stat_result) -> None:
    """Raise if another user can write the file, because settings can make Timewright run commands."""
    if os.name != "posix":
        return
    if found.st_uid not in (os.getuid(), 0):
        raise UnsafeStore(
            f"{path} belongs to another user",
            field="config",
            value=str(path),
            rule="the settings file must belong to the user who starts Timewright",
            fix=f"change the owner of {path}, or use --config with your own file",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeStore(
            f"{path} is writable by others",
            field="config",
            value=str(path),
            rule="only the owner may write the settings file",
            fix=f"chmod go-w {path}",
        )


def _from_environment(environment: Mapping[str, str], *, strict: bool) -> dict[str, Any]:
    known = {field.key: field for field in setting_fields(SERVER_DEFAULTS)}
    found: dict[str, Any] = {}
    for name in sorted(environment):
        if not name.startswith(ENV_PREFIX):
            continue
        key = name.removeprefix(ENV_PREFIX)
        field = known.get(key.lower())
        if field is not None and key.isupper():
            found[field.key] = (
                _parse_boolean(environment[name])
                if field.kind == "switch"
                else read_field(field, environment[name])
            )
        elif strict and key not in NON_SETTINGS and not key.startswith(RUN_PREFIX):
            raise _unknown_variable(name, [*known, *(other.lower() for other in NON_SETTINGS)])
    return found


def _parse_boolean(text: str) -> Any:
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    return False if word in ("false", "0", "no", "off") else text


def _unknown_variable(name: str, known: list[str]) -> UnknownField:
    near = get_close_matches(name.removeprefix(ENV_PREFIX).lower(), known, n=1, cutoff=0.5)
    return UnknownField(
        f"{name} is not a setting",
        field=name,
        rule="TIMEWRIGHT_ variables must be settings",
        fix=f"{ENV_PREFIX}{near[0].upper()}" if near else "remove it from the environment",
    )


def _invalid_file(path: Path, what: str, *, fix: str = "capacity = 100") -> InvalidInput:
    return InvalidInput(
        f"{path} {what}",
        field="config",
        value=str(path),
        rule="a TOML file with settings",
        fix=fix,
    )
