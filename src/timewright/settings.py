"""Every setting, with its description, default and limits."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict, force_setattr

from timewright.core.moments import MINUTE, SECOND, as_duration, check_duration, format_duration
from timewright.core.policies.policies import MAX_SLEEP, CatchUp, Floor, LeaseTerms, Overlap, Retry
from timewright.core.schedule.shards import FULL_SHARD, parse_shard
from timewright.core.zones import check_zone, name_of_zone
from timewright.errors import InvalidInput

Algorithm = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "EdDSA"
]


Amount = Annotated[int, Meta(ge=1, le=1_000_000_000)]


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to a server on the address."""
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


class AllowedNetwork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A private network that HTTP targets may call: for one host and port, or for all."""

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
                rule="a network in CIDR notation, with no host bits set",
                fix="10.20.0.0/16, or 10.20.30.40/32 for one address",
            ) from None


class EgressRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Private networks and ports that HTTP targets may call; no ports means all ports."""

    allow: Annotated[tuple[AllowedNetwork, ...], Meta(max_length=1000)] = ()
    ports: Annotated[tuple[Annotated[int, Meta(ge=1, le=65_535)], ...], Meta(max_length=1000)] = ()
    per_host: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """Maximum number of concurrent requests to one host; 0 means no limit."""
    authorities: Annotated[str, Meta(max_length=4096)] = ""
    """PEM file with additional certificate authorities for HTTPS targets."""


class CommandRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits for the commands of shell targets, where `shell` allows them; unset means unlimited.

    `programs` are names, full paths, or folders with a trailing slash. Commands run in `folder`; their own
    `cwd` must stay inside it. `environment` lists variables that commands inherit. `processes` counts all
    processes of the user. `new_privileges: false` disables setuid programs, and `outlives_parent: false`
    kills a command when the process that started it dies.
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
    outlives_parent: bool = True


class EnvironmentRules(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passed": "pass"}
):
    """Which variables of this process its worker processes, and so functions, get: names, or `AWS_*`.

    `deny` wins over `pass`. Paths, user, locale and time zone need no `pass`. `TIMEWRIGHT_` variables are
    never passed, because they hold our own secrets; the variable with the key of the language model only if
    `pass` has its full name.
    """

    passed: Annotated[tuple[Annotated[str, Meta(pattern=r"^[\w*]{1,255}$")], ...], Meta(max_length=1000)] = (
        "*",
    )
    deny: Annotated[tuple[Annotated[str, Meta(pattern=r"^[\w*]{1,255}$")], ...], Meta(max_length=1000)] = ()


class ScheduleDefaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Default values of schedule fields; a preset overrides them, and the schedule overrides both."""

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
                check_duration(length, field=field)

    def explicit_values(self) -> dict[str, Any]:
        """Return the values that were set, by schedule field."""
        return {field: value for field, value in asdict(self).items() if value is not None}


class AdvisorTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that the planner calls if `planner` is `llm`: endpoint, key reference and prices."""

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


class OpenIdTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sign-in to the dashboard with an OpenID Connect provider; off without an `issuer`.

    `client_secret` names a variable as `env:NAME`; a public client has none. `roles` gives each group a role,
    with namespaces after `@`: `{ops: admin, dev: editor@team-a}`. The first group of a person decides; `*` is
    everybody. A person in none of them may not sign in.
    """

    issuer: Annotated[str, Meta(pattern=r"^(https?://[^\s@?#]+)?$", max_length=2000)] = ""
    client_id: Annotated[str, Meta(max_length=255)] = ""
    client_secret: Annotated[str, Meta(pattern=r"^(env:\w{1,200})?$")] = ""
    scopes: Annotated[str, Meta(max_length=1000)] = "openid email profile"
    groups_claim: Annotated[str, Meta(min_length=1, max_length=255)] = "groups"
    roles: dict[str, Annotated[str, Meta(pattern=r"^(viewer|operator|editor|admin)(@[^@\s]{1,2000})?$")]] = {}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one instance. Settings of one schedule are fields of `Schedule`."""

    capacity: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Maximum number of concurrent runs of this instance."""
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """Maximum number of schedules that one tick admits."""
    threads: Annotated[int, Meta(ge=1, le=1000)] = 32
    """Number of threads for synchronous functions."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 2
    """Number of worker processes for functions with `isolation: process`."""
    queues: tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...] = ()
    """Queues whose runs this instance takes; empty means all of them, and runs without a queue."""
    labels: tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...] = ()
    """Labels of this instance, such as `gpu`, for schedules with `runs_on`."""
    max_sleep: timedelta = MAX_SLEEP
    """Maximum sleep between two ticks; at most one minute."""
    max_clock_step: timedelta = 24 * 60 * MINUTE
    """A reading of the clock further away than this from what the boot-time clock allows is not used."""
    admit: Literal["any", "leader"] = "any"
    """Which instances admit due schedules: all of them, or only the elected leader."""
    shard: Annotated[str, Meta(max_length=9)] = ""
    """The shard of schedules that this instance admits, such as `2/4`; empty means all schedules."""
    policy_file: Annotated[str, Meta(max_length=4096)] = ""
    """JSON or YAML file with queue policies; it applies as long as it can be read."""
    entry_points: bool = True
    """Whether schedules may call functions that installed packages register as `timewright.calls`."""
    look_ahead: timedelta = MINUTE
    """Default for `spread_over`: the time over which `catch_up: spread` distributes missed occurrences."""
    defaults: ScheduleDefaults = ScheduleDefaults()
    """Default values of schedule fields: `overlap`, `catch_up`, `jitter`, `lease` …"""
    stop_wait: timedelta = 30 * SECOND
    """How long a graceful shutdown waits for running work."""
    interval_floor: Floor = Floor()
    """Minimum interval of a schedule, and whether a shorter one is refused or raised."""
    keep_history: timedelta = timedelta(days=30)
    """How long to keep finished runs."""
    keep_runs: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    """Maximum number of finished runs; the oldest are deleted first."""
    keep_bytes: Annotated[int, Meta(ge=1_000_000, le=1_000_000_000_000_000)] | None = None
    """Maximum size of the store in bytes; above it, the oldest finished runs are deleted."""
    artifacts: Annotated[str, Meta(max_length=4096)] = ""
    """Folder or object store URL for large data of runs; by default a folder next to a SQLite file."""
    environment: EnvironmentRules = EnvironmentRules()
    """Variables of this process that functions in worker processes get: `pass`, `deny`, such as `AWS_*`."""
    shell: bool = False
    """Whether shell targets may run."""
    commands: CommandRules = CommandRules()
    """Limits for shell commands: `programs`, `folder`, `environment`, `memory_mb`, `cpu_seconds` …"""
    publish: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(max_length=1000)
    ] = ()
    """Brokers that publish targets may use, such as `celery` or `redis://host:6379`; empty means none."""
    local: bool = True
    """Whether HTTP targets may call 127.0.0.1 and ::1."""
    egress: EgressRules = EgressRules()
    """Private networks that HTTP targets may call: `allow`, `ports`, `per_host` and `authorities`."""
    log: Literal["off", "text", "json"] = "off"
    """Log events to standard error as text or JSON, or not at all."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of logged events."""
    metrics: bool = False
    """Whether to collect Prometheus metrics."""
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Separate port for metrics, for a process without the HTTP server; 0 means none."""
    metrics_host: Annotated[str, Meta(min_length=1, max_length=255)] = "127.0.0.1"
    """Address that the metrics port listens on; any address other than loopback needs an API key and TLS."""
    metric_schedules: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Maximum number of schedules with their own metric labels; the others share one label."""
    trace: bool = False
    """Whether to export every attempt as an OpenTelemetry span; needs the extra `otel`."""
    secret_key_file: Annotated[str, Meta(max_length=4096)] = ""
    """File with the installation's secret key; by default a file next to the store."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 7411
    """Port of the HTTP server; 0 picks a free one."""
    bind: Annotated[str, Meta(min_length=1, max_length=255)] = "127.0.0.1"
    """Address that the HTTP server listens on; any address other than loopback needs an API key and TLS."""
    hosts: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...], Meta(max_length=100)
    ] = ()
    """Host names that the HTTP server accepts in addition to localhost."""
    tls_cert: Annotated[str, Meta(max_length=4096)] = ""
    """File with the TLS certificate of the HTTP server, for TLS without a proxy."""
    tls_key: Annotated[str, Meta(max_length=4096)] = ""
    """File with the private key of the TLS certificate."""
    behind_proxy: bool = False
    """Whether a proxy in front of the HTTP server does TLS; allows other addresses without `tls_cert`."""
    zone: Annotated[str, Meta(max_length=64)] = ""
    """Time zone of schedules that name none; empty means the system's on the command line, else UTC."""
    allowed_zones: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=1000)] = ()
    """Time zones that schedules may use; empty means all."""
    jwt_keys: Annotated[str, Meta(max_length=4096)] = ""
    """File with the keys that verify JWTs: a JWKS, a PEM, or one secret."""
    jwt_algorithms: tuple[Algorithm, ...] = ()
    """Accepted signature algorithms of JWTs."""
    jwt_audience: Annotated[str, Meta(max_length=255)] = ""
    """Required audience of JWTs."""
    jwt_issuer: Annotated[str, Meta(max_length=255)] = ""
    """Required issuer of JWTs; empty accepts any issuer."""
    oidc: OpenIdTerms = OpenIdTerms()
    """OpenID Connect provider for signing in: `issuer`, `client_id`, `client_secret`, `roles` by group."""
    tls_client_ca: Annotated[str, Meta(max_length=4096)] = ""
    """PEM file with certificate authorities; if set, clients of the HTTP server need a certificate."""
    planner: Literal["off", "heuristic", "llm"] = "off"
    """What adjusts adaptive schedules: nothing, built-in rules, or a language model."""
    planner_every: timedelta = 5 * MINUTE
    """How often the planner checks which schedules to analyse."""
    advisor: AdvisorTerms = AdvisorTerms()
    """The language model: `base_url`, `model`, `shape`, `key` by reference, `tools`, prices."""

    @property
    def schedule_defaults(self) -> dict[str, Any]:
        """Default values of schedule fields."""
        return {"spread_over": self.look_ahead, **self.defaults.explicit_values()}

    def __post_init__(self) -> None:
        self._check_zones()
        self._check_admission()
        for field, shortest, longest in (
            ("max_sleep", timedelta(milliseconds=10), MAX_SLEEP),
            ("max_clock_step", 60 * MINUTE, 90 * 24 * 60 * MINUTE),
            ("look_ahead", timedelta(0), 60 * MINUTE),
            ("stop_wait", timedelta(0), 24 * 60 * MINUTE),
            ("keep_history", MINUTE, timedelta(days=36_500)),
            ("planner_every", SECOND, 24 * 60 * MINUTE),
        ):
            value = check_duration(as_duration(getattr(self, field), field=field), field=field)
            if not shortest <= value <= longest:
                raise InvalidInput(
                    f"{field} {format_duration(value)} is out of range",
                    field=field,
                    value=format_duration(value),
                    rule=f"{format_duration(shortest)} to {format_duration(longest)}",
                    fix=f"{field}: {format_duration(longest)} or less",
                )

    def _check_zones(self) -> None:
        force_setattr(self, "zone", name_of_zone(self.zone))
        for zone in self.allowed_zones:
            check_zone(zone, field="allowed_zones")
        if self.zone and check_zone(self.zone) not in (self.allowed_zones or (self.zone,)):
            raise InvalidInput(
                f"zone {self.zone} is not an allowed zone",
                field="zone",
                value=self.zone,
                rule="the default zone is one of allowed_zones",
                fix=f"allowed_zones with {self.zone}",
            )

    def _check_admission(self) -> None:
        if parse_shard(self.shard) != FULL_SHARD and self.admit == "leader":
            raise InvalidInput(
                f"shard {self.shard} and admit leader are both given",
                field="shard",
                value=self.shard,
                rule="a leader admits all schedules, an instance with a shard only its own",
                fix="remove one of them",
            )
