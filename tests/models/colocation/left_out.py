"""Errors on a held-out group of the synthetic host."""

from dataclasses import replace

import numpy as np

from forerun.models.colocation.booster import ProgramMean
from tests.contracts.tiny_colocation import colocations


def left_out(predictor, key, value):
    """Mean absolute error of P on rows of a held-out group, and that of program means."""
    whole = colocations()
    rows = replace(whole, values={"p_cpu": whole.values["p_cpu"]})
    out = rows.groups[key] == value
    train, held_out = rows.take(~out), rows.take(out)
    fitted, mean = predictor.fit(train), ProgramMean().fit(train)
    return [
        float(np.abs(p.predict(held_out.queries).values["p_cpu"] - held_out.values["p_cpu"]).mean())
        for p in (fitted, mean)
    ]
