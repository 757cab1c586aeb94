"""Baseline for few-shot adaptation: one median multiplicative offset per execution mode."""

import numpy as np

from forerun.data.columns import Column
from forerun.data.measurements import Measurements
from forerun.models.answers.whole import WholeAnswers
from forerun.models.predictor import Predictor


def median_offset(
    predictor: Predictor | WholeAnswers,
    support: Measurements,
    held_out: Measurements,
    metric: str,
    group: str,
) -> Column:
    """Predictions of the unadapted predictor times the median of measured / predicted.

    Args:
        predictor: a predictor that is not adapted to the device.
        support: the support set, from which the medians are taken.
        held_out: n held-out rows to predict.
        metric: the metric that is predicted.
        group: grouping key (such as the execution mode); each of its values has its own offset, and
            values without a support row take the median of all support rows.

    Returns:
        Predictions in the metric's unit, shape (n,).
    """
    ratio = np.log(support.values[metric] / predictor.predict(support.queries).values[metric])
    modes, asked = support.groups[group], held_out.groups[group]
    offset = np.full(len(held_out), np.median(ratio))
    for mode in np.unique(modes):
        offset[asked == mode] = np.median(ratio[modes == mode])
    return np.asarray(predictor.predict(held_out.queries).values[metric] * np.exp(offset))
