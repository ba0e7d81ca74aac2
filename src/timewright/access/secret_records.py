"""Stored secrets: encrypted, each with its own data key, bound to their namespace; decrypted for a launch."""

from __future__ import annotations

import base64
import secrets
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from timewright.access.keyring import DerivedKeys, Keyring, check_keyring
from timewright.core.target import SecretDestination
from timewright.errors import MissingExtra, NotAllowed, NotFound, UnreadableRow, UnsafeStore
from timewright.ports import Store, StoredObject, Transaction

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


SECRET = "secret"  # noqa: S105 - a kind of object


class Secret(Struct, frozen=True, kw_only=True):
    """A secret with its encrypted value, where the value may go, and which callers may refer to it.

    A secret without hosts and commands is unbound and may go anywhere; without users, every caller with the
    scope secret-use may refer to it.
    """

    namespace: str
    name: str
    encrypted: EncryptedValue
    created_at: datetime
    set_at: datetime
    set_by: str
    revision: int = 1
    hosts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @property
    def is_unbound(self) -> bool:
        """Whether the value may go anywhere."""
        return not self.hosts and not self.commands

    def may_go_to(self, destination: SecretDestination) -> bool:
        """Whether the value may be sent to a destination; `*.example.com` allows the hosts below it."""
        if destination.kind == "command":
            return self.is_unbound or destination.name in self.commands
        host = destination.name.lower()
        below = (host.endswith(name[1:]) for name in self.hosts if name.startswith("*."))
        return self.is_unbound or host in self.hosts or any(below)

    def check_destination(self, destination: SecretDestination) -> None:
        """Raise NotAllowed if the value may not go there."""
        if not self.may_go_to(destination):
            raise NotAllowed(
                f"secret://{self.name} may not go to {destination}",
                field="secret",
                value=self.name,
                rule=f"only to {', '.join([*self.hosts, *self.commands])}",
                fix=f"secret bind {self.name} with this {destination.kind} too",
            )

    @property
    def encryption_context(self) -> str:
        """The context that its encryption is bound to."""
        return encryption_context(self.namespace, self.name)


def encryption_context(namespace: str, name: str) -> str:
    """The context that the encryption of a secret is bound to: its namespace and name."""
    return f"{namespace}\0{name}"


def find_secrets(tx: Transaction, namespace: str | None, names: list[str] | None = None) -> list[Secret]:
    """The secrets of a namespace, or of all namespaces, by name."""
    rows = tx.get_objects(SECRET, namespace=namespace, names=names)
    return [row.decode(Secret) for row in rows]


def put_secret(tx: Transaction, secret: Secret, *, replaces: int, now: datetime) -> None:
    """Write a secret; raises Conflict if the revision is stale."""
    row = StoredObject.of(
        SECRET, secret.name, secret, namespace=secret.namespace, revision=secret.revision, at=now
    )
    tx.put_objects([row], replaces={secret.name: replaces})


def read_secret_value(
    store: Store, keyring: Keyring, *, namespace: str, name: str, destination: SecretDestination
) -> str:
    """Decrypt the value of a secret, for a launch in its own namespace, if it may go to the destination."""

    def work(tx: Transaction) -> list[Secret]:
        check_keyring(tx, keyring)
        return find_secrets(tx, namespace, [name])

    found = store.read(work)
    if not found:
        raise NotFound(f"no secret {name}", field="secret", value=name, fix=f"secret set {name}")
    found[0].check_destination(destination)
    return decrypt(keyring, found[0].encrypted, context=found[0].encryption_context)


def reencrypt_secret(keyring: Keyring, secret: Secret) -> Secret:
    """The secret, encrypted with the current secret key."""
    sealed = reencrypt(keyring, secret.encrypted, context=secret.encryption_context)
    return msgspec.structs.replace(secret, encrypted=sealed, revision=secret.revision + 1)
