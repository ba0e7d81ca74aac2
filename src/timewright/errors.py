"""Every exception that Timewright raises, as one tree.

    TimewrightError
    ├── InvalidInput            the input is malformed or breaks a rule
    │   ├── InvalidCron         cron expression; carries the field, the value, the rule, a correction
    │   ├── InvalidZone         time zone that is not an IANA name in the installed data
    │   ├── InvalidDuration     duration
    │   ├── InvalidInstant      point in time, for example one without a UTC offset
    │   ├── InvalidWorkflow     workflow definition; `field` is the path to the error
    │   └── UnknownField        unknown field; `fix` names the most similar known field
    ├── NotFound                no such object in the namespace
    ├── Conflict                stale revision, or a name that is already taken
    ├── NotAllowed              the object's state does not permit the operation
    ├── Stale                   result of a lease that was lost; nothing was changed
    ├── Unauthorized            API key missing or invalid
    ├── Forbidden               the caller lacks the permission
    ├── OverQuota               the caller exceeds a rate limit or a quota
    ├── MissingExtra            optional dependency is not installed; `fix` is the install command
    └── StoreError              the database failed
        ├── StoreUnavailable    unreachable, locked or timed out: retry
        ├── OutcomeUnknown      the connection broke during commit: read again before retrying
        ├── ClockBehind         the store's clock did not reach the instant of a commit; nothing was written
        ├── StoreFull           disk full; reads still work
        ├── StoreReadOnly       the file or the server rejects writes
        ├── UnsafeStore         configuration or location that would lose data; refused at open
        ├── ForeignStore        another application's database, damaged, or not a database
        ├── SchemaMismatch      written by another version; the message names both versions
        └── UnreadableRow       a row cannot be decoded; its schedule is parked, others continue

Failed work is not an exception here: it is an `Outcome` value (`timewright.core.run.run`).
"""

from __future__ import annotations

from typing import ClassVar


class TimewrightError(Exception):
    """Base class: the message, and where known the field, its value, the rule and the fix."""

    code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: object = None,
        rule: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = value
        self.rule = rule
        self.fix = fix
        # Message, field and fix in the words of the interface that was used, if they differ; for texts only.
        self.spelled: tuple[str, str | None, str] | None = None

    def __str__(self) -> str:
        """The message, followed by field, rule and fix on the same line."""
        details = "; ".join(f"{label}: {text}" for label, text in self._details())
        return f"{self._text()} ({details})" if details else self._text()

    def within(self, prefix: str) -> TimewrightError:
        """Return the same error with `prefix` in front of its field path."""
        field = f"{prefix}.{self.field}" if self.field else prefix
        return type(self)(self.message, field=field, value=self.value, rule=self.rule, fix=self.fix)

    def problem(self) -> dict[str, object]:
        """Return the error as JSON data, the same for every interface: code, message and details."""
        details = {"field": self.field, "value": self.value, "rule": self.rule, "fix": self.fix}
        return {"code": self.code, "message": self.message} | {
            k: v for k, v in details.items() if v is not None
        }

    @property
    def display_field(self) -> str | None:
        """The field to show to a person: the text after `: ` if the path has one, else the path."""
        return self.field.partition(": ")[2] or self.field if self.field else self.field

    def explain(self) -> str:
        """Return the error on a few lines: message, field, rule and fix."""
        return "\n".join([self._text(), *(f"  {label:<7} {text}" for label, text in self._details())])

    def _text(self) -> str:
        return self.spelled[0] if self.spelled is not None else self.message

    def _details(self) -> list[tuple[str, str]]:
        _, field, fix = self.spelled or ("", self.display_field, self.fix)
        details = (("field", field), ("rule", self.rule), ("try", fix))
        return [(label, text) for label, text in details if text]


class InvalidInput(TimewrightError):
    """The input is malformed or breaks a rule."""

    code = "invalid_input"


class InvalidCron(InvalidInput):
    """Invalid cron expression."""

    code = "invalid_cron"


class InvalidZone(InvalidInput):
    """Time zone that is not an IANA name in the installed data."""

    code = "invalid_zone"


class InvalidDuration(InvalidInput):
    """Invalid duration."""

    code = "invalid_duration"


class InvalidInstant(InvalidInput):
    """Invalid point in time, most often because it has no UTC offset."""

    code = "invalid_instant"


class InvalidWorkflow(InvalidInput):
    """Invalid workflow definition; `field` is the path to the error."""

    code = "invalid_workflow"


class UnknownField(InvalidInput):
    """Unknown field; `fix` names the most similar known field."""

    code = "unknown_field"


class NotFound(TimewrightError):
    """No such object in the namespace."""

    code = "not_found"


class Conflict(TimewrightError):
    """Stale revision, or a name that is already taken."""

    code = "conflict"


class NotAllowed(TimewrightError):
    """The object exists, but its state does not permit the operation."""

    code = "not_allowed"


class Stale(TimewrightError):
    """Result of a lease that was lost; nothing was changed."""

    code = "stale"


class Unauthorized(TimewrightError):
    """API key missing or invalid; the message does not say which, to give an attacker no hint."""

    code = "unauthorized"


class Forbidden(TimewrightError):
    """The caller lacks the permission."""

    code = "forbidden"


class OverQuota(TimewrightError):
    """The caller exceeds a rate limit or a quota; `retry_after` is the wait in seconds."""

    code = "over_quota"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: object = None,
        rule: str | None = None,
        fix: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, field=field, value=value, rule=rule, fix=fix)
        self.retry_after = retry_after

    def problem(self) -> dict[str, object]:
        """Return the error as JSON data, with `retry_after` where waiting helps."""
        more = {} if self.retry_after is None else {"retry_after": round(self.retry_after, 3)}
        return super().problem() | more


class MissingExtra(TimewrightError):
    """An optional dependency is not installed; `fix` is the install command."""

    code = "missing_extra"


class StoreError(TimewrightError):
    """The database failed."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The database is unreachable, locked or timed out; the transaction rolled back and may be retried."""

    code = "store_unavailable"


class OutcomeUnknown(StoreError):
    """The connection broke during commit; read by key or fence before retrying."""

    code = "outcome_unknown"


class ClockBehind(StoreError):
    """The store's clock did not reach the instant of a commit; nothing was written."""

    code = "clock_behind"


class StoreFull(StoreError):
    """The disk is full; reads still work, and writes resume when space is free."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The file or the server rejects writes."""

    code = "store_read_only"


class UnsafeStore(StoreError):
    """Configuration or location that would lose data; refused when the store is opened."""

    code = "unsafe_store"


class ForeignStore(StoreError):
    """Another application's database, a damaged file, or not a database."""

    code = "foreign_store"


class SchemaMismatch(StoreError):
    """The store was written by another version; the message names both versions."""

    code = "schema_mismatch"


class UnreadableRow(StoreError):
    """A row cannot be decoded; its schedule is parked and the others continue."""

    code = "unreadable_row"


def errors_by_code() -> dict[str, type[TimewrightError]]:
    """Return the error class of each code; a subclass without a code of its own does not replace it."""
    found: dict[str, type[TimewrightError]] = {}
    pending: list[type[TimewrightError]] = [TimewrightError]
    while pending:
        kind = pending.pop()
        found.setdefault(kind.code, kind)
        pending += kind.__subclasses__()
    return found
