"""What every request must satisfy: its host, no writes for other sites, safe headers, keys.

The command line imports this before the counters of the metrics are set up, so nothing here may
import these.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.data.errors import InputError
from forerun.service.problems import problem_of, response
from forerun.service.settings import Settings
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.places import place_of

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANY = "*"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = b"content-security-policy"
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every answer."""
NOTHING = (POLICY, b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
"""The policy of answers that are no pages, which have their own."""


class UnknownHost(InputError):
    """The request names a host that this service does not answer for."""

    slug, status = "unknown-host", 421

    def __init__(self, host: str) -> None:
        super().__init__(
            f"This service does not answer for the host {host!r:.80}. Use its address, or start it "
            "with FORERUN_ALLOWED_HOSTS set to the names that it is reached by."
        )


class SeveralHosts(InputError):
    """The request names several hosts."""

    slug, status = "several-hosts", 400

    def __init__(self) -> None:
        super().__init__("The request has several headers Host; send one.")


class CrossSite(InputError):
    """A page of another site sent the request."""

    slug, status = "cross-site", 403

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"A page of another site ({origin:.80}) may not send this request. Send it from a page "
            "of this service, or without a browser."
        )


class Encoded(InputError):
    """The body is compressed, or encoded in another way."""

    slug, status = "encoded-body", 415

    def __init__(self, encoding: str) -> None:
        super().__init__(f"The body has the content encoding {encoding!r:.80}; send it without.")


class Guarded:
    """ASGI middleware that checks where a request comes from, and adds headers to its answer.

    The host is checked so that no site whose name is made to lead to this address can read or
    change anything through the browser of somebody who visits it.

    Args:
        app: the application.
        settings: settings; `host` and `allowed_hosts` matter.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._allowed = app, allowed_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request with a problem document, or handle it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *HEADERS]
                if not any(name == POLICY for name, _ in headers):
                    headers.append(NOTHING)
                message = {**message, "headers": headers}
            await send(message)

        try:
            self._check(scope)
        except InputError as error:
            await response(problem_of(error, scope["path"]))(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _check(self, scope: Scope) -> None:
        """Refuse a host that is not allowed, and what a page of another site wants to change.

        Raises:
            SeveralHosts, UnknownHost, CrossSite, Encoded: the request is refused.
        """
        host = origin = site = ""
        hosts = {value for name, value in scope["headers"] if name == b"host"}
        if len(hosts) > 1:
            raise SeveralHosts
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1").lower()
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
            elif name == b"sec-fetch-site":
                site = value.decode("latin-1")
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise Encoded(value.decode("latin-1"))
        name = _name(host)
        # No browser leaves the header out; programs that speak HTTP/1.0 do.
        known = not host or name in self._allowed or name == _reached(scope)
        if ANY not in self._allowed and not known:
            raise UnknownHost(host)
        if scope["method"] not in READING and (
            site == "cross-site" or (origin and _network_location(origin) != host)
        ):
            raise CrossSite(origin or "its name is unknown")


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Names that a request may have in its header Host, without a port; `*` stands for all."""
    given = frozenset(each.strip().lower() for each in settings.allowed_hosts.split(",")) - {""}
    own = settings.host.lower()
    if not given and not is_loopback(own):
        return frozenset({ANY})
    return given | LOOPBACK | {_bracketed(own)}


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address to listen on."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(host: str) -> str:
    """The name in a header Host, without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _reached(scope: Scope) -> str | None:
    """The address of this machine that the request reached, which names it without any doubt."""
    server = scope.get("server")
    return None if server is None else _bracketed(server[0])


def _bracketed(address: str) -> str:
    """The address as it stands in a header Host."""
    return f"[{address}]" if ":" in address else address


def _network_location(origin: str) -> str:
    """Name and port of an origin; `null` stays, since it is nobody's."""
    try:
        return urlsplit(origin).netloc or origin
    except ValueError:
        return origin


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
