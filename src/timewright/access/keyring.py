"""The secret keys of an installation, which protect its tokens and secrets, and where they are found."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from timewright.access.private_file import read_private, write_private
from timewright.errors import InvalidInput, UnsafeStore
from timewright.ports import Transaction

SECRET_KEY_BYTES = 32
MAX_SECRET_KEYS = 16
KEYRING_META = "keyring"
_UNKNOWN_DIGEST = "0" * 128

ENV_SECRET_KEY = "TIMEWRIGHT_SECRET_KEY"  # noqa: S105 - the name of a variable
MEMORY = ":memory:"


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


def load_keyring(*, given: str = "", file: str = "", beside: Path | None = None) -> Keyring:
    """Load the keyring: from the given key, else from `file`, else from the file beside the store.

    Without any of them, a new key is used that ends with the process.
    """
    if given:
        return derive_keyring(parse_secret_keys(given, source=ENV_SECRET_KEY))
    if file:
        return derive_keyring(parse_secret_keys(_read_existing(Path(file)), source=file))
    if beside is None:
        return derive_keyring(parse_secret_keys(generate_secret_key(), source="a new key"))
    return derive_keyring(parse_secret_keys(_read_or_create(beside), source=str(beside)))


def private_file_path(
    path: str | None, store_url: str, *, kind: str, environment: Mapping[str, str]
) -> Path | None:
    """The path of a private file: beside a SQLite file; for a database, in the user's state folder.

    A store in memory has none.
    """
    if path == MEMORY:
        return None
    if path is not None:
        return Path(f"{path}.{kind}")
    state = Path(environment.get("XDG_STATE_HOME", ""))
    folder = state if state.is_absolute() else Path.home() / ".local" / "state"
    # Server and database without the user name: all users of a database share the file.
    split = urlsplit(store_url)
    address = f"{split.netloc.rpartition('@')[2]}{split.path}"
    return folder / "timewright" / f"store-{hashlib.sha256(address.encode()).hexdigest()[:16]}.{kind}"


def _read_or_create(path: Path) -> str:
    text = read_private(path)
    if text is None:
        write_private(path, generate_secret_key())
        # If another process wrote the file first, its key is used.
        text = read_private(path)
    return text or ""


def _read_existing(path: Path) -> str:
    text = read_private(path)
    if text is None:
        raise InvalidInput(
            f"there is no secret key file {path}",
            field="secret_key_file",
            value=str(path),
            rule="a file with 256 random bits that only its owner may read",
            fix=f'(umask 077; python3 -c "import secrets; print(secrets.token_urlsafe(32))" > {path})',
        )
    return text
