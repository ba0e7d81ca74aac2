"""Everything that can go wrong for a caller, as one tree.

    TimewrightError
    ├── InvalidInput            what was asked cannot be understood or is not allowed
    │   ├── InvalidCron         a cron expression; names the field, the value, the rule, a correction
    │   ├── InvalidZone         a time zone that is not an IANA name we have data for
    │   ├── InvalidDuration     a length of time
    │   ├── InvalidInstant      a point in time, or one without an offset
    │   ├── InvalidWorkflow     a DAG; names the path to the fault
    │   └── UnknownField        a field we do not know; names the nearest one we do
    ├── NotFound                no such object in this namespace
    ├── Conflict                someone else was faster: a stale revision, a name that is taken
    ├── NotAllowed              the object exists, and its state does not permit this
    ├── Stale                   an answer from a lease that was lost; nothing was changed
    ├── Unauthorized            nobody we know: no key, or one that does not open anything
    ├── Forbidden               the caller may not do this
    ├── OverQuota               the caller may do this, but not this often or this much
    ├── MissingExtra            an optional part is not installed; carries the install line
    └── StoreError              the store cannot keep its promise right now
        ├── StoreUnavailable    away, locked or timed out: try again
        ├── OutcomeUnknown      the connection broke at commit: read again before any retry
        ├── StoreFull           no room left; reading still works
        ├── StoreReadOnly       the file or the server does not take writes
        ├── UnsafeStore         settings or a place that would break the promise; refused
        ├── ForeignStore        not ours, damaged, or not a database
        ├── SchemaMismatch      written by another version; names both
        └── UnreadableRow       a row we do not understand; its schedule is parked, others go on

Work that fails is not here: that is an `Outcome`, a value (`timewright.core.run`).
"""

from __future__ import annotations

from typing import ClassVar


class TimewrightError(Exception):
    """Anything Timewright refuses or cannot do, with what to do next."""

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
        # Notes stand below a traceback, which is all that a program shows that did not expect us.
        for line in self._beside():
            self.add_note(line)

    def within(self, prefix: str) -> TimewrightError:
        """The same error, seen from the object that contains the field."""
        field = f"{prefix}.{self.field}" if self.field else prefix
        return type(self)(self.message, field=field, value=self.value, rule=self.rule, fix=self.fix)

    def problem(self) -> dict[str, object]:
        """The refusal as data, the same at every door: a code, a sentence, and what is known beside."""
        said = {"field": self.field, "value": self.value, "rule": self.rule, "fix": self.fix}
        return {"code": self.code, "message": self.message} | {k: v for k, v in said.items() if v is not None}

    @property
    def where(self) -> str | None:
        """The field as a person reads it: words that stand behind a path say more than the path."""
        return self.field.partition(": ")[2] or self.field if self.field else self.field

    def explain(self) -> str:
        """The whole story on a few lines: what happened, where, the rule, and the remedy."""
        return "\n".join([self.message, *self._beside()])

    def _beside(self) -> list[str]:
        said = (("field", self.where), ("rule", self.rule), ("try", self.fix))
        return [f"  {label:<7} {text}" for label, text in said if text]


class InvalidInput(TimewrightError):
    """What was asked cannot be understood or is not allowed."""

    code = "invalid_input"


class InvalidCron(InvalidInput):
    """A cron expression that we refuse, and why."""

    code = "invalid_cron"


class InvalidZone(InvalidInput):
    """A time zone that is not an IANA name we have data for."""

    code = "invalid_zone"


class InvalidDuration(InvalidInput):
    """A length of time that we refuse."""

    code = "invalid_duration"


class InvalidInstant(InvalidInput):
    """A point in time that we refuse, most often because it has no offset."""

    code = "invalid_instant"


class InvalidWorkflow(InvalidInput):
    """A DAG that cannot be run; `field` is the path to the fault."""

    code = "invalid_workflow"


class UnknownField(InvalidInput):
    """A field we do not know; `fix` names the nearest one we do."""

    code = "unknown_field"


class NotFound(TimewrightError):
    """No such object in this namespace."""

    code = "not_found"


class Conflict(TimewrightError):
    """Someone else was faster: a stale revision, or a name that is taken."""

    code = "conflict"


class NotAllowed(TimewrightError):
    """The object exists, and its state does not permit this."""

    code = "not_allowed"


class Stale(TimewrightError):
    """An answer from a lease that was lost; nothing was changed."""

    code = "stale"


class Unauthorized(TimewrightError):
    """Nobody we know: no key, or one that does not open anything; never says which."""

    code = "unauthorized"


class Forbidden(TimewrightError):
    """The caller may not do this."""

    code = "forbidden"


class OverQuota(TimewrightError):
    """The caller may do this, but not this often or this much; `retry_after` says when, in seconds."""

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
        """The refusal as data, with when to try again if that helps."""
        more = {} if self.retry_after is None else {"retry_after": round(self.retry_after, 3)}
        return super().problem() | more


class MissingExtra(TimewrightError):
    """An optional part is not installed; `fix` is the install line."""

    code = "missing_extra"


class StoreError(TimewrightError):
    """The store cannot keep its promise right now."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """Away, locked or timed out; the transaction did not happen and may be tried again."""

    code = "store_unavailable"


class OutcomeUnknown(StoreError):
    """The connection broke at commit; read by key or fence before any retry."""

    code = "outcome_unknown"


class StoreFull(StoreError):
    """No room left for writing; reading still works and writing resumes when room returns."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The file or the server does not take writes."""

    code = "store_read_only"


class UnsafeStore(StoreError):
    """Settings or a place that would break the promise; refused at opening."""

    code = "unsafe_store"


class ForeignStore(StoreError):
    """Another application's file, a damaged one, or not a database at all."""

    code = "foreign_store"


class SchemaMismatch(StoreError):
    """The store was written by another version; the message names both."""

    code = "schema_mismatch"


class UnreadableRow(StoreError):
    """A row we do not understand; its schedule is parked and the others go on."""

    code = "unreadable_row"
