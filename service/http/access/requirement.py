"""Whether the service asks for keys, and whether it may start without any.

The command line imports this before the counters of the metrics are set up, so nothing here may
import these.
"""

from forerun.data.errors import InputError
from forerun.service.http.guard import is_loopback
from forerun.service.settings import Settings
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.places import place_of


class NoKeys(InputError):
    """The service would answer anybody on a public address."""

    slug = "no-keys"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} is not a loopback address, and there are no keys: create one with `forerun "
            "keys create NAME --scope read`, set FORERUN_AUTH=required to create it later, or set "
            "FORERUN_AUTH=off where something else keeps others away."
        )


def key_store(settings: Settings) -> KeyStore:
    """The keys of a service."""
    return KeyStore(place_of(settings) / "keys")


def asks_for_keys(settings: Settings, keys: KeyStore) -> bool:
    """Whether requests need a key now; on a public address also when the folder is gone."""
    if settings.auth == "auto":
        return keys.is_used() or not is_loopback(settings.host)
    return settings.auth == "required"


def check_address(settings: Settings) -> None:
    """Refuse to answer anybody on a public address unless the settings say so.

    Raises:
        NoKeys: `host` is not a loopback address, there are no keys, and `auth` is `auto`.
    """
    public = not is_loopback(settings.host)
    if public and settings.auth == "auto" and not key_store(settings).is_used():
        raise NoKeys(settings.host)
