"""Finds the secret key of an installation: given, in a file, or created once beside the store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from timewright.access.keyring import Keyring, derive_keyring, generate_secret_key, parse_secret_keys
from timewright.access.private_file import read_private, write_private
from timewright.errors import InvalidInput

ENV_SECRET_KEY = "TIMEWRIGHT_SECRET_KEY"  # noqa: S105 - the name of a variable
MEMORY = ":memory:"


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
