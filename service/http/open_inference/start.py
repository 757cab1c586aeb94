"""Whether the process answers over gRPC too, without importing gRPC where it does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from fastapi import FastAPI

from forerun.data.errors import MissingExtra
from forerun.service.http.state import State
from forerun.service.settings import Settings


def check_installed(settings: Settings) -> None:
    """Refuse to start where a port for gRPC is set and gRPC is not there.

    Raises:
        MissingExtra: it is not installed.
    """
    if settings.grpc_port is not None and find_spec("grpc") is None:
        raise MissingExtra("A port for gRPC", "grpc")


@asynccontextmanager
async def over_grpc(app: FastAPI, state: State) -> AsyncIterator[None]:
    """Answer over gRPC to the block's end, where the settings have a port for it.

    It begins in each process after it was forked, because threads of gRPC would not survive.
    """
    if state.settings.grpc_port is None:
        yield
        return
    from forerun.service.http.open_inference.grpc_service import served

    async with served(app, state):
        yield
