"""Every setting of the service; each is an environment variable FORERUN_NAME."""

from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from forerun.data.bundle import home
from forerun.data.errors import InputError


class BadSetting(InputError):
    """An environment variable holds what the setting cannot be."""

    slug = "bad-setting"


class Settings(BaseSettings):
    """Settings, from the environment or the command line."""

    model_config = SettingsConfigDict(env_prefix="FORERUN_", frozen=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8080, ge=0, le=65535, description="port to listen on")
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
        default=10_000, ge=1, description="most uploaded graphs kept; further ones are refused"
    )
    answers_kept: int = Field(
        default=20_000, ge=0, description="answers kept in memory; the longest unused leave first"
    )
    registry_uri: str | None = Field(
        default=None, description="MLflow registry whose champion answers; bundled when not set"
    )
    predictor_folder: Path | None = Field(
        default=None, description="a saved predictor to answer with, in place of the bundled one"
    )

    @classmethod
    def load(cls) -> "Settings":
        """Settings from the environment.

        Raises:
            BadSetting: a variable's value does not fit; the message names variable and value.
        """
        try:
            return cls()
        except ValidationError as error:
            lines = [
                f"FORERUN_{str(e['loc'][0]).upper()} is {e['input']!r}: {e['msg']}"
                for e in error.errors()
            ]
            raise BadSetting("; ".join(lines)) from None
