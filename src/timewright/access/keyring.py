"""The secret keys of an installation, which protect its tokens and secrets, and the files they are in."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from timewright.errors import InvalidInput, UnsafeStore
from timewright.ports import Transaction

MAX_BYTES = 65_536


def read_private(path: Path, *, allow_read: bool = False) -> str | None:
    """The text of a file, or None if it does not exist; raises if others may read or write it.

    With `allow_read`, others may read it.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _file_error(path, f"cannot be read: {error.strerror}", fix="check its permissions") from None
    with file:
        _check_private(path, os.fstat(file.fileno()), others_read=allow_read)
        raw = file.read(MAX_BYTES + 1)
    try:
        if len(raw) <= MAX_BYTES:
            return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        pass
    raise _file_error(
        path, "is not a short text", fix=f"use another file, or remove {path} to create a new one"
    )


def write_private(path: Path, text: str, *, replace: bool = False) -> bool:
    """Write a file that only its owner may read; return False if it already exists."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123 - a handle, not a path
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
            return True
        # A link is atomic, and never replaces a file that another process just wrote.
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise _file_error(path, f"cannot be written: {error.strerror}", fix="use another folder") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return True


def _check_private(path: Path, status: os.stat_result, *, others_read: bool) -> None:
    if os.name != "posix":
        return
    if status.st_uid not in (os.getuid(), 0):
        raise _file_error(path, "belongs to another user", fix=f"chown {path}")
    if others_read and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _file_error(path, "may be read or written by others", fix=f"chmod 600 {path}")


def _file_error(path: Path, what: str, *, fix: str) -> UnsafeStore:
    return UnsafeStore(
        f"{path} {what}",
        field="secret_key",
        value=str(path),
        rule="only the owner may read the file",
        fix=fix,
    )


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
