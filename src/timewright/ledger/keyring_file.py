"""Where the secret key of an installation is found: given, in a file, or made once beside the store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from timewright.errors import InvalidInput
from timewright.ledger.keyring import Keyring, drawn_from, new_master, read_masters
from timewright.ledger.private_file import read_private, write_private

GIVEN = "TIMEWRIGHT_SECRET_KEY"
MEMORY = ":memory:"


def load_keyring(*, given: str = "", file: str = "", beside: Path | None = None) -> Keyring:
    """The keyring: of the key that is given, else of the file, else of the one beside the store.

    Without any place it is one that nobody else has, and that ends with the process.
    """
    if given:
        return drawn_from(read_masters(given, place=GIVEN))
    if file:
        return drawn_from(read_masters(_must_read(Path(file)), place=file))
    if beside is None:
        return drawn_from(read_masters(new_master(), place="a new key"))
    return drawn_from(read_masters(_made_once(beside), place=str(beside)))


def private_path(path: str | None, place: str, *, kind: str, environment: Mapping[str, str]) -> Path | None:
    """Where a private file lies: beside a store in a file, for a database in the user's own folder.

    A store that ends with the process has none.
    """
    if path == MEMORY:
        return None
    if path is not None:
        return Path(f"{path}.{kind}")
    state = Path(environment.get("XDG_STATE_HOME", ""))
    folder = state if state.is_absolute() else Path.home() / ".local" / "state"
    # Which database on which server, without who asks: several users of it share what is private.
    split = urlsplit(place)
    address = f"{split.netloc.rpartition('@')[2]}{split.path}"
    return folder / "timewright" / f"store-{hashlib.sha256(address.encode()).hexdigest()[:16]}.{kind}"


def _made_once(path: Path) -> str:
    text = read_private(path)
    if text is None:
        write_private(path, new_master())
        # Another process may have been faster; then its key is the one.
        text = read_private(path)
    return text or ""


def _must_read(path: Path) -> str:
    text = read_private(path)
    if text is None:
        raise InvalidInput(
            f"there is no secret key at {path}",
            field="secret_key_file",
            value=str(path),
            rule="a file that only its owner may read, with 256 random bits",
            fix=f'(umask 077; python3 -c "import secrets; print(secrets.token_urlsafe(32))" > {path})',
        )
    return text
