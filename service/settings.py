"""The settings of the service; each can be set by an environment variable FORERUN_NAME."""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from forerun.data.bundle import home
from forerun.data.errors import InputError

TENANT_FORM: Final = "^[a-z0-9][a-z0-9-]{0,63}$"
"""Names of tenants; each is the name of a folder too."""
TENANT_RULE: Final = (
    "a tenant has 1 to 64 lower-case letters, digits and hyphens, a letter or digit first"
)

OTHER_VARIABLES: Final = (
    *("FORERUN_MIRROR", "FORERUN_REFERENCE", "FORERUN_TRACKING_URI"),
    *("FORERUN_CHECK_SHAPES", "FORERUN_DEBUG"),
)
"""Variables that are no settings of the service."""
NEARLY: Final = 0.85
"""Likeness from which on a name is taken for another one that is misspelt."""


class BadSetting(InputError):
    """An environment variable holds an invalid value."""


class Settings(BaseModel):
    """Settings, from the environment or the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    """address to listen on"""
    port: int = Field(default=8080, ge=0, le=65535)
    """port to listen on"""
    unix_socket: Path | None = None
    """path of a Unix socket to listen on besides, which its owner and group may use"""
    grpc_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """port on which the Open Inference Protocol is answered over gRPC too, on the address of HTTP;
    0 chooses a free port"""
    allowed_hosts: str = ""
    """names, separated by commas, that a request may have in its header Host besides loopback
    names, `host` and the address that it reached; `*` allows all, which is the default where `host`
    is not a loopback address"""
    auth: Literal["auto", "required", "off"] = "auto"
    """`required`: every request but `/healthz` and `/readyz` needs a key, which `forerun keys`
    creates; `off`: none does; `auto`: they do from the first key on, and always on an address that
    is not a loopback address, where the service does not start without keys"""
    requests_per_s_per_key: Annotated[float, Field(gt=0)] | None = None
    """requests per second that a key may send to one worker process, each of which counts its own;
    further ones are refused with 429. Without it there is no limit"""
    home: Path = Field(default_factory=home)
    """folder for graphs, devices, bundles and registries"""
    database_url: SecretStr | None = None
    """address of a PostgreSQL database that replicas share,
    postgresql://USER:PASSWORD@HOST:PORT/DATABASE, which keeps measurements, devices, graphs and
    keys in place of a file in `home`"""
    tenant: Annotated[str, Field(pattern=TENANT_FORM)] | None = None
    """tenant whose measurements, devices, graphs and keys this process uses, and no other one's: 1
    to 64 lower-case letters, digits and hyphens, a letter or digit first. Without it the process
    uses those that belong to no tenant"""
    max_upload_mib: int = Field(default=512, ge=1, le=2047)
    """largest ONNX file accepted, MiB"""
    max_request_mib: int = Field(default=16, ge=1, le=2047)
    """largest JSON body accepted, MiB"""
    graphs_kept: Annotated[int, Field(ge=1)] = 10_000
    """largest number of stored graphs; further uploads are refused until some are deleted"""
    answers_kept: Annotated[int, Field(ge=0)] = 20_000
    """answers cached in memory; the least recently used leave first"""
    graceful_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """time that open requests have to end after SIGTERM, seconds"""
    max_operators: int = Field(default=30_000, ge=1, le=100_000)
    """operators that a graph may have"""
    answer_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """seconds that an answer may take, with the time that it waits for its turn; then it is refused
    with 503"""
    questions_waiting: Annotated[int, Field(ge=0)] = 256
    """questions that may wait for their turn; further ones are refused with 503"""
    uploads_waiting: Annotated[int, Field(ge=0)] = 16
    """uploads and other bodies over 64 KiB that may wait for their turn; further ones are refused
    with 503"""
    requests_in_flight: Annotated[int, Field(ge=1)] = 512
    """requests that are answered at one time; further ones are refused with 503. `/healthz`,
    `/readyz` and `/metrics` always answer"""
    mib_in_flight: Annotated[int, Field(ge=1)] = 1_024
    """bodies of all requests that are received or answered at one time, MiB; further ones are
    refused with 503"""
    keep_alive_seconds: Annotated[int, Field(ge=1, le=86_400)] = 75
    """seconds after which a connection without a request is closed; should exceed the time for
    which a load balancer or a client keeps one, lest both use and close it"""
    registry_uri: str | None = None
    """MLflow registry whose champion answers; without it the bundled one does"""
    registry_poll_seconds: Annotated[float, Field(ge=1)] = 300
    """time between two questions to the registry, seconds; a new champion takes over without a
    restart"""
    registry_timeout_seconds: Annotated[float, Field(gt=0)] = 60
    """time that the registry has to answer and to send its champion, seconds; meanwhile the
    champion that was fetched last answers"""
    canary_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """share of the questions of `/v1/predict` that the registry's candidate answers in place of its
    champion; equal questions get the same version"""
    shadow_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """share of these questions that the candidate answers as well, off the path of the request, to
    be compared with the champion in `/metrics` and `/v1/models`"""
    access_log: bool = True
    """whether each request is a line of the log: its route, status, duration, bytes and
    identifiers, without its path, query and headers"""
    workload_classes: Path | None = None
    """YAML file with the workload classes and devices of `GET /v1/kubernetes/table`"""
    kubernetes_api: str | None = None
    """address of the API of a Kubernetes cluster, such as https://kubernetes.default.svc, whose
    nodes and pods the scheduler extender follows; without it the extender knows what a request
    holds"""
    predictor_folder: Path | None = None
    """folder of a saved predictor that replaces the bundled one"""

    @classmethod
    def load(cls) -> "Settings":
        """Settings from the environment.

        Raises:
            BadSetting: a variable has an invalid value; the message names both.
            InputError: a file is in place of the folder FORERUN_HOME.
        """
        home()
        variables = {name: os.environ.get(_variable(name)) for name in cls.model_fields}
        try:
            return cls.model_validate(
                {n: text for n, text in variables.items() if text is not None}
            )
        except ValidationError as error:
            lines = [
                f"{_variable(str(each['loc'][0]))} is {each['input']!r}: {_why(each)}"
                for each in error.errors()
            ]
            raise BadSetting("; ".join(lines)) from None


def misspelt(variables: Iterable[str]) -> dict[str, str]:
    """Name of an environment variable that is nearly one of ours -> ours.

    Args:
        variables: names of variables, of any program.
    """
    known = {*map(_variable, Settings.model_fields), *OTHER_VARIABLES}
    found = {}
    for name in variables:
        close = get_close_matches(name, known, n=1, cutoff=NEARLY)
        if name.startswith("FORERUN_") and name not in known and close:
            found[name] = close[0]
    return found


def _why(error: Mapping[str, Any]) -> str:
    """What is wrong with a value; the one pattern is that of tenants."""
    if error["type"] == "string_pattern_mismatch":
        return TENANT_RULE
    return str(error["msg"])


def _variable(name: str) -> str:
    """Name of the environment variable of a setting."""
    return f"FORERUN_{name.upper()}"
