"""Encrypts secrets: each has its own data key, wrapped with the secret key outside the store."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from timewright.access.keyring import DerivedKeys, Keyring
from timewright.errors import MissingExtra, UnreadableRow, UnsafeStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


class EncryptedValue(Struct, frozen=True, kw_only=True):
    """An encrypted secret: the id of the secret key, the wrapped data key, and the ciphertext."""

    key_id: str
    wrapped_key: str
    ciphertext: str


def encrypt(keys: DerivedKeys, value: str, *, context: str) -> EncryptedValue:
    """Encrypt a value; it decrypts only with the same context, so that no row can replace another."""
    data_key = secrets.token_bytes(32)
    return EncryptedValue(
        key_id=keys.id,
        wrapped_key=_encrypt_bytes(keys.encryption_key, data_key, context=context),
        ciphertext=_encrypt_bytes(data_key, value.encode(), context=context),
    )


def decrypt(keyring: Keyring, encrypted: EncryptedValue, *, context: str) -> str:
    """Decrypt a value; raises if the secret key is unknown, or the row was changed or moved."""
    data_key = _decrypt_bytes(
        _keys_of(keyring, encrypted).encryption_key, encrypted.wrapped_key, context=context
    )
    return _decrypt_bytes(data_key, encrypted.ciphertext, context=context).decode()


def reencrypt(keyring: Keyring, encrypted: EncryptedValue, *, context: str) -> EncryptedValue:
    """Wrap the data key again with the current secret key; the value is not decrypted."""
    data_key = _decrypt_bytes(
        _keys_of(keyring, encrypted).encryption_key, encrypted.wrapped_key, context=context
    )
    keys = keyring.current
    return msgspec.structs.replace(
        encrypted, key_id=keys.id, wrapped_key=_encrypt_bytes(keys.encryption_key, data_key, context=context)
    )


def _keys_of(keyring: Keyring, encrypted: EncryptedValue) -> DerivedKeys:
    keys = keyring.find(encrypted.key_id)
    if keys is None:
        raise UnsafeStore(
            f"this secret was encrypted with another secret key ({encrypted.key_id})",
            field="secret_key",
            value=keyring.current.id,
            rule="a secret is decrypted with the secret key that encrypted it",
            fix="add the old key as another line of TIMEWRIGHT_SECRET_KEY_FILE",
        )
    return keys


def _encrypt_bytes(key: bytes, data: bytes, *, context: str) -> str:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return base64.b64encode(nonce + _cipher(key).encrypt(nonce, data, context.encode())).decode()


def _decrypt_bytes(key: bytes, text: str, *, context: str) -> bytes:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        data = base64.b64decode(text, validate=True)
        return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], context.encode())
    except (ValueError, InvalidTag):
        raise UnreadableRow(
            "a secret was changed or moved in the store and cannot be decrypted",
            field="secret",
            rule="a stored secret is not changed or moved",
            fix="set it again: secret set",
        ) from None


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtra(
            "secrets need a package that is not installed",
            field="secrets",
            rule="values are encrypted with AES-256-GCM, which the extra `secrets` provides",
            fix="pip install 'timewright[secrets]'",
        ) from None
    return AESGCM(key)
