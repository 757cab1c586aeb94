"""Who may ask what: the host and the site that a request names, its key and scope, and how often.

Answers get headers that keep browsers safe, and writes are logged. The command line imports this
before the counters of the metrics are set up, so nothing here may import these.
"""

import base64
import binascii
import math
import re
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.data.errors import InputError
from forerun.service.log import log
from forerun.service.problems import problem_of, response, response_of
from forerun.service.requests.record import current
from forerun.service.settings import Settings
from forerun.service.stores.keys import Key, KeyStore, keys_of
from forerun.service.stores.keys import Scope as KeyScope

if TYPE_CHECKING:
    from forerun.service.http.telemetry import Telemetry

ALWAYS_ANSWERED = frozenset({
    *("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"),
})  # fmt: skip
"""Paths for those who watch the service; no limit counts or refuses them."""
OF_SCOPE: Final = "forerun.tenant"
"""Where the scope of a request holds the tenant of its key; None for a key of no tenant."""
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

    status = 421


class SeveralHosts(InputError):
    """The request names several hosts."""

    status = 400


class CrossSite(InputError):
    """A page of another site sent the request."""

    status = 403


class Encoded(InputError):
    """The body is compressed, or encoded in another way."""

    slug, status = "encoded-body", 415


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
        headers = Headers(scope=scope)
        if len(set(headers.getlist("host"))) > 1:
            raise SeveralHosts("The request has several Host headers; send one.")
        for given in headers.getlist("content-encoding"):
            if given.lower() != "identity":
                raise Encoded(
                    f"The body has the content encoding {given!r:.80}; send it unencoded."
                )
        host, origin = (headers.get(name, "").lower() for name in ("host", "origin"))
        name = _name(host)
        # No browser leaves the header out; programs that speak HTTP/1.0 do.
        known = not host or name in self._allowed or name == _reached(scope)
        if ANY not in self._allowed and not known:
            raise UnknownHost(
                f"This service does not answer for the host {host!r:.80}. Use its address, or "
                "start it with FORERUN_ALLOWED_HOSTS set to the names that it is reached by."
            )
        if scope["method"] not in READING and (
            headers.get("sec-fetch-site") == "cross-site"
            or (origin and _network_location(origin) != host)
        ):
            raise CrossSite(
                f"A page of another site ({origin or 'its name is unknown':.80}) may not send this "
                "request. Send it from a page of this service, or without a browser."
            )


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
    if public and settings.auth == "auto" and not keys_of(settings).is_used():
        raise NoKeys(
            f"{settings.host} is not a loopback address, and there are no keys: create one with "
            "`forerun keys create NAME --scope read`, set FORERUN_AUTH=required to create it "
            "later, or set FORERUN_AUTH=off where something else keeps others away."
        )


LONGEST_PATH = 200


async def audited(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, key: Key | None
) -> None:
    """Let an application answer a request, and log it when that has ended.

    The line has the time, identifier, name and tenant of the key, method, path, status, bytes of
    the body that were received, and the identifier of the request, which the answer repeats in its
    header `X-Request-ID`. A fault, which is answered elsewhere, is logged with status 500.

    Args:
        app: the application.
        scope: the request.
        receive: gives the parts of the request.
        send: takes the parts of the answer.
        key: the key of the request; None where the service asks for none.
    """
    status, received_bytes, record = 500, 0, current()

    async def received() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        return message

    async def noted(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        await app(scope, received, noted)
    finally:
        log().info(
            "write",
            key=None if key is None else key.id,
            key_name=None if key is None else key.name,
            tenant=None if key is None else key.tenant,
            method=scope["method"],
            path=scope["path"][:LONGEST_PATH],
            status=status,
            bytes=received_bytes,
            request_id=None if record is None else record.request_id,
        )


class TooManyRequests(InputError):
    """The key has sent more requests per second than it may."""

    status = 429

    def __init__(self, per_s: float, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(
            f"A key may send {per_s:g} requests a second; ask again in {retry_after_s} s, or let "
            "the operator raise FORERUN_REQUESTS_PER_S_PER_KEY."
        )


class Quotas:
    """Counts the requests of each key in this process.

    Args:
        per_s: requests per second of a key; None for no limit. As many, at least one, may come at
            once after a pause.
        clock: seconds that only grow.
    """

    def __init__(self, per_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> TooManyRequests | None:
        """Count a request of a key.

        Returns:
            The problem where the key has no request left, which is then not counted.
        """
        if self._per_s is None:
            return None
        most, now = max(1.0, self._per_s), self._clock()
        left, then = self._left.get(key, (most, now))
        left = min(most, left + (now - then) * self._per_s)
        if left < 1:
            self._left[key] = left, now
            return TooManyRequests(self._per_s, math.ceil((1 - left) / self._per_s))
        self._left[key] = left - 1, now
        return None


OPEN = frozenset({"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"})
"""Paths that need no key."""
QUESTIONS = frozenset({
    "/v1/circuit",
    "/v1/colocation",
    "/v1/colocation/now",
    "/v1/colocation/rank",
    "/v1/diffusion/estimate",
    "/v1/kubernetes/filter",
    "/v1/kubernetes/prioritize",
    "/v1/kubernetes/validate",
    "/v1/llm/estimate",
    "/v1/llm/estimate:batch",
    "/v1/llm/plan",
    "/v1/llm/replay",
    "/v1/pipeline",
    "/v1/power/sweep",
    "/v1/predict",
    "/v1/predict/model",
    "/v1/predict:batch",
    "/v1/rank",
    "/v1/training/estimate",
    "/v1/training/plan",
})  # fmt: skip
"""Paths to which POST asks and stores nothing; any other POST is a write."""
QUESTIONS_OF_PAGES = frozenset({"/circuits", "/plan"})
"""Such paths of pages, which the OpenAPI document leaves out."""
INFERENCES = "/v2/models/"
"""Beginning of further such paths, which name a model and its version."""
OF_ROUTERS = re.compile(r"/v1/llm-d/[^/]+/predict(/bulk(/strict)?)?")
"""Further such paths, which name the deployment of a router."""
OF_ALL_TENANTS = frozenset({"/metrics"})
"""Paths that tell of all tenants, so that no tenant may read them."""
CHALLENGE = 'Bearer realm="forerun", Basic realm="forerun", charset="UTF-8"'


class Unauthenticated(InputError):
    """The request has no valid key."""

    status = 401


class Forbidden(InputError):
    """The scope of the key does not include what the request does, or its tenant may not."""

    status = 403


class Authorized:
    """ASGI middleware that lets in requests whose key may do what they do, and logs writes.

    Args:
        app: the application.
        settings: settings; `auth`, `host`, `home` and `requests_per_s_per_key` matter.
        telemetry: counts what is refused because of a quota.
    """

    def __init__(self, app: ASGIApp, settings: Settings, telemetry: "Telemetry") -> None:
        self._app, self._settings = app, settings
        self._refused = telemetry.refused.labels("requests_per_s_per_key")
        self._keys = keys_of(settings)
        self._quotas = Quotas(settings.requests_per_s_per_key)
        self._is_public = not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request, or answer with a problem."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        needed = needed_scope(scope)
        asks = asks_for_keys(self._settings, self._keys)
        key = self._keys.holder(presented_key(scope) or "") if asks else None
        record = current()
        if key is not None:
            scope[OF_SCOPE] = key.tenant
            if record is not None:
                record.key_name, record.tenant = key.name, key.tenant
        refusal = self._refusal(key, needed, scope["path"]) if asks else None
        app = self._app if refusal is None else _answer(refusal, scope["path"])
        # Whoever has no key could fill the log; the metrics count these requests by status.
        if needed != "read" and (key is not None or (self._is_public and not asks)):
            await audited(app, scope, receive, send, key)
        else:
            await app(scope, receive, send)

    def _refusal(self, key: Key | None, needed: KeyScope, path: str) -> InputError | None:
        """Why the request is refused; None where it is let in."""
        if key is None:
            return Unauthenticated(
                "This service needs a key: send the header `Authorization: Bearer KEY`, or the key "
                "as the password in a browser. Its operator makes one with `forerun keys create "
                "NAME`."
            )
        busy = None if path in ALWAYS_ANSWERED else self._quotas.take(key.id)
        if busy is not None:
            self._refused.inc()
            return busy
        if key.tenant is not None and path in OF_ALL_TENANTS:
            return Forbidden(
                f"The key {key.id} is of the tenant {key.tenant}, and this path shows all "
                "tenants. Use a key that was made without `--tenant`."
            )
        if key.may(needed):
            return None
        return Forbidden(
            f"The key {key.id} may {key.scope}, and this request needs the scope {needed}. Use "
            f"another key; the operator makes one with `forerun keys create NAME --scope {needed}`."
        )


def needed_scope(scope: Scope) -> KeyScope:
    """What a request needs its key to include."""
    method = scope["method"]
    path = scope["path"]
    is_question = path in QUESTIONS | QUESTIONS_OF_PAGES or path.startswith(INFERENCES)
    is_question = is_question or OF_ROUTERS.fullmatch(path) is not None
    asks = method in READING or (method == "POST" and is_question)
    return "read" if asks else "write"


def presented_key(scope: Scope) -> str | None:
    """The text of a key in the header Authorization; of Basic, which browsers send, the password.

    None where the header is missing, repeated or of another form.
    """
    given = Headers(scope=scope).getlist("authorization")
    if len(given) != 1:
        return None
    scheme, _, credentials = given[0].partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(credentials.strip(), validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return None
    return decoded.partition(":")[2]


def _answer(refusal: InputError, path: str) -> Response:
    answer = response_of(refusal, path)
    if refusal.status == Unauthenticated.status:
        answer.headers["WWW-Authenticate"] = CHALLENGE
    return answer
