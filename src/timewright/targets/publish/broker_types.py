"""The supported brokers, and the validation of publish targets before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.input.input_errors import input_error
from timewright.core.target import SECRET_PREFIX, Publish
from timewright.errors import InvalidInput, MissingExtra
from timewright.ports import Launch
from timewright.targets.publish.celery import CeleryBroker
from timewright.targets.publish.kubernetes_temporal import KubernetesBroker, TemporalBroker
from timewright.targets.publish.messaging import NatsBroker, RabbitmqBroker, SqsBroker
from timewright.targets.publish.protocol import (
    URL_FIELD,
    Broker,
    BrokerAddress,
    BrokerMessage,
    BrokerOptions,
    build_message,
    encode_payload,
    parse_broker_url,
)
from timewright.targets.publish.redis import DramatiqBroker, RedisStreamBroker, RqBroker
from timewright.targets.secret_references import (
    RevealedSecrets,
    find_references,
    parse_reference,
)

_ALL: tuple[type[Broker], ...] = (
    CeleryBroker,
    RqBroker,
    DramatiqBroker,
    RedisStreamBroker,
    NatsBroker,
    RabbitmqBroker,
    SqsBroker,
    TemporalBroker,
    KubernetesBroker,
)
BROKER_TYPES = {kind.name: kind for kind in _ALL}


class PreparedPublish(Struct, frozen=True, kw_only=True):
    """A validated target; secrets are still references."""

    broker_type: type[Broker]
    url: str
    options: BrokerOptions

    @property
    def secrets(self) -> frozenset[str]:
        """The names of all secrets that the connection needs."""
        return find_references(
            [self.url, *(getattr(self.options, name) for name in self.options.secret_options)]
        )

    def with_secrets(self, revealed: RevealedSecrets) -> tuple[BrokerAddress, BrokerOptions]:
        """The address and the options with secret values filled in."""
        named = {name: revealed.fill(getattr(self.options, name)) for name in self.options.secret_options}
        options = replace(self.options, **named)
        return _address(self.broker_type, revealed.fill(self.url)).with_credentials(
            options.user, options.password
        ), options

    def message(self, target: Publish, launch: Launch, options: BrokerOptions) -> BrokerMessage:
        """Build the message of a launch."""
        return build_message(target, launch, options=options, max_bytes=self.broker_type.max_bytes)


def check_installed(broker_type: type[Broker]) -> None:
    """Raise MissingExtra if a required package is not installed."""
    for module in broker_type.modules:
        if find_spec(module) is None:
            raise MissingExtra(
                f"publishing to {broker_type.name} needs the package {module}, which is not installed",
                field="target.to",
                value=broker_type.name,
                rule=f"publish to {broker_type.name} needs {' and '.join(broker_type.modules)}",
                fix=f'pip install "timewright[{broker_type.extra}]"',
            )


def check_publish(target: Publish) -> None:
    """Validate a target, and check that its client library is installed."""
    check_installed(prepare_publish(target).broker_type)


def prepare_publish(target: Publish) -> PreparedPublish:
    """Validate all parts of a target."""
    broker_type = _kind(target.to)
    if target.wait and not broker_type.has_results:
        able = ", ".join(sorted(word for word, one in BROKER_TYPES.items() if one.has_results))
        why, rule = f"is not possible with {broker_type.name}", f"wait works with: {able}"
        raise input_error("target.wait", target.wait, why, rule=rule, fix="wait: false")
    _check_url(broker_type, target.url)
    options = _options(broker_type, target.options)
    encode_payload(target.payload, max_bytes=broker_type.max_bytes)
    if target.wait and broker_type.name == "celery" and not getattr(options, "result_backend", ""):
        rule, fix = "wait needs a result backend", "result_backend: redis://localhost:6379/1"
        raise input_error("target.options.result_backend", "", "is missing", rule=rule, fix=fix)
    return PreparedPublish(broker_type=broker_type, url=target.url, options=options)


def is_allowed(broker_type: type[Broker], addresses: Sequence[BrokerAddress], allowed: Sequence[str]) -> bool:
    """Whether the administrator allows this broker: by name, or every address by scheme, host and port."""
    return broker_type.name in allowed or all(bool(one.host) and one.endpoint in allowed for one in addresses)


def _kind(word: str) -> type[Broker]:
    if word in BROKER_TYPES:
        return BROKER_TYPES[word]
    near = get_close_matches(word, BROKER_TYPES, n=1, cutoff=0.5)
    raise input_error(
        "target.to",
        word,
        "is not a supported broker",
        rule=f"one of {', '.join(sorted(BROKER_TYPES))}",
        fix=f"to: {near[0]}" if near else "to: celery",
    )


def _check_url(broker_type: type[Broker], url: str) -> None:
    """Refuse a URL with a password. A URL may be a reference to a secret as a whole."""
    if SECRET_PREFIX in url:
        found = parse_reference(url)
        if found is None or found.prefix:
            rule = "the whole URL is secret://name, or options.password is"
            raise input_error(
                URL_FIELD,
                f"of {len(url)} characters",
                "is not a reference to a secret",
                rule=rule,
                fix=broker_type.example_url,
            )
    elif _address(broker_type, url).password:
        rule = "a password is given as a reference to a secret"
        fix = "options.password: secret://broker-password, or url: secret://broker-url"
        raise input_error(
            URL_FIELD, _address(broker_type, url).display, "contains a password", rule=rule, fix=fix
        )


def _address(broker_type: type[Broker], url: str) -> BrokerAddress:
    if not url and broker_type.has_default_address:
        return BrokerAddress()
    if not url:
        rule = f"publishing to {broker_type.name} needs a URL"
        raise input_error(URL_FIELD, url, "is missing", rule=rule, fix=f"url: {broker_type.example_url}")
    return parse_broker_url(url, schemes=broker_type.schemes, fix=broker_type.example_url)


def _options(broker_type: type[Broker], given: dict[str, Any]) -> BrokerOptions:
    try:
        options: BrokerOptions = msgspec.convert(given, broker_type.options_type)
    except msgspec.ValidationError as error:
        path, known = _path(str(error)), ", ".join(broker_type.options_type.__struct_fields__)
        raise InvalidInput(
            f"{path} does not fit {broker_type.name}: {error}",
            field=path,
            rule=f"the options of {broker_type.name} are: {known}",
            fix="correct it, or leave it out",
        ) from None
    options.check()
    for name in broker_type.options_type.__struct_fields__:
        _check_secret(name, getattr(options, name), private=name in options.secret_options)
    options.other_addresses()
    return options


def _check_secret(name: str, value: Any, *, private: bool) -> None:
    field = f"target.options.{name}"
    if not private and find_references(value):
        rule = "only connection options may refer to a secret"
        raise input_error(
            field, value, "refers to a secret", rule=rule, fix="use options.password, or the url"
        )
    if not private or not value:
        return
    found = parse_reference(value)
    is_named = found is not None and not found.prefix
    is_open = name != "password" and "@" not in value and SECRET_PREFIX not in value
    if not is_named and not is_open:
        rule, shown = "it is given as a reference to a secret", f"of {len(value)} characters"
        raise input_error(
            field, shown, "is not a reference to a secret", rule=rule, fix=f"{name}: secret://broker"
        )


def _path(message: str) -> str:
    """The field in a msgspec error, which ends with the path from the root: `$.queue`."""
    at = message.rpartition("`$")[2].rstrip("`") if "`$" in message else ""
    return f"target.options{at}"
