"""Answers of earlier commands about the same model file."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from forerun.service.settings import Settings
from forerun.service.stores.model_file_cache import cached, stamp_of
from forerun.service.stores.places import place_of

Answer = TypeVar("Answer")


def cached_answer(
    kind: type[Answer], source: Path, asked: object, compute: Callable[[], Answer]
) -> Answer:
    """The answer that an earlier command computed for an equal question, or a new one.

    Only answers of the bundled predictors are kept, and none with a database. They are computed
    anew after a change of the model file, of forerun, of a registered device or of the user's
    measurements.

    Args:
        kind: type of the answer.
        source: model file.
        asked: the command and all its options, ready for JSON.
        compute: computes the answer.
    """
    settings = Settings.load()
    if settings.registry_uri or settings.predictor_folder or settings.database_url:
        return compute()
    place, adapter = place_of(settings), TypeAdapter(kind)
    assert isinstance(place, Path)
    return cached(
        settings.home,
        source,
        [asked, settings.tenant, stamp_of(place / "devices", place / "measurements")],
        compute,
        dump=lambda answer: adapter.dump_json(answer).decode(),
        load=adapter.validate_json,
    )
