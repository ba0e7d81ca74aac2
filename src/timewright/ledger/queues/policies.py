"""Queue policies, also from a file, and calendars: stored with a revision, in force at once."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.calendars import Calendar
from timewright.core.input.aliases import FIELD_ALIASES, snake_case
from timewright.core.input.decode import decode_policy
from timewright.core.input.input_errors import check_name
from timewright.core.input.strict_json import read_json
from timewright.core.policies.limits import Limit
from timewright.core.policies.policies import QueuePolicy
from timewright.core.schedule.schedule import queue_limit_key
from timewright.errors import Conflict, InvalidInput, TimewrightError
from timewright.ledger.lookups import CALENDAR, QUEUE
from timewright.ledger.queues.limits import delete_objects, save_limits, save_objects
from timewright.ledger.replan import Actor
from timewright.ports import Store, Transaction

MAX_FILE_BYTES = 1_000_000
DEFAULT_QUEUE = "default"

_ALIASES = FIELD_ALIASES[QueuePolicy]
# Bounded and anchored at the start of a word, so that a long line is scanned once.
_KEY = re.compile(r"(?<![\w-])([A-Za-z][\w-]{0,63})[\"']?\s{0,8}:")


def set_queue_policy(
    store: Store, *, namespace: str, queue: str, policy: QueuePolicy, by: Actor, now: datetime
) -> None:
    """Store a queue's policy; its limit is in force from this commit on."""
    store.write(lambda tx: _save_policies(tx, {queue: policy}, namespace=namespace, by=by, now=now))


def apply_policy_file(
    store: Store,
    file: PolicyFile,
    *,
    namespace: str = "default",
    by: Actor = Actor(origin="file"),  # noqa: B008 - a frozen value
    now: datetime,
) -> tuple[str, ...]:
    """Store the policies of a file, all or none; return the queues whose policy changed.

    A queue that the file no longer names gets the default policy.
    """
    file.check()
    by = Actor(name=by.name, origin="file", reason=by.reason or file.path)

    def work(tx: Transaction) -> tuple[str, ...]:
        changed, dropped, _ = _differences(tx, file, namespace=namespace)
        _save_policies(tx, changed, namespace=namespace, by=by, now=now)
        delete_policies(tx, dropped, namespace=namespace, by=by, now=now)
        tx.put_meta(_file_queues_key(namespace), json.dumps(sorted(file.policies)))
        return tuple(sorted({*changed, *dropped}))

    differs = any(store.read(lambda tx: _differences(tx, file, namespace=namespace)))
    return store.write(work) if differs else ()


def put_calendar(store: Store, calendar: Calendar, *, by: Actor, now: datetime) -> None:
    """Store a calendar; the schedules that name it use it from their next decision on."""
    rows = {calendar.name: calendar}
    store.write(lambda tx: save_objects(tx, CALENDAR, rows, namespace=calendar.namespace, by=by, now=now))


def delete_calendar(tx: Transaction, calendar: Calendar, *, by: Actor, now: datetime) -> None:
    """Delete a calendar; the caller has checked in this transaction that no schedule names it."""
    delete_objects(tx, CALENDAR, [calendar.name], namespace=calendar.namespace, by=by, now=now)


def _save_policies(
    tx: Transaction, policies: Mapping[str, QueuePolicy], *, namespace: str, by: Actor, now: datetime
) -> None:
    save_objects(tx, QUEUE, policies, namespace=namespace, by=by, now=now)
    tx.set_limits({queue_limit_key(namespace, name): policy.max_running for name, policy in policies.items()})
    inline = (use for policy in policies.values() for use in policy.limits if isinstance(use, Limit))
    save_limits(tx, inline, namespace=namespace, by=by, now=now)


def _differences(
    tx: Transaction, file: PolicyFile, *, namespace: str
) -> tuple[dict[str, QueuePolicy], list[str], bool]:
    """The policies that differ from the stored ones, the dropped queues, and whether names changed."""
    before = set(json.loads(tx.get_meta(_file_queues_key(namespace)) or "[]"))
    names = sorted(before | file.policies.keys())
    rows = tx.get_objects(QUEUE, namespace=namespace, names=names) if names else ()
    kept = {row.name: row.body for row in rows}
    changed = {name: policy for name, policy in file.policies.items() if kept.get(name) != _encode(policy)}
    return changed, sorted(before - file.policies.keys()), before != file.policies.keys()


def delete_policies(
    tx: Transaction, names: Sequence[str], *, namespace: str, by: Actor, now: datetime
) -> None:
    """Delete the policies of queues, which have the default limit from this commit on."""
    gone = delete_objects(tx, QUEUE, names, namespace=namespace, by=by, now=now)
    tx.set_limits({queue_limit_key(namespace, name): QueuePolicy().max_running for name in gone})


def _file_queues_key(namespace: str) -> str:
    return f"policy_file:{namespace}"


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


# {"mail": {"max_running": 5}, "reports": {"max_attempts": 1}}     a policy for each queue
# {"schemaVersion": 1, "maxConcurrent": 1, "leaseTtlMs": 300000}      one policy, for one queue
class PolicyFile(Struct, frozen=True, kw_only=True):
    """The policies in a file for the queues of a namespace, or the error that makes it unusable."""

    path: str
    namespace: str = "default"
    policies: dict[str, QueuePolicy] = {}
    absent: bool = False
    error: TimewrightError | None = None

    def check(self) -> None:
        """Raise the error of a file that could not be read."""
        if self.error is not None:
            raise self.error


def load_policy_file(path: str | Path, *, queue: str = DEFAULT_QUEUE) -> PolicyFile:
    """Read a policy file; a missing file gives the defaults, an invalid one an object with its error.

    `queue` is the queue of a file that contains a single policy.
    """
    place = Path(path)
    try:
        if place.stat().st_size > MAX_FILE_BYTES:
            raise _file_error(path, 1, f"is larger than {MAX_FILE_BYTES} bytes")
        text = place.read_text("utf-8")
    except FileNotFoundError:
        return PolicyFile(path=str(path), absent=True)
    except (OSError, UnicodeDecodeError) as error:
        return PolicyFile(path=str(path), error=_file_error(path, 1, f"cannot be read: {error}"))
    except InvalidInput as error:
        return PolicyFile(path=str(path), error=error)
    return parse_policy_file(text, path=path, queue=queue)


def parse_policy_file(text: str, *, path: str | Path, queue: str = DEFAULT_QUEUE) -> PolicyFile:
    """Parse the text of a policy file; the path decides between JSON and YAML, and appears in errors."""
    try:
        if len(text) > MAX_FILE_BYTES:
            raise _file_error(path, 1, f"is larger than {MAX_FILE_BYTES} bytes")
        raw = _parse(text, path)
        return PolicyFile(path=str(path), policies=decode_policies(raw, queue=queue))
    except InvalidInput as error:
        if error.field != "policy_file":
            error = _file_error(path, _line_of(text, error.field or ""), error.message, cause=error)
        return PolicyFile(path=str(path), error=error)


def _parse(text: str, path: str | Path) -> Any:
    if Path(path).suffix in (".yaml", ".yml"):
        return _parse_yaml(text, path)
    try:
        return read_json(text)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise _file_error(path, line, f"is not JSON: {getattr(error, 'msg', error)}") from error
    except RecursionError as error:
        raise _file_error(path, 1, "is nested too deeply") from error


def _parse_yaml(text: str, path: str | Path) -> Any:
    from timewright.core.input.strict_yaml import InvalidYaml, read_yaml

    try:
        return read_yaml(text)
    except InvalidYaml as error:
        raise _file_error(path, error.line, f"is not YAML: {error}") from error


def decode_policies(raw: Any, *, queue: str = DEFAULT_QUEUE) -> dict[str, QueuePolicy]:
    """Decode the data of a policy file into policies by queue."""
    if not isinstance(raw, Mapping) or _is_one_policy(raw):
        return {check_name(queue, field="queue"): decode_policy(raw)}
    version = {key: one for key, one in raw.items() if _is_version(key)}
    decode_policy(version)
    named = {check_name(name, field="queue"): one for name, one in raw.items() if name not in version}
    return {name: decode_policy(one, field=name) for name, one in named.items()}


def _is_one_policy(raw: Mapping[Any, Any]) -> bool:
    """Whether the file contains one policy: it has fields of a policy, or values that are not mappings."""
    field_names = {field.name for field in msgspec.structs.fields(QueuePolicy)}
    values = {key: one for key, one in raw.items() if not _is_version(key)}
    return any(
        (isinstance(key, str) and snake_case(key) in field_names) or not isinstance(one, Mapping | None)
        for key, one in values.items()
    )


def _is_version(key: Any) -> bool:
    return isinstance(key, str) and snake_case(key) == "schema_version"


def _line_of(text: str, field: str) -> int:
    """The first line that contains a name of a field."""
    field_name = snake_case(field.rpartition(".")[2])
    names = {field_name, *(word for word, path in _ALIASES.items() if path == (field_name,))}
    for number, line in enumerate(text.splitlines(), start=1):
        if any(snake_case(key) in names for key in _KEY.findall(line)):
            return number
    return 1


def _file_error(
    path: str | Path, line: int, reason: str, *, cause: TimewrightError | None = None
) -> InvalidInput:
    return InvalidInput(
        f"policy file {path}, line {line}: {reason}",
        field="policy_file" if cause is None or cause.field is None else f"policy_file.{cause.field}",
        value=str(path),
        rule=(cause.rule if cause is not None else None)
        or "while the file is unreadable, queues lease nothing",
        fix=(cause.fix if cause is not None else None)
        or "correct the file, or remove it to use the defaults",
    )


READ_INTERVAL_S = 1.0
# Apply an unchanged file again this often, because another process may have changed the stored policies.
APPLY_INTERVAL_S = 30.0

_FileState = tuple[int, ...]


class PolicyFileWatcher:
    """Watches one policy file for the queues of one namespace."""

    def __init__(self, path: str, *, namespace: str, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._namespace = namespace
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._file_state: _FileState = ()
        self._file = PolicyFile(path=path, namespace=namespace, absent=True)
        self._applied: PolicyFile | None = None
        self._applied_at = 0.0

    def read(self) -> PolicyFile:
        """Return the contents of the file; reads it again if it has changed; uses no store."""
        with self._lock:
            moment = self._monotonic()
            if self._read_at is None or not 0 <= moment - self._read_at < READ_INTERVAL_S:
                # Stat before reading: a change in between is noticed next time.
                state = _file_state(self._path)
                if self._read_at is None or state != self._file_state:
                    self._file = replace(load_policy_file(self._path), namespace=self._namespace)
                self._file_state, self._read_at = state, moment
            return self._file

    def apply(self, store: Store) -> PolicyFile:
        """Read the file and store its policies; an unreadable file changes nothing."""
        file, moment = self.read(), self._monotonic()
        is_applied = file is self._applied and 0 <= moment - self._applied_at < APPLY_INTERVAL_S
        if not is_applied and file.error is None:
            try:
                apply_policy_file(store, file, namespace=self._namespace, now=store.now())
            except Conflict:
                # Another instance stores the same file at the same time; write what is left.
                apply_policy_file(store, file, namespace=self._namespace, now=store.now())
            self._applied, self._applied_at = file, moment
        return file


def _file_state(path: str) -> _FileState:
    """Attributes that change when the file changes; empty while it does not exist."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
