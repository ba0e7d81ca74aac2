"""The policy of queues as one plain file: absent is cautious, unreadable leases nothing.

{"mail": {"max_concurrent": 5}, "reports": {"max_attempts": 1}}     a policy for each queue
{"schemaVersion": 1, "maxConcurrent": 1, "leaseTtlMs": 300000}      one policy, for one queue
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from timewright.core.names import check_name
from timewright.core.policies import QueuePolicy
from timewright.core.spellings import snake
from timewright.core.vocabulary import decode_policy
from timewright.errors import InvalidInput, TimewrightError

LARGEST_FILE = 1_000_000
ONE_QUEUE = "default"

# Only from the first letter of a word, and no longer than one: a long line is looked at once.
_KEY = re.compile(r"(?<![\w-])([A-Za-z][\w-]{0,63})[\"']?\s{0,8}:")


class PolicyFile(Struct, frozen=True, kw_only=True):
    """What a policy file says for each queue of a namespace, or why it cannot be used."""

    path: str
    namespace: str = "default"
    policies: dict[str, QueuePolicy] = {}
    absent: bool = False
    refusal: TimewrightError | None = None

    def check(self) -> None:
        """Refuse to go on with a file that could not be read."""
        if self.refusal is not None:
            raise self.refusal


def load_policy_file(path: str | Path, *, queue: str = ONE_QUEUE) -> PolicyFile:
    """Read a policy file; one that is not there gives the cautious defaults, one that is wrong is kept so.

    `queue` is the one that a file with a single policy is about.
    """
    place = Path(path)
    try:
        if place.stat().st_size > LARGEST_FILE:
            raise _refusal(path, 1, f"is larger than {LARGEST_FILE} bytes")
        text = place.read_text("utf-8")
    except FileNotFoundError:
        return PolicyFile(path=str(path), absent=True)
    except (OSError, UnicodeDecodeError) as error:
        return PolicyFile(path=str(path), refusal=_refusal(path, 1, f"cannot be read: {error}"))
    except InvalidInput as error:
        return PolicyFile(path=str(path), refusal=error)
    return read_policy_file(text, path=path, queue=queue)


def read_policy_file(text: str, *, path: str | Path, queue: str = ONE_QUEUE) -> PolicyFile:
    """The same from its text; the path says whether it is JSON or YAML, and where a fault is."""
    try:
        if len(text) > LARGEST_FILE:
            raise _refusal(path, 1, f"is larger than {LARGEST_FILE} bytes")
        raw = _parsed(text, path)
        return PolicyFile(path=str(path), policies=policies_in(raw, queue=queue))
    except InvalidInput as error:
        if error.field != "policy_file":
            error = _refusal(path, _line_of(text, error.field or ""), error.message, cause=error)
        return PolicyFile(path=str(path), refusal=error)


def _parsed(text: str, path: str | Path) -> Any:
    if Path(path).suffix in (".yaml", ".yml"):
        return _parsed_yaml(text, path)
    try:
        return json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise _refusal(path, line, f"is not JSON: {getattr(error, 'msg', error)}") from error
    except RecursionError as error:
        raise _refusal(path, 1, "is nested too deeply") from error


def _parsed_yaml(text: str, path: str | Path) -> Any:
    from timewright.core.yaml_part import NotYaml, read_yaml

    try:
        return read_yaml(text)
    except NotYaml as error:
        raise _refusal(path, error.line, f"is not YAML: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping that names nothing twice: which of the two was meant is not ours to guess."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:64]!r} is given twice")
        found[key] = value
    return found


def policies_in(raw: Any, *, queue: str = ONE_QUEUE) -> dict[str, QueuePolicy]:
    """The policies that the data of a policy file spells, by queue."""
    if not isinstance(raw, Mapping) or _is_one_policy(raw):
        return {check_name(queue, field="queue"): decode_policy(raw)}
    version = {key: one for key, one in raw.items() if _is_version(key)}
    decode_policy(version)
    named = {check_name(name, field="queue"): one for name, one in raw.items() if name not in version}
    return {name: decode_policy(one, field=name) for name, one in named.items()}


def _is_one_policy(raw: Mapping[Any, Any]) -> bool:
    """Whether the file speaks of one policy: by its words, or because what it holds are not policies."""
    words = {field.name for field in msgspec.structs.fields(QueuePolicy)}
    spoken = {key: one for key, one in raw.items() if not _is_version(key)}
    return any(
        (isinstance(key, str) and snake(key) in words) or not isinstance(one, Mapping | None)
        for key, one in spoken.items()
    )


def _is_version(key: Any) -> bool:
    return isinstance(key, str) and snake(key) == "schema_version"


def _line_of(text: str, field: str) -> int:
    """The first line that speaks of a field, as far as its name tells."""
    word = snake(field.rpartition(".")[2])
    for number, line in enumerate(text.splitlines(), start=1):
        if any(snake(key) == word for key in _KEY.findall(line)):
            return number
    return 1


def _refusal(path: str | Path, line: int, why: str, *, cause: TimewrightError | None = None) -> InvalidInput:
    return InvalidInput(
        f"policy file {path}, line {line}: {why}",
        field="policy_file" if cause is None or cause.field is None else f"policy_file.{cause.field}",
        value=str(path),
        rule=(cause.rule if cause is not None else None) or "an unreadable policy leases nothing",
        fix=(cause.fix if cause is not None else None) or "mend the file, or move it away for the defaults",
    )
