"""Uses of the Python API whose types mypy checks; nothing here is run."""

from pathlib import Path
from typing import assert_type

import forerun


def uses(model: Path) -> None:
    """Every function with the type that it returns."""
    answer = forerun.predict(model, device="l4", batch_size=32, precision="amp")
    assert_type(answer, forerun.Answer)
    assert_type(answer.latency_ms, forerun.Estimate | None)
    answers = forerun.predict(model, device=["l4", "t4"], phase="training", optimizer="sgd")
    assert_type(answers, forerun.Answers)
    assert_type(answers["l4"], forerun.Answer)
    assert_type(forerun.fits(model, device="l4"), forerun.Fit)
    assert_type(forerun.rank(model, objective="energy_j"), forerun.Ranking)
    assert_type(forerun.sweep(model, device="l4", slow_down=0.05), forerun.Sweep)
    assert_type(forerun.compare(model, device="l4", batch_sizes=[1]), forerun.Comparison)
    assert_type(forerun.llm(8e9, device="l4"), forerun.ServingAnswer)
    assert_type(forerun.devices(kind="gpu"), forerun.Devices)
    assert_type(forerun.verify(model).adapt(), forerun.Adaptation)
    with forerun.measure("step", model=model, batch_size=8) as step:
        assert_type(step, forerun.Measurement)
    forerun.predict(model, device="l4", batchsize=3)  # type: ignore[call-overload]
    forerun.predict(model, device="l4", precision="fp17")  # type: ignore[call-overload]
