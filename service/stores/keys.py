"""Keys of clients: what each may do, and a hash of its secret.

A secret is 256 random bits, which nobody can guess or list. So one round of SHA-256 with a salt of
each key is enough; slow hashes protect what people choose, and would be paid by every request.
"""

import hashlib
import re
import secrets
from datetime import UTC, datetime
from hmac import compare_digest
from typing import Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.errors import InputError
from forerun.service.settings import TENANT_FORM, TENANT_RULE, Settings
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import SUFFIX, DamagedRecord, Place, log_damage, place_of

Scope = Literal["read", "write", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""Scopes in their order: each may do what those before it may."""
FORM: Final = re.compile(r"fr_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
SECRET_BYTES: Final = 32
LONGEST_NAME: Final = 64


class UnknownKey(InputError):
    """No key has that identifier."""

    status = 404


class BadKeyName(InputError):
    """The name of a key is empty, too long or not printable, or its scope does not exist."""


class Key(BaseModel):
    """A key without its secret.

    Attributes:
        salt: 16 random bytes, in hexadecimal.
        digest: SHA-256 of the salt and the secret, in hexadecimal.
        created: time in UTC, ISO 8601.
        tenant: tenant whose measurements, devices and graphs its holder uses; None for those of
            the service.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern="^[0-9a-f]{12}$")
    name: str
    scope: Scope
    salt: str = Field(repr=False)
    digest: str = Field(repr=False)
    created: str
    tenant: str | None = Field(default=None, pattern=TENANT_FORM)

    def may(self, scope: Scope) -> bool:
        """Whether the key's scope includes another one."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


def keys_of(settings: Settings) -> "KeyStore":
    """The keys of a service."""
    return KeyStore(place_of(settings) / "keys")


class KeyStore:
    """Keys of one place; a service finds at its next request what another process changed.

    In a database on another machine that takes up to two seconds. Each thread needs a store of its
    own.

    Args:
        place: where the keys are.
    """

    def __init__(self, place: Place) -> None:
        self._files = Records(
            place,
            encode=lambda key: key.model_dump_json(exclude_none=True),
            decode=_decoded,
            report=log_damage,
        )
        self._seen = -1
        self._verified: dict[bytes, Key] = {}

    def is_used(self) -> bool:
        """Whether there ever was a key: revoking the last one does not open the service again.

        A place that cannot be examined counts as used.
        """
        return self._files.is_used()

    def create(self, name: str, scope: str, tenant: str | None = None) -> tuple[Key, str]:
        """Store a new key.

        Args:
            name: what the key is for, 1 to 64 printable characters.
            scope: one of `SCOPES`.
            tenant: whose measurements, devices and graphs its holder uses; None for those of the
                service.

        Returns:
            The key, and the text that its holder presents, which is not stored.

        Raises:
            BadKeyName: the name, the scope or the tenant is invalid.
            DiskFull, CannotStore: it could not be written; nothing was stored.
        """
        if not (0 < len(name) <= LONGEST_NAME and name.isprintable()):
            raise BadKeyName(f"A key's name has 1 to {LONGEST_NAME} printable characters.")
        if scope not in SCOPES:
            raise BadKeyName(f"--scope {scope!r:.80} is not one of {', '.join(SCOPES)}.")
        if tenant is not None and not re.fullmatch(TENANT_FORM, tenant):
            raise BadKeyName(f"--tenant {tenant!r:.80}: {TENANT_RULE}.")
        secret, salt = secrets.token_urlsafe(SECRET_BYTES), secrets.token_bytes(16)
        key = Key(
            id=secrets.token_hex(6),
            name=name,
            scope=scope,
            salt=salt.hex(),
            digest=_digest(salt, secret),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            tenant=tenant,
        )
        with self._files.writing():
            self._files.put(f"{key.id}{SUFFIX}", key)
        return key, f"fr_{key.id}_{secret}"

    def keys(self) -> list[Key]:
        """All keys, the oldest first; damaged files are logged and left out."""
        return sorted(self._files.values().values(), key=lambda key: (key.created, key.id))

    def revoke(self, identifier: str) -> None:
        """Delete a key.

        Raises:
            UnknownKey: no key has that identifier.
            CannotStore: it could not be deleted.
        """
        name = f"{identifier}{SUFFIX}"
        if name not in self._files.names():
            raise UnknownKey(f"No key {identifier!r:.80}; `forerun keys list` shows all.")
        with self._files.writing():
            self._files.delete(name)

    def holder(self, presented: str) -> Key | None:
        """The key whose text was presented; None where there is none, or it was revoked.

        Keys that were verified are kept by the SHA-256 of their text until any file changes.
        """
        stamp = self._files.stamp()
        if stamp != self._seen:
            self._verified.clear()
            self._seen = stamp
        text = hashlib.sha256(presented.encode()).digest()
        found = self._verified.get(text) or self._verify(presented)
        if found is not None:
            self._verified[text] = found
        return found

    def _verify(self, presented: str) -> Key | None:
        parts = FORM.fullmatch(presented)
        if parts is None:
            return None
        try:
            key = self._files.get(f"{parts[1]}{SUFFIX}")
        except (FileNotFoundError, DamagedRecord):
            return None
        digest = _digest(bytes.fromhex(key.salt), parts[2])
        return key if compare_digest(digest, key.digest) else None


def _digest(salt: bytes, secret: str) -> str:
    return hashlib.sha256(salt + secret.encode()).hexdigest()


def _decoded(name: str, content: bytes) -> Key:
    key = Key.model_validate_json(content)
    bytes.fromhex(key.salt)
    if f"{key.id}{SUFFIX}" != name:
        raise ValueError("the identifier is not that of the file's name")
    return key
