"""The settings of the service; each can be set by an environment variable FORERUN_NAME."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forerun.data.bundle import home
from forerun.data.errors import InputError


class BadSetting(InputError):
    """An environment variable holds an invalid value."""

    slug = "bad-setting"


class Settings(BaseModel):
    """Settings, from the environment or the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8080, ge=0, le=65535, description="port to listen on")
    allowed_hosts: str = Field(
        default="",
        description="names, separated by commas, that a request may have in its header Host "
        "besides loopback names, `host` and the address that it reached; `*` allows all, which is "
        "the default where `host` is not a loopback address",
    )
    home: Path = Field(
        default_factory=home, description="folder for graphs, devices, bundles and registries"
    )
    max_upload_mib: int = Field(
        default=512, ge=1, le=2047, description="largest ONNX file accepted, MiB"
    )
    max_request_mib: int = Field(
        default=16, ge=1, le=2047, description="largest JSON body accepted, MiB"
    )
    graphs_kept: int = Field(
        default=10_000,
        ge=1,
        description="largest number of stored graphs; further uploads are refused until some are "
        "deleted",
    )
    answers_kept: int = Field(
        default=20_000,
        ge=0,
        description="answers cached in memory; the least recently used leave first",
    )
    graceful_seconds: int = Field(
        default=10,
        ge=1,
        le=3600,
        description="time that open requests have to end after SIGTERM, seconds",
    )
    registry_uri: str | None = Field(
        default=None,
        description="MLflow registry whose champion answers; without it the bundled one does",
    )
    registry_poll_seconds: float = Field(
        default=300,
        ge=1,
        description="time between two questions to the registry, seconds; a new champion takes "
        "over without a restart",
    )
    registry_timeout_seconds: float = Field(
        default=60,
        gt=0,
        description="time that the registry has to answer and to send its champion, seconds; "
        "meanwhile the champion that was fetched last answers",
    )
    predictor_folder: Path | None = Field(
        default=None, description="folder of a saved predictor that replaces the bundled one"
    )

    @classmethod
    def load(cls) -> "Settings":
        """Settings from the environment.

        Raises:
            BadSetting: a variable has an invalid value; the message names both.
        """
        variables = {name: os.environ.get(_variable(name)) for name in cls.model_fields}
        try:
            return cls.model_validate(
                {n: text for n, text in variables.items() if text is not None}
            )
        except ValidationError as error:
            lines = [
                f"{_variable(str(e['loc'][0]))} is {e['input']!r}: {e['msg']}"
                for e in error.errors()
            ]
            raise BadSetting("; ".join(lines)) from None


def _variable(name: str) -> str:
    """Name of the environment variable of a setting."""
    return f"FORERUN_{name.upper()}"
