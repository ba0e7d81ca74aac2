"""Every number that may be set, each with a sentence, a default and a limit."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from timewright.core.moments import MINUTE, SECOND, as_duration, bounded, spell_duration
from timewright.core.policies import LONGEST_REST, CatchUp, Floor, LeaseTerms, Overlap, Retry
from timewright.core.shards import WHOLE, read_shard
from timewright.core.zones import check_zone
from timewright.errors import InvalidInput

Algorithm = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "EdDSA"
]


Amount = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class Allowed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses that HTTP targets may call though they are not public: for one host and port, or for all."""

    cidr: Annotated[str, Meta(min_length=1, max_length=64)]
    host: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None

    def __post_init__(self) -> None:
        try:
            ip_network(self.cidr)
        except ValueError as error:
            raise InvalidInput(
                f"{self.cidr!r} is not a network: {error}",
                field="cidr",
                value=self.cidr,
                rule="an address and a prefix with no bits beyond it",
                fix="10.20.0.0/16, or 10.20.30.40/32 for one address",
            ) from None


class EgressRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where HTTP targets may go beside public addresses, and on which ports; no ports means all."""

    allow: Annotated[tuple[Allowed, ...], Meta(max_length=1000)] = ()
    ports: Annotated[tuple[Annotated[int, Meta(ge=1, le=65_535)], ...], Meta(max_length=1000)] = ()
    per_host: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """How many requests to one host are under way at once; 0 is no bound of its own."""
    authorities: Annotated[str, Meta(max_length=4096)] = ""
    """A file with the authorities that certificates of HTTPS targets are signed by, beside the usual ones."""


class CommandRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the commands of shell targets may be and use, where `shell` lets any run; unsaid is unlimited.

    `programs` are names, full paths, or folders with a slash at the end. Commands run in `folder`, and none
    leaves it by its own `cwd`. `environment` names variables of ours that commands get as well. `processes`
    counts all that the same user has. `new_privileges: false` takes setuid programs their power, and
    `outlives_us: false` ends a command whose owner was killed.
    """

    programs: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...], Meta(max_length=1000)
    ] = ()
    folder: Annotated[str, Meta(max_length=4096)] = ""
    environment: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^\w{1,255}$")], ...], Meta(max_length=1000)
    ] = ()
    processes: Amount | None = None
    memory_mb: Amount | None = None
    open_files: Amount | None = None
    cpu_seconds: Amount | None = None
    file_mb: Amount | None = None
    new_privileges: bool = True
    outlives_us: bool = True


class ScheduleDefaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for schedules that do not say so themselves; a preset lies over it."""

    overlap: Overlap | None = None
    queue_limit: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    catch_up: CatchUp | None = None
    catch_up_limit: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    catch_up_window: timedelta | None = None
    grace: timedelta | None = None
    jitter: timedelta | None = None
    retry: Retry | None = None
    lease: LeaseTerms | None = None
    disable_after: Annotated[int, Meta(ge=1, le=1000)] | None = None

    def __post_init__(self) -> None:
        for field in ("catch_up_window", "grace", "jitter"):
            length = getattr(self, field)
            if length is not None:
                bounded(length, field=field)

    def given(self) -> dict[str, Any]:
        """Those that were set, by the fields of a schedule."""
        return {field: value for field, value in asdict(self).items() if value is not None}


class AdvisorTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model advises where `planner` is `llm`: its endpoint, its key by reference, and its prices."""

    base_url: Annotated[str, Meta(pattern=r"^https?://[^\s@]+$", max_length=2000)] = (
        "https://api.openai.com/v1"
    )
    model: Annotated[str, Meta(max_length=200)] = ""
    shape: Literal["openai", "anthropic"] = "openai"
    key: Annotated[str, Meta(pattern=r"^(env:\w{1,200}|secret://[\w.-]{1,200})?$")] = ""
    tools: Literal["native", "json"] = "native"
    timeout: timedelta = MINUTE
    reply_tokens: Annotated[int, Meta(ge=64, le=100_000)] = 1024
    price_in: Annotated[float, Meta(ge=0, le=100_000)] = 0.0
    price_out: Annotated[float, Meta(ge=0, le=100_000)] = 0.0


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one instance behaves; what a schedule says for itself is not here."""

    capacity: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """How many runs this instance has under way at once."""
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """How many schedules one pass of the tick looks at."""
    threads: Annotated[int, Meta(ge=1, le=1000)] = 32
    """How many plain functions run at once on threads."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 2
    """How many worker subprocesses run isolated functions."""
    longest_rest: timedelta = LONGEST_REST
    """The longest the tick sleeps, whatever is due; at most a minute."""
    admit: Literal["any", "leader"] = "any"
    """Who decides what is due: every instance, or only the one that leads; what it leaves is taken late."""
    shard: Annotated[str, Meta(max_length=9)] = ""
    """The part of all schedules that this instance decides, as `2/4`; without one, all of them."""
    policy_file: Annotated[str, Meta(max_length=4096)] = ""
    """The file with the policies of queues, as JSON or YAML; what it says holds while it can be read."""
    entry_points: bool = True
    """Whether schedules may call the functions that installed packages offer as `timewright.calls`."""
    look_ahead: timedelta = MINUTE
    """Over how long `catch_up: spread` spreads what was missed, unless a schedule says so itself."""
    defaults: ScheduleDefaults = ScheduleDefaults()
    """What holds for schedules that do not say so themselves: `overlap`, `catch_up`, `jitter`, `lease` …"""
    stop_wait: timedelta = 30 * SECOND
    """How long a graceful stop waits for work under way."""
    interval_floor: Floor = Floor()
    """The shortest interval a schedule may ask for, and what to do with a shorter one."""
    keep_history: timedelta = timedelta(days=30)
    """How long finished runs are kept."""
    keep_runs: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    """How many finished runs are kept at most, whatever their age; the oldest go first."""
    keep_bytes: Annotated[int, Meta(ge=1_000_000, le=1_000_000_000_000_000)] | None = None
    """How large the store may be before the oldest finished runs go, whatever their age."""
    shell: bool = False
    """Whether shell targets may run; off unless allowed."""
    commands: CommandRules = CommandRules()
    """What they may be and use: `programs`, `folder`, `environment`, `memory_mb`, `cpu_seconds` …"""
    publish: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(max_length=1000)
    ] = ()
    """Brokers that publish targets may use: `celery`, or `redis://host:6379`; none unless allowed."""
    local: bool = True
    """Whether HTTP targets may call 127.0.0.1 and ::1."""
    egress: EgressRules = EgressRules()
    """Where HTTP targets may go beside public addresses: `allow`; `ports`, `per_host` and `authorities`."""
    log: Literal["off", "text", "json"] = "off"
    """One line per fact on the standard error: for people, for programs, or none."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Which facts get a line: `warning` leaves those that need no one's attention out."""
    metrics: bool = False
    """Whether this instance counts what happens, for Prometheus."""
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """A port of its own where the numbers are read, for a process without the HTTP door; 0 is none."""
    metrics_host: Annotated[str, Meta(min_length=1, max_length=255)] = "127.0.0.1"
    """The address that port is opened on."""
    metric_schedules: Annotated[int, Meta(ge=0, le=1000)] = 0
    """For how many schedules there are numbers of their own; all others are counted together."""
    trace: bool = False
    """Whether every attempt is a span that OpenTelemetry exports; the extra `otel` is needed."""
    secret_key_file: Annotated[str, Meta(max_length=4096)] = ""
    """The file with the secret key of the installation; without one it lies beside the store."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 7411
    """The port of the HTTP door; 0 takes a free one."""
    bind: Annotated[str, Meta(min_length=1, max_length=255)] = "127.0.0.1"
    """The address the HTTP door is opened on; any other than this machine's own needs a key and TLS."""
    hosts: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(max_length=100)
    ] = ()
    """Names the HTTP door answers to, beside those of this machine."""
    tls_cert: Annotated[str, Meta(max_length=4096)] = ""
    """The file with the certificate of the HTTP door, for TLS without a proxy."""
    tls_key: Annotated[str, Meta(max_length=4096)] = ""
    """The file with the private key of that certificate."""
    behind_proxy: bool = False
    """Whether a proxy in front of the HTTP door does TLS; only then may it be opened wider without."""
    zones: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=1000)] = ()
    """The time zones that schedules may name; without any, all of them."""
    jwt_keys: Annotated[str, Meta(max_length=4096)] = ""
    """The file with the keys that services' tokens are signed with: a JWKS, a PEM, or one secret."""
    jwt_algorithms: tuple[Algorithm, ...] = ()
    """The algorithms that such a token may be signed with; the token does not choose."""
    jwt_audience: Annotated[str, Meta(max_length=255)] = ""
    """The audience that such a token must be made for."""
    jwt_issuer: Annotated[str, Meta(max_length=255)] = ""
    """The issuer that such a token must come from; without one, any that has the key."""
    tls_client_ca: Annotated[str, Meta(max_length=4096)] = ""
    """The file with the authorities that clients of the HTTP door must have a certificate of."""
    planner: Literal["off", "heuristic", "llm"] = "off"
    """Who advises adaptive schedules: nobody, the embedded rules, or a model."""
    planner_every: timedelta = 5 * MINUTE
    """How often the planner looks who deserves attention."""
    advisor: AdvisorTerms = AdvisorTerms()
    """The model that advises: `base_url`, `model`, `shape`, `key` by reference, `tools`, prices."""

    @property
    def for_schedules(self) -> dict[str, Any]:
        """The values of schedule fields that hold where nobody says otherwise."""
        return {"spread_over": self.look_ahead, **self.defaults.given()}

    def __post_init__(self) -> None:
        for zone in self.zones:
            check_zone(zone, field="zones")
        self._check_admission()
        for field, shortest, longest in (
            ("longest_rest", timedelta(milliseconds=10), LONGEST_REST),
            ("look_ahead", timedelta(0), 60 * MINUTE),
            ("stop_wait", timedelta(0), 24 * 60 * MINUTE),
            ("keep_history", MINUTE, timedelta(days=36_500)),
            ("planner_every", SECOND, 24 * 60 * MINUTE),
        ):
            value = bounded(as_duration(getattr(self, field), field=field), field=field)
            if not shortest <= value <= longest:
                raise InvalidInput(
                    f"{field} {spell_duration(value)} is out of range",
                    field=field,
                    value=spell_duration(value),
                    rule=f"{spell_duration(shortest)} to {spell_duration(longest)}",
                    fix=f"{field}: {spell_duration(longest)} or less",
                )

    def _check_admission(self) -> None:
        if read_shard(self.shard) != WHOLE and self.admit == "leader":
            raise InvalidInput(
                f"shard {self.shard} and admit leader are both given",
                field="shard",
                value=self.shard,
                rule="a leader decides everything, an instance with a shard its part",
                fix="take one of them out",
            )
