"""The secret keys of an installation: outside the store, and the pepper of tokens is drawn from them."""

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

MASTER_BYTES = 32
MOST_RINGS = 16
_META = "keyring"
_NOBODY = "0" * 128


class Ring(Struct, frozen=True, kw_only=True):
    """What is drawn from one secret key; its mark tells it from others, and is no secret."""

    pepper: bytes
    envelope: bytes
    mark: str

    def __repr__(self) -> str:
        return f"Ring({self.mark})"

    def digest(self, token: str) -> str:
        """What is kept of a token: a keyed hash that tells nothing to whoever has only the store."""
        return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self.pepper).hexdigest()


class Keyring(Struct, frozen=True):
    """The secret key in use, and before it those that were: what they locked can still be opened."""

    rings: tuple[Ring, ...]

    @property
    def current(self) -> Ring:
        """The one that new keys and secrets are made under."""
        return self.rings[0]

    def find(self, mark: str) -> Ring | None:
        """The one with that mark, if it is here."""
        return next((ring for ring in self.rings if ring.mark == mark), None)

    def opens(self, token: str, *, mark: str, digest: str) -> bool:
        """Whether a token has that digest; it takes as long for one that nobody ever made."""
        ring = self.find(mark)
        found = (ring or self.current).digest(token)
        return hmac.compare_digest(found.encode(), (digest if ring is not None else _NOBODY).encode())


def drawn_from(masters: Sequence[bytes]) -> Keyring:
    """The keyring that follows from secret keys, the one in use first; each purpose has its own part."""
    return Keyring(tuple(_ring(master) for master in masters))


def new_master() -> str:
    """256 random bits, as they are written into a file."""
    return secrets.token_urlsafe(MASTER_BYTES)


def read_masters(text: str, *, place: str) -> list[bytes]:
    """Secret keys from a text, one in a line; nothing of the text is ever repeated."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    masters = [_master(line) for line in lines]
    if not masters or len(masters) > MOST_RINGS or not all(masters):
        raise InvalidInput(
            f"{place} holds no usable secret key",
            field="secret_key",
            value=place,
            rule=f"256 random bits, as 64 hex digits or 43 letters; one a line, at most {MOST_RINGS}",
            fix='python3 -c "import secrets; print(secrets.token_urlsafe(32))"',
        )
    return masters


def claim(tx: Transaction, keyring: Keyring) -> None:
    """Remember under which key a store's keys and secrets are made; a stranger's keyring is refused."""
    check(tx, keyring)
    if tx.get_meta(_META) != keyring.current.mark:
        tx.put_meta(_META, keyring.current.mark)


def check(tx: Transaction, keyring: Keyring) -> None:
    """Refuse to judge what was made under a key that is not here: all of it would look wrong."""
    known = tx.get_meta(_META)
    if known is not None and keyring.find(known) is None:
        raise UnsafeStore(
            f"the keys and secrets of this store were made under another secret key ({known})",
            field="secret_key",
            value=keyring.current.mark,
            rule="every instance of one store uses the same secret key",
            fix="TIMEWRIGHT_SECRET_KEY_FILE with the file of the instance that made them",
        )


def _ring(master: bytes) -> Ring:
    def draw(purpose: bytes) -> bytes:
        return hashlib.blake2b(purpose, key=master, digest_size=32, person=b"timewright").digest()

    return Ring(pepper=draw(b"tokens"), envelope=draw(b"secrets"), mark=draw(b"mark").hex()[:16])


def _master(line: str) -> bytes:
    """The 32 bytes a line spells, or nothing."""
    try:
        if len(line) == 2 * MASTER_BYTES:
            return bytes.fromhex(line)
        found = base64.urlsafe_b64decode(line.rstrip("=") + "=" * (-len(line.rstrip("=")) % 4))
    except (ValueError, binascii.Error):
        return b""
    return found if len(found) == MASTER_BYTES else b""
