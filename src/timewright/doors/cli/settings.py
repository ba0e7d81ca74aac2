"""Settings from a file, the environment and arguments, the weakest first; what nobody knows is refused."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from timewright.core.vocabulary import decode
from timewright.doors.cli.fields import setting_fields
from timewright.doors.cli.options import read_field
from timewright.errors import InvalidInput, TimewrightError, UnknownField, UnsafeStore
from timewright.settings import Settings

CONFIG = "timewright.toml"
PREFIX = "TIMEWRIGHT_"
LARGEST_FILE = 64 * 1024
# Ours, and not settings: the global options, and what a run finds in its environment.
OTHERS = ("STORE", "NAMESPACE", "CONFIG", "INPUT", "CHILD", "HOSTED", "SECRET_KEY", "SERVER", "KEY")
FACTS = "RUN_"
BASE = Settings(log="text", log_level="warning", metrics=True)


def load_settings(
    config: str | None, given: Mapping[str, Any], *, strict: bool, base: Settings | None = None
) -> Settings:
    """The settings in force; `strict` also refuses names in the environment that mean nothing."""
    named = config or os.environ.get(f"{PREFIX}CONFIG")
    path = Path(named) if named else Path(CONFIG)
    written = _from_file(path) if named or path.exists() else {}
    spoken = _from_environment(os.environ, strict=strict)
    # Read one by one, so that a refusal says where the value stands.
    for source, values in ((str(path), written), ("the environment", spoken), ("the arguments", given)):
        _check(values, source)
    return decode({**written, **spoken, **given}, Settings, base=base)


def _check(values: Mapping[str, Any], source: str) -> None:
    try:
        decode(dict(values), Settings)
    except TimewrightError as error:
        raise type(error)(
            f"{source}: {error.message}", field=error.field, value=error.value, rule=error.rule, fix=error.fix
        ) from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            _check_safe(path, os.fstat(file.fileno()))
            raw = file.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise _unreadable(path, f"is larger than {LARGEST_FILE // 1024} KiB")
        return tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        raise _unreadable(path, why, fix="--config with a file that is there and may be read") from None
    except (ValueError, RecursionError) as error:  # TOML's own errors, and a number of too many digits
        raise _unreadable(path, f"is not TOML: {error}") from None


def _check_safe(path: Path, found: os.stat_result) -> None:
    """Refuse a file that somebody else may write: who sets our settings can make us run commands."""
    if os.name != "posix":
        return
    if found.st_uid not in (os.getuid(), 0):
        raise UnsafeStore(
            f"{path} belongs to somebody else",
            field="config",
            value=str(path),
            rule="settings belong to whoever starts Timewright",
            fix=f"chown, or --config with a file of your own instead of {path}",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeStore(
            f"{path} may be written by others",
            field="config",
            value=str(path),
            rule="nobody else may write the settings",
            fix=f"chmod go-w {path}",
        )


def _from_environment(environment: Mapping[str, str], *, strict: bool) -> dict[str, Any]:
    known = {field.key: field for field in setting_fields(BASE)}
    found: dict[str, Any] = {}
    for name in sorted(environment):
        if not name.startswith(PREFIX):
            continue
        key = name.removeprefix(PREFIX)
        field = known.get(key.lower())
        if field is not None and key.isupper():
            found[field.key] = (
                _truth(environment[name]) if field.kind == "switch" else read_field(field, environment[name])
            )
        elif strict and key not in OTHERS and not key.startswith(FACTS):
            raise _unknown(name, [*known, *(other.lower() for other in OTHERS)])
    return found


def _truth(text: str) -> Any:
    return {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }.get(text.strip().lower(), text)


def _unknown(name: str, known: list[str]) -> UnknownField:
    near = get_close_matches(name.removeprefix(PREFIX).lower(), known, n=1, cutoff=0.5)
    return UnknownField(
        f"{name} is not a setting",
        field=name,
        rule="names that begin with TIMEWRIGHT_ are ours",
        fix=f"{PREFIX}{near[0].upper()}" if near else "take it out of the environment",
    )


def _unreadable(path: Path, what: str, *, fix: str = "capacity = 100") -> InvalidInput:
    return InvalidInput(
        f"{path} {what}",
        field="config",
        value=str(path),
        rule="a TOML file with settings",
        fix=fix,
    )
