"""The secret keys of an installation: they lie outside the store, and protect its tokens and secrets."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from msgspec import Struct

from timewright.errors import InvalidInput, UnsafeStore
from timewright.ports import Transaction

SECRET_KEY_BYTES = 32
MAX_SECRET_KEYS = 16
KEYRING_META = "keyring"
_UNKNOWN_DIGEST = "0" * 128


class DerivedKeys(Struct, frozen=True, kw_only=True):
    """The keys derived from one secret key; the id identifies it and is public."""

    pepper: bytes
    encryption_key: bytes
    id: str

    def __repr__(self) -> str:
        return f"DerivedKeys({self.id})"

    def digest(self, token: str) -> str:
        """The stored form of a token: a keyed hash that reveals nothing without the secret key."""
        return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self.pepper).hexdigest()


class Keyring(Struct, frozen=True):
    """The current secret key, then the earlier ones, whose tokens and secrets still work."""

    keys: tuple[DerivedKeys, ...]

    @property
    def current(self) -> DerivedKeys:
        """The key for new tokens and secrets."""
        return self.keys[0]

    def find(self, key_id: str) -> DerivedKeys | None:
        """The key with this id, or None."""
        return next((key for key in self.keys if key.id == key_id), None)

    def verify_token(self, token: str, *, key_id: str, digest: str) -> bool:
        """Whether a token has this digest; takes the same time if the key is unknown."""
        key = self.find(key_id)
        found = (key or self.current).digest(token)
        return hmac.compare_digest(found.encode(), (digest if key is not None else _UNKNOWN_DIGEST).encode())


def derive_keyring(secret_keys: Sequence[bytes]) -> Keyring:
    """Derive a keyring from secret keys, the current one first, with one key per purpose."""
    return Keyring(tuple(_derive(secret_key) for secret_key in secret_keys))


def generate_secret_key() -> str:
    """A new secret key of 256 random bits, as text for a file."""
    return secrets.token_urlsafe(SECRET_KEY_BYTES)


def parse_secret_keys(text: str, *, source: str) -> list[bytes]:
    """Parse secret keys, one per line; errors never contain the text."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    secret_keys = [_parse_line(line) for line in lines]
    if not secret_keys or len(secret_keys) > MAX_SECRET_KEYS or not all(secret_keys):
        raise InvalidInput(
            f"{source} contains no valid secret key",
            field="secret_key",
            value=source,
            rule=f"256 random bits, as 64 hex digits or in base64; one per line, at most {MAX_SECRET_KEYS}",
            fix='python3 -c "import secrets; print(secrets.token_urlsafe(32))"',
        )
    return secret_keys


def record_keyring(tx: Transaction, keyring: Keyring) -> None:
    """Record the current secret key of a store; raises if the store uses an unknown one."""
    check_keyring(tx, keyring)
    if tx.get_meta(KEYRING_META) != keyring.current.id:
        tx.put_meta(KEYRING_META, keyring.current.id)


def check_keyring(tx: Transaction, keyring: Keyring) -> None:
    """Raise if the store uses a secret key that is not in the keyring: every token would look invalid."""
    known = tx.get_meta(KEYRING_META)
    if known is not None and keyring.find(known) is None:
        raise UnsafeStore(
            f"the tokens and secrets of this store use another secret key ({known})",
            field="secret_key",
            value=keyring.current.id,
            rule="every instance of one store uses the same secret key",
            fix="set TIMEWRIGHT_SECRET_KEY_FILE to the key file of the instance that created them",
        )


def _derive(secret_key: bytes) -> DerivedKeys:
    def draw(purpose: bytes) -> bytes:
        return hashlib.blake2b(purpose, key=secret_key, digest_size=32, person=b"timewright").digest()

    return DerivedKeys(pepper=draw(b"tokens"), encryption_key=draw(b"secrets"), id=draw(b"mark").hex()[:16])


def _parse_line(line: str) -> bytes:
    """The 32 bytes of a line, or b'' if it is invalid."""
    try:
        if len(line) == 2 * SECRET_KEY_BYTES:
            return bytes.fromhex(line)
        found = base64.urlsafe_b64decode(line.rstrip("=") + "=" * (-len(line.rstrip("=")) % 4))
    except (ValueError, binascii.Error):
        return b""
    return found if len(found) == SECRET_KEY_BYTES else b""
