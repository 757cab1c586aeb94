"""The predictor in use, as answers give it."""

from forerun.models.answers.served_models import InUse
from forerun.service.schemas.answers import PredictorOut


def predictor_out(in_use: InUse, adapted_rows: int) -> PredictorOut:
    """The predictor in use, and the number of measurements that it was adapted to."""
    loaded = in_use.loaded
    return PredictorOut(
        name=loaded.predictor.name, version=loaded.version, adapted_rows=adapted_rows
    )
