"""A registered version as MLflow loads it: `mlflow.pyfunc.load_model("models:/forerun/1")`."""

import json
from pathlib import Path
from typing import Any

from forerun.data.lazy import pd
from forerun.service.answers.question_list import answers_in, written
from forerun.service.python.session import session_of
from forerun.service.settings import Settings


class RegisteredPredictors:
    """The predictors of a folder, with the devices, graphs and measurements of this user.

    Args:
        settings: names the folder.
    """

    def __init__(self, settings: Settings) -> None:
        self._session = session_of(settings)

    def predict(
        self, model_input: "pd.DataFrame", params: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The answer to each row as `forerun batch` gives it, or a problem in its place.

        Args:
            model_input: fields of requests of POST /v1/predict in columns: `workload`, `device`
                and others. What is no text or number there is an object, or its JSON.
            params: none are known.
        """
        rows = enumerate(model_input.to_dict("records"))
        given = {number: _request(row) for number, row in rows}
        here = self._session
        found = answers_in("rows", given, here.in_use, here.devices.get, here.graphs.get)
        return [json.loads(written(own)) for own in found]


def _request(row: dict[Any, Any]) -> dict[str, Any]:
    """The fields that a row gives; a data frame has NaN where a row gives none."""
    return {str(name): _content(own) for name, own in row.items() if own is not None and own == own}


def _content(given: object) -> object:
    """What the JSON of an object or a list says; anything else as it is."""
    if isinstance(given, str) and given.lstrip().startswith(("{", "[")):
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            return given  # the schema refuses it
    return given


def _load_pyfunc(path: str) -> RegisteredPredictors:
    """What MLflow calls with the sealed folder of a version.

    Raises:
        BadArtifact: a file is missing or changed.
    """
    return RegisteredPredictors(Settings.load().model_copy(update={"predictor_folder": Path(path)}))
