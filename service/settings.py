"""Every setting of the service; each is an environment variable FORERUN_NAME."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from forerun.data.bundle import home


class Settings(BaseSettings):
    """Settings, from the environment or the command line."""

    model_config = SettingsConfigDict(env_prefix="FORERUN_", frozen=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8080, ge=0, le=65535, description="port to listen on")
    home: Path = Field(
        default_factory=home, description="folder for graphs, devices, bundles and registries"
    )
    max_upload_mib: int = Field(
        default=512, ge=1, le=2047, description="largest model file accepted, MiB"
    )
    graphs_kept: int = Field(
        default=10_000, ge=1, description="uploaded graphs kept; the longest unused leave first"
    )
    answers_kept: int = Field(default=50_000, ge=0, description="answers kept in memory")
    registry_uri: str | None = Field(
        default=None, description="MLflow registry whose champion answers; bundled when not set"
    )
    predictor_folder: Path | None = Field(
        default=None, description="a saved predictor to answer with, in place of the bundled one"
    )
