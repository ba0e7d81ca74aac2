"""A finding: something about the system that a person should know, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

Severity = Literal["ok", "warn", "fail"]

# The subject of a finding about everything, not about one schedule, queue or instance.
INSTALLATION = "installation"
# The namespace of a command that names none, and of incidents about the installation.
HOME_NAMESPACE = "default"


class Finding(Struct, frozen=True, kw_only=True):
    """What a check found: its kind, what it is about and since when, a sentence, and the remedy.

    `ok` is a check that passed. `schedule` and `run` name the rows that it is about, if any.
    """

    kind: str
    subject: str = INSTALLATION
    since: datetime | None = None
    severity: Severity
    sentence: str
    remedy: str = ""
    schedule: str = ""
    run: str = ""

    @classmethod
    def ok(cls, kind: str, sentence: str) -> Finding:
        """A check that passed."""
        return cls(kind=kind, severity="ok", sentence=sentence)

    @classmethod
    def warn(cls, kind: str, sentence: str, *, remedy: str, **about: Any) -> Finding:
        """A risk; `about` are the other fields: subject, since, schedule and run."""
        return cls(kind=kind, severity="warn", sentence=sentence, remedy=remedy, **about)

    @classmethod
    def fail(cls, kind: str, sentence: str, *, remedy: str, **about: Any) -> Finding:
        """Something that does not work; `about` are the other fields."""
        return cls(kind=kind, severity="fail", sentence=sentence, remedy=remedy, **about)


def command_line(*words: str, namespace: str = HOME_NAMESPACE) -> str:
    """A command as a person can paste it into a shell: names are quoted, and another namespace is named."""
    where = () if namespace == HOME_NAMESPACE else ("--namespace", namespace)
    return shlex.join(("timewright", *words, *where))


def list_names(names: Sequence[str], *, max_shown: int = 3) -> str:
    """The first names, and how many more there are: `a, b, c and 4 more`."""
    more = f" and {len(names) - max_shown} more" if len(names) > max_shown else ""
    return ", ".join(names[:max_shown]) + more


def worst_severity(findings: tuple[Finding, ...]) -> Severity:
    """The severity of the worst finding."""
    found = {one.severity for one in findings}
    return "fail" if "fail" in found else "warn" if "warn" in found else "ok"
