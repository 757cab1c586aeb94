"""Few-shot adaptation to an unseen device: a few models measured in two execution modes."""

from collections.abc import Iterator

import numpy as np

from forerun.data.measurements import Measurements
from forerun.training.protocols.protocol import Task

PROTOCOL = "unseen_device_few_models"
MODES = ("eager", "compiled")
MODELS, DRAWS = 10, 5


def few_models_tasks(
    rows: Measurements, models: int = MODELS, draws: int = DRAWS
) -> Iterator[Task]:
    """Tasks that adapt on some models in both execution modes and evaluate all other models.

    The support set of each draw has one row of each drawn model in each mode. Tasks of all draws
    share their names, so that their rows are pooled. `PROTOCOL/MODE` evaluates all models that
    were not drawn, `PROTOCOL_and_families/MODE` only families of which no model was drawn.

    Args:
        rows: rows of devices that the predictor was not fitted on, with the groups `device`,
            `model`, `family` and `part`.
        models: number of models drawn; a device needs more than that, measured in both modes.
        draws: number of draws; the seed of each is its number.
    """
    for device in np.unique(rows.groups["device"]):
        own = rows.take((rows.groups["device"] == device) & np.isin(rows.groups["part"], MODES))
        model, part, family = (own.groups[key] for key in ("model", "part", "family"))
        both = sorted(set(model[part == MODES[0]]) & set(model[part == MODES[1]]))
        if len(both) < models + 1:
            continue
        for draw in range(draws):
            generator = np.random.default_rng(draw)
            chosen = generator.permutation(both)[:models]
            support = [
                int(generator.choice(np.flatnonzero((model == name) & (part == mode))))
                for name in chosen
                for mode in MODES
            ]
            pool = own.take(np.array(support, dtype=np.intp))
            new_model = ~np.isin(model, chosen)
            new_family = ~np.isin(family, pool.groups["family"])
            for protocol, held_out in (
                (PROTOCOL, new_model),
                (f"{PROTOCOL}_and_families", new_family),
            ):
                for mode in MODES:
                    mask = held_out & (part == mode)
                    if mask.any():
                        yield Task(
                            f"{protocol}/{mode}",
                            "latency_ms",
                            own.take(mask),
                            device=str(device),
                            shots=len(pool),
                            pool=pool,
                            offset_by="part",
                        )
