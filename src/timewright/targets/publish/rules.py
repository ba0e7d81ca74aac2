"""What a publish target may ask for: refused when it is written down, long before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from timewright.core.refusals import refused
from timewright.core.target import Publish
from timewright.errors import InvalidInput
from timewright.ports import Launch
from timewright.targets.publish.address import FIELD, Address, read_address
from timewright.targets.publish.kinds import KINDS, Kind
from timewright.targets.publish.message import Message, Options, encoded, message_of
from timewright.targets.signing import MARK, Revealed, parse_reference, references_in


class Prepared(Struct, frozen=True, kw_only=True):
    """A target that was found good, with secrets still by name."""

    kind: Kind
    url: str
    options: Options

    @property
    def secrets(self) -> frozenset[str]:
        """The names of all secrets that the connection needs."""
        return references_in([self.url, *(getattr(self.options, name) for name in self.options.private)])

    def filled(self, revealed: Revealed) -> tuple[Address, Options]:
        """The address and the options with secrets in place of their names."""
        named = {name: revealed.fill(getattr(self.options, name)) for name in self.options.private}
        options = replace(self.options, **named)
        return _address(self.kind, revealed.fill(self.url)).signed_in(options.user, options.password), options

    def message(self, target: Publish, launch: Launch, options: Options) -> Message:
        """What is sent for this launch."""
        return message_of(target, launch, options=options, most_bytes=self.kind.most_bytes)


def check_publish(target: Publish) -> None:
    """Refuse a target that could never be sent, as early as when its schedule is written."""
    prepare(target).kind.check_installed()


def prepare(target: Publish) -> Prepared:
    """Check every part of a target."""
    kind = _kind(target.to)
    if target.wait and not kind.answers:
        able = ", ".join(sorted(word for word, one in KINDS.items() if one.answers))
        why, rule = f"cannot be had from {kind.word}", f"these tell how the work ended: {able}"
        raise refused("target.wait", target.wait, why, rule=rule, fix="wait: false")
    _check_url(kind, target.url)
    options = _options(kind, target.options)
    encoded(target.payload, most_bytes=kind.most_bytes)
    if target.wait and kind.word == "celery" and not getattr(options, "result_backend", ""):
        rule, fix = "a result is read from a result backend", "result_backend: redis://localhost:6379/1"
        raise refused("target.options.result_backend", "", "is needed to wait", rule=rule, fix=fix)
    return Prepared(kind=kind, url=target.url, options=options)


def is_allowed(kind: Kind, addresses: Sequence[Address], allowed: Sequence[str]) -> bool:
    """Whether the one who runs us allows this broker: by its word, or by scheme, host and port of each."""
    return kind.word in allowed or all(bool(one.host) and one.place in allowed for one in addresses)


def _kind(word: str) -> Kind:
    if word in KINDS:
        return KINDS[word]
    near = get_close_matches(word, KINDS, n=1, cutoff=0.5)
    raise refused(
        "target.to",
        word,
        "is not a broker we know",
        rule=f"one of {', '.join(sorted(KINDS))}",
        fix=f"to: {near[0]}" if near else "to: celery",
    )


def _check_url(kind: Kind, url: str) -> None:
    """An address without a password, or one that is a secret as a whole and is read when it is needed."""
    if MARK in url:
        found = parse_reference(url)
        if found is None or found.before:
            rule = "the whole address is secret://name, or only the password is, in options.password"
            raise refused(FIELD, f"of {len(url)} characters", "names no secret", rule=rule, fix=kind.fix)
    elif _address(kind, url).password:
        rule = "a password is named and never written down"
        fix = "options.password: secret://broker-password, or url: secret://broker-url"
        raise refused(FIELD, _address(kind, url).shown, "holds a password", rule=rule, fix=fix)


def _address(kind: Kind, url: str) -> Address:
    if not url and kind.has_default:
        return Address()
    if not url:
        rule = f"the address of the {kind.word} to publish to"
        raise refused(FIELD, url, "is missing", rule=rule, fix=f"url: {kind.fix}")
    return read_address(url, schemes=kind.schemes, fix=kind.fix)


def _options(kind: Kind, given: dict[str, Any]) -> Options:
    try:
        options: Options = msgspec.convert(given, kind.options)
    except msgspec.ValidationError as error:
        path, known = _path(str(error)), ", ".join(kind.options.__struct_fields__)
        raise InvalidInput(
            f"{path} does not fit {kind.word}: {error}",
            field=path,
            rule=f"the options of {kind.word} are: {known}",
            fix="correct it, or leave it out",
        ) from None
    options.check()
    for name in kind.options.__struct_fields__:
        _check_secret(name, getattr(options, name), private=name in options.private)
    options.elsewhere()
    return options


def _check_secret(name: str, value: Any, *, private: bool) -> None:
    field = f"target.options.{name}"
    if not private and references_in(value):
        rule = "a secret is only read for the connection"
        raise refused(field, value, "names a secret", rule=rule, fix="use options.password, or the url")
    if not private or not value:
        return
    found = parse_reference(value)
    is_named = found is not None and not found.before
    is_open = name != "password" and "@" not in value and MARK not in value
    if not is_named and not is_open:
        rule, shown = "it is named and never written down", f"of {len(value)} characters"
        raise refused(field, shown, "is not the name of a secret", rule=rule, fix=f"{name}: secret://broker")


def _path(said: str) -> str:
    """The option that msgspec complains of: it ends with the path from the root, `$.queue`."""
    at = said.rpartition("`$")[2].rstrip("`") if "`$" in said else ""
    return f"target.options{at}"
