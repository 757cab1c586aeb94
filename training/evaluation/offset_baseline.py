"""The baseline that every adaptation must beat: one median offset per execution mode."""

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.models.predictor import Predictor

Column = NDArray[np.float64]


def median_offset(
    predictor: Predictor, support: Measurements, judged: Measurements, metric: str, group: str
) -> Column:
    """Answers of the unadapted predictor times the median of measured / predicted, (n,).

    Args:
        predictor: not adapted to the device.
        support: rows that the medians come from.
        judged: n rows to answer.
        metric: what is predicted.
        group: key of `groups` whose values (execution modes) have an offset each; those without a
            row take the median of all.
    """
    ratio = np.log(support.values[metric] / predictor.predict(support.queries).values[metric])
    modes, asked = support.groups[group], judged.groups[group]
    offset = np.full(len(judged), np.median(ratio))
    for mode in np.unique(modes):
        offset[asked == mode] = np.median(ratio[modes == mode])
    return np.asarray(predictor.predict(judged.queries).values[metric] * np.exp(offset))
