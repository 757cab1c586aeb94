"""The service as an application of Ray Serve, whose replicas are processes of a Ray cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastapi import FastAPI

from forerun.data.errors import InputError, MissingExtra
from forerun.service.http.access import check_address
from forerun.service.http.app import loaded_app, readiness
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from ray.serve import Application


def application(arguments: Mapping[str, str]) -> "Application":
    """The application, which `import_path` of a configuration of Ray Serve names.

    Settings are the variables FORERUN_* of the replicas. How many replicas there are, and the
    deployment's other options, are set in the configuration of Ray Serve.

    Args:
        arguments: `args` of the configuration; there are none.

    Raises:
        BadSetting: a variable has an invalid value.
        InputError: there are arguments.
        MissingExtra: Ray Serve is not installed.
        NoKeys: FORERUN_HOST is not a loopback address, and neither keys nor FORERUN_AUTH are set.
    """
    if arguments:
        names = ", ".join(arguments)
        raise InputError(
            f"args of Ray Serve are not read ({names}); set FORERUN_* in runtime_env.env_vars."
        )
    try:
        from ray import serve
    except ImportError:
        raise MissingExtra("The application of Ray Serve", "ray") from None
    settings = Settings.load()
    check_address(settings)
    deployed = serve.deployment(
        name="forerun",
        max_ongoing_requests=settings.requests_in_flight,
        graceful_shutdown_timeout_s=settings.graceful_seconds,
    )
    application: Application = deployed(serve.ingress(replica_app)(Replica)).bind()
    return application


def replica_app() -> FastAPI:
    """The HTTP application of a replica, with its predictors loaded."""
    return loaded_app(Settings.load())


class Replica:
    """What Ray Serve asks of a replica besides requests.

    Attributes:
        app: the HTTP application; Ray Serve adds it.
    """

    app: FastAPI

    async def check_health(self) -> None:
        """Ask `/readyz` on the event loop that answers requests.

        Ray Serve replaces a replica that fails this three times, or does not answer in time.

        Raises:
            RuntimeError: the replica is not ready.
        """
        status = await readiness(self.app)
        if status != 200:
            raise RuntimeError(f"/readyz answers {status}")
