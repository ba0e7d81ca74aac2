"""The kinds of target: what a run executes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from timewright.core.alerts.channels import AnySender, Message, Ping
from timewright.core.moments import SECOND, format_duration
from timewright.errors import InvalidInput

Text = Annotated[str, Meta(min_length=1, max_length=10_000)]
Argument = Annotated[str, Meta(max_length=131_072)]
Isolation = Literal["inherit", "loop", "thread", "process"]
# Prefix of `tokens_from` and `money_from` that reads the cost from a header instead of the response body.
COST_HEADER = "header:"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


class Call(
    Struct, frozen=True, kw_only=True, tag="call", tag_field="kind", forbid_unknown_fields=True, gc=False
):
    """A Python function, by its registered name."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    args: dict[str, Any] = {}
    isolation: Isolation = "inherit"


class Http(Struct, frozen=True, kw_only=True, tag="http", tag_field="kind", forbid_unknown_fields=True):
    """An HTTP request; a 2xx response is success."""

    url: Annotated[str, Meta(min_length=1, max_length=8192)]
    method: Method = "GET"
    headers: dict[str, str] = {}
    body: Any = None
    timeout: timedelta = 30 * SECOND
    max_response_kb: Annotated[int, Meta(ge=1, le=10_000)] = 100
    redirects: Annotated[int, Meta(ge=0, le=3)] = 0
    sign_with: str | None = None
    tokens_from: Annotated[str, Meta(max_length=255)] = ""
    money_from: Annotated[str, Meta(max_length=255)] = ""

    def __post_init__(self) -> None:
        if not SECOND <= self.timeout <= 1800 * SECOND:
            raise InvalidInput(
                f"target.timeout {format_duration(self.timeout)} is out of range",
                field="target.timeout",
                value=format_duration(self.timeout),
                rule="1s to 30m",
                fix="timeout: 30s",
            )


# Variables that make the dynamic linker, a shell or an interpreter run other code than the command.
_REFUSED_PREFIXES = (
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "PYTHON",
    "TIMEWRIGHT_",
    "GIT_",
    "GLIBC_",
    "MALLOC_",
    "PERL5",
    "LUA_",
)
_REFUSED_NAMES = frozenset(
    {
        "PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND",
        "CDPATH", "GLOBIGNORE", "PERLLIB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "CLASSPATH",
        "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "GCONV_PATH", "NLSPATH", "LOCPATH",
        "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF", "TMPDIR", "TZDIR", "TERMINFO",
        "TERMCAP", "EDITOR", "VISUAL", "PAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "SSH_ASKPASS",
        "SUDO_ASKPASS", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "SSLKEYLOGFILE",
        "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "PHPRC", "PHP_INI_SCAN_DIR", "XDG_CONFIG_HOME",
        "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS", "CURL_HOME", "WGETRC",
    }
)  # fmt: skip


def may_set_variable(name: str) -> bool:
    """Whether a shell target may set this variable; a program such as `env` may set any."""
    return not (name in _REFUSED_NAMES or name.startswith(_REFUSED_PREFIXES))


class Shell(Struct, frozen=True, kw_only=True, tag="shell", tag_field="kind", forbid_unknown_fields=True):
    """A command as a list of arguments; never interpreted by a shell."""

    command: Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=1000)]
    env: dict[str, str] = {}
    cwd: str | None = None
    output_kb: Annotated[int, Meta(ge=1, le=10_000)] = 64


class Workflow(
    Struct, frozen=True, kw_only=True, tag="workflow", tag_field="kind", forbid_unknown_fields=True
):
    """A stored workflow (DAG) whose steps become runs."""

    workflow: Annotated[str, Meta(min_length=1, max_length=255)]
    version: Annotated[int, Meta(ge=1)] | None = None
    input: dict[str, Any] = {}
    user: str | None = None


class Handoff(Struct, frozen=True, kw_only=True, tag="handoff", tag_field="kind", forbid_unknown_fields=True):
    """Nothing is launched; an external worker leases the run and reports the result."""

    payload: Any = None


class Publish(Struct, frozen=True, kw_only=True, tag="publish", tag_field="kind", forbid_unknown_fields=True):
    """A message to a task queue or broker such as Celery or Redis."""

    to: Annotated[str, Meta(min_length=1, max_length=64)]
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    url: Annotated[str, Meta(max_length=8192)] = ""
    payload: Any = None
    options: dict[str, Any] = {}
    wait: bool = False


class Note(Struct, frozen=True, kw_only=True, tag="note", tag_field="kind", forbid_unknown_fields=True):
    """A text that is the result itself: a reminder, or a placeholder; sent to `channel`, if it names one."""

    text: Text
    channel: Annotated[str, Meta(max_length=255)] = ""


# The field that holds the data of a target. A command has only its environment, a note only its text.
DATA_FIELDS: dict[type, str] = {
    Call: "args",
    Http: "body",
    Workflow: "input",
    Handoff: "payload",
    Publish: "payload",
}


class Deliver(Struct, frozen=True, kw_only=True, tag="deliver", tag_field="kind", forbid_unknown_fields=True):
    """A message to the sender of a channel; made by the ledger, never written by a user."""

    to: AnySender | Ping
    message: Message


# What a user may write as the target of a schedule, and what a run may execute.
AnyTarget = Call | Http | Shell | Workflow | Handoff | Publish | Note
RunTarget = AnyTarget | Deliver

SECRET_PREFIX = "secret://"  # noqa: S105 - the scheme of a reference, not a secret
RUN_TOKEN = "run-token"  # noqa: S105 - the name of the token of the run itself


class SecretDestination(Struct, frozen=True):
    """Where a value would go: a host of a request or a broker, or the program of a command."""

    kind: Literal["host", "command"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def secret_destination(target: Http | Shell | Publish) -> SecretDestination:
    """Where the secrets of a target go; a broker without a plain URL is named by its kind."""
    if isinstance(target, Shell):
        return SecretDestination("command", target.command[0])
    url = target.url if isinstance(target, Http) or SECRET_PREFIX not in target.url else ""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    return SecretDestination("host", host or (target.to if isinstance(target, Publish) else url))


# Words that only a shell interprets.
SHELL_OPERATORS = frozenset(
    {"|", "||", "|&", "&&", "&", ";", ">", ">>", "<", "<<", "2>", "2>>", "2>&1", "&>"}
)


def find_shell_operator(words: Sequence[str]) -> str | None:
    """Return the first word that only a shell interprets, such as a pipe."""
    return next((word for word in words if word in SHELL_OPERATORS), None)


def shell_command(words: Sequence[str]) -> list[str]:
    """The command that lets a shell interpret these words."""
    return ["sh", "-c", " ".join(words)]
