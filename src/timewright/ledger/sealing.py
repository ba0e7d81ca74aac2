"""Secrets at rest: each has a key of its own, and that key is locked with one that lies outside the store."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from timewright.errors import MissingExtra, UnreadableRow, UnsafeStore
from timewright.ledger.keyring import Keyring, Ring

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


class Sealed(Struct, frozen=True, kw_only=True):
    """A secret that cannot be read from here: under which secret key, its own key locked, its text locked."""

    mark: str
    key: str
    text: str


def seal(ring: Ring, value: str, *, place: str) -> Sealed:
    """Lock a value; it opens only for the same place, so that no row can be passed off as another."""
    own = secrets.token_bytes(32)
    return Sealed(
        mark=ring.mark,
        key=_locked(ring.envelope, own, place=place),
        text=_locked(own, value.encode(), place=place),
    )


def unseal(keyring: Keyring, sealed: Sealed, *, place: str) -> str:
    """The value again; refused when the secret key is another, or the row was changed or moved."""
    own = _unlocked(_ring(keyring, sealed).envelope, sealed.key, place=place)
    return _unlocked(own, sealed.text, place=place).decode()


def resealed(keyring: Keyring, sealed: Sealed, *, place: str) -> Sealed:
    """The same under the secret key in use; the value itself is not looked at."""
    own = _unlocked(_ring(keyring, sealed).envelope, sealed.key, place=place)
    ring = keyring.current
    return msgspec.structs.replace(sealed, mark=ring.mark, key=_locked(ring.envelope, own, place=place))


def _ring(keyring: Keyring, sealed: Sealed) -> Ring:
    ring = keyring.find(sealed.mark)
    if ring is None:
        raise UnsafeStore(
            f"this secret was locked under another secret key ({sealed.mark})",
            field="secret_key",
            value=keyring.current.mark,
            rule="the secret key that locked a secret opens it",
            fix="add the old key as a further line of TIMEWRIGHT_SECRET_KEY_FILE",
        )
    return ring


def _locked(key: bytes, data: bytes, *, place: str) -> str:
    nonce = secrets.token_bytes(_NONCE)
    return base64.b64encode(nonce + _cipher(key).encrypt(nonce, data, place.encode())).decode()


def _unlocked(key: bytes, text: str, *, place: str) -> bytes:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        data = base64.b64decode(text, validate=True)
        return cipher.decrypt(data[:_NONCE], data[_NONCE:], place.encode())
    except (ValueError, InvalidTag):
        raise UnreadableRow(
            "a secret was changed or moved in the store, and cannot be opened",
            field="secret",
            rule="a secret opens where it was set, as it was written",
            fix="secret set it again",
        ) from None


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtra(
            "secrets need a part that is not installed",
            field="secrets",
            rule="values are kept with AES-256-GCM, which comes with an extra",
            fix="pip install 'timewright[secrets]'",
        ) from None
    return AESGCM(key)
