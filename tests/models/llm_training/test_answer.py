"""Whole answers about training: laws of costs, utilisation by others' figures, grades."""

from dataclasses import replace
from itertools import pairwise

import pytest

from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.grid_carbon import grid_of
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.training import LlmTraining, TrainingLayout
from forerun.data.list_prices import Price
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.memory import stage_memory
from forerun.features.llm_training.step import MOST_SHARE
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.served_models import InUse
from forerun.models.llm_training.answer import (
    COSTS,
    Budget,
    Costs,
    TrainingAnswer,
    of_step,
    planned,
    training_answer,
)
from forerun.models.llm_training.predictors import LlmTrainingMemory, TrainingPredictors
from forerun.models.llm_training.step_time import LlmTrainingStep
from forerun.models.prediction import Estimate
from tests.devices import A100, CATALOG, H100
from tests.golden.bundle import predictors
from tests.models.llm_training.test_step_time import fitted_step

LLAMA_13B = named_language_model("meta-llama/Llama-2-13b-hf")
RUN = LlmTraining(LLAMA_13B, 4096, 256, 32, TrainingLayout(tensor=4))
COST = Costs(1e11, Price(2.5, "as given"), grid_of("france", None))


@pytest.fixture(scope="module")
def known() -> TrainingPredictors:
    """Predictors of times that know made-up runs, and of memory that know nothing."""
    return TrainingPredictors(fitted_step(), LlmTrainingMemory())


def values(answer: TrainingAnswer) -> dict[str, float]:
    """Metric -> best estimate."""
    return {name: own.value for name, own in answer.estimates.items()}


def test_costs_are_proportional_to_tokens_and_steps_do_not_depend_on_them(
    known: TrainingPredictors,
) -> None:
    """Thrice the tokens take thrice the days, money, energy and carbon."""
    one = values(training_answer(RUN, H100, known, COST))
    more = values(training_answer(RUN, H100, known, replace(COST, tokens=3e11)))
    for name, value in one.items():
        assert more[name] == pytest.approx(value * (3.0 if name in COSTS else 1.0)), name


def test_the_price_is_devices_times_hours_times_their_price(known: TrainingPredictors) -> None:
    """And days are tokens over the rate; carbon is energy times the intensity of the grid."""
    found = values(training_answer(RUN, H100, known, COST))
    hours = 24.0 * found["run_days"]
    assert found["run_usd"] == pytest.approx(RUN.devices * hours * 2.5)
    assert found["run_days"] == pytest.approx(1e11 / found["tokens_per_s"] / 86_400.0)
    assert found["run_kwh"] == pytest.approx(RUN.devices * hours * found["power_w"] / 1e3)
    assert found["run_co2_kg"] == pytest.approx(found["run_kwh"] * 56.0 / 1e3)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "devices", "batch", "seconds", "published"),
    [
        (48, 6144, 64, 8, 4, 1.10, 0.415),
        (96, 12288, 96, 64, 64, 13.75, 0.514),
        (105, 20480, 128, 280, 280, 37.83, 0.560),
    ],
)
def test_model_utilisation_is_that_which_megatron_published(
    layers: int, hidden: int, heads: int, devices: int, batch: int, seconds: float, published: float
) -> None:
    """Of GPT 22B, 175B and 530B on A100s (Korthikanti et al. 2022, arXiv 2205.05198, table 5).

    They count scores of all pairs of tokens, s / 6h of the products; half of these are used.
    """
    width, pairs, head = hidden // heads, 2048 / (6 * hidden), 51_200 / (12 * hidden * layers)
    layer = Layer(Attention(heads, heads, width, width), (Dense(4 * hidden, gated=False),))
    model = LanguageModel("gpt", hidden, 51_200, (layer,) * layers, tied_embeddings=True)
    layout = TrainingLayout(tensor=8, recompute="selective")
    run = LlmTraining(model, 2048, batch, devices, layout, attention="eager")
    found = of_step(run, A100, Estimate(seconds), Costs())
    used = published * (1 + pairs / 2 + head) / (1 + pairs + head)
    assert found["mfu"].value == pytest.approx(used, abs=0.003)
    assert found["mfu"].value < found["hfu"].value < 1.05 * found["mfu"].value


def test_no_utilisation_is_above_one_and_recomputing_adds_a_third(
    known: TrainingPredictors,
) -> None:
    """A forward pass is a third of forward and backward passes."""
    again = replace(RUN, layout=replace(RUN.layout, recompute="full"))
    found = training_answer(again, H100, known, COST).estimates
    assert found["hfu"].value == pytest.approx(found["mfu"].value * 4.0 / 3.0)
    for name in ("mfu", "hfu"):
        own = found[name]
        assert own.low is not None and own.high is not None
        assert 0.0 < own.low <= own.value <= own.high <= 1.0


LEVELS = (50.0, 80.0, 89.9, 90.0, 95.0, 99.0)


def test_a_higher_level_contains_a_lower_one_and_the_usual_one_is_calibrated() -> None:
    """Of time, rates and memory, by the predictor of the release; best estimates stay."""
    known = TrainingPredictors.of(InUse(predictors()))
    run = replace(RUN, framework="torchtitan", layout=TrainingLayout(zero_stage=3))
    usual = training_answer(run, H100, known, COST)
    found = [training_answer(run, H100, known, COST, level=level) for level in LEVELS]
    assert found[3].estimates == usual.estimates and found[3].fits == usual.fits
    for name in ("step_s", "tokens_per_s", "mfu", "run_days", "peak_memory_mib"):
        own = [answer.estimates[name] for answer in found]
        assert [one.coverage for one in own] == [level / 100.0 for level in LEVELS]
        assert {one.value for one in own} == {usual.estimates[name].value}
        assert all(one.low >= two.low and one.high <= two.high for one, two in pairwise(own)), name
        assert own[0].high < own[2].high < own[-1].high or name in ("mfu", "tokens_per_s")
    assert {own.trust["step_s"] for own in found} == {usual.trust["step_s"]}
    assert any("above 95 %" in str(limit) for limit in found[-1].limits)


def test_no_level_goes_below_what_a_step_takes_in_any_case() -> None:
    """Time of its arithmetic, and memory of what is held between steps: at 99 % both are reached,
    the one with the shortest step, the other with the shortest sequences.
    """
    known = TrainingPredictors.of(InUse(predictors()))
    llama = named_language_model("llama-3.1-70b")
    fast = LlmTraining(llama, 4096, 1024, 64, TrainingLayout(4, 1, 4, 5))
    short = LlmTraining(LLAMA_13B, 128, 8, 8, TrainingLayout(zero_stage=3), framework="torchtitan")
    found = training_answer(fast, H100, known, COST, level=99.0).estimates
    assert found["mfu"].high == pytest.approx(MOST_SHARE)
    found = training_answer(short, H100, known, COST, level=99.0).estimates
    held = stage_memory(short, Layouts.of(short)).model_states[0] / 2**20
    assert found["peak_memory_mib"].low == pytest.approx(held)


def test_parts_add_up_to_the_step_and_to_the_memory(known: TrainingPredictors) -> None:
    """What is shown of a whole is all of it."""
    answer = training_answer(RUN, H100, known, COST)
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.estimates["step_s"].value)
    memory = answer.estimates["peak_memory_mib"].value
    assert sum(answer.parts_mib.values()) == pytest.approx(memory)
    found = [answer.estimates[f"{name}_memory_mib"].value for name in ("allocated", "reserved")]
    assert found[0] <= found[1] <= memory


def test_what_cannot_fit_has_memory_and_a_reason_but_no_time(known: TrainingPredictors) -> None:
    """Impossible figures are worse than none."""
    large = LlmTraining(named_language_model("meta-llama/Meta-Llama-3-70B"), 4096, 16, 1)
    answer = training_answer(large, CATALOG.get("rtx-4090"), known, COST)
    assert answer.fits is False
    assert "step_s" not in answer.estimates and "run_usd" not in answer.estimates
    assert "does not fit in memory" in answer.missing["step_s"]
    assert answer.estimates["peak_memory_mib"].value > 24 * 1024
    assert [limit.severity for limit in answer.limits].count("refusal") == 1


def test_without_a_design_power_nothing_is_said_of_energy(known: TrainingPredictors) -> None:
    """Not known is null, with the reason."""
    bare = H100.model_copy(update={"tdp_w": None})
    answer = training_answer(RUN, bare, known, COST)
    assert not {"power_w", "run_kwh", "run_co2_kg"} & answer.estimates.keys()
    assert answer.missing["power_w"] == "the spec sheet gives no TDP"
    whole = training_answer(RUN, H100, known, COST).estimates["power_w"]
    assert (whole.low, whole.high, whole.coverage) == (350.0, 700.0, None)


@pytest.mark.parametrize(
    ("changes", "device", "grade", "why"),
    [
        ({}, H100, "A", "measured"),
        ({}, CATALOG.get("h200-sxm-141gb"), "B", "no training on this device"),
        ({"model": named_language_model("TinyLlama/TinyLlama-1.1B-Chat-v1.0")}, H100, "C", ""),
        ({"precision": "fp8"}, H100, "C", "precision: no training with fp8 was measured"),
        ({"framework": "maxtext"}, H100, "C", "framework: no training with maxtext was measured"),
    ],
)
def test_grades_say_what_was_measured(
    known: TrainingPredictors, changes: dict[str, object], device: Device, grade: str, why: str
) -> None:
    """A for a measured device, framework, format and a model near measured ones; power is never."""
    run = replace(RUN, **changes)  # type: ignore[arg-type]
    answer = training_answer(run, device, known, COST)
    time = answer.trust["step_s"]
    assert (time.grade, why in time.reason) == (grade, True), time
    assert answer.trust["run_usd"] == answer.trust["mfu"] == time
    assert {answer.trust[name].grade for name in ("power_w", "run_kwh", "run_co2_kg")} == {"C"}


def test_a_model_unlike_measured_ones_is_calibrated_at_best(known: TrainingPredictors) -> None:
    """Experts on a width that was measured are another kind."""
    mixture = named_language_model("mistralai/Mixtral-8x7B-v0.1")
    layout = TrainingLayout(tensor=2, pipeline=4, expert=4)
    answer = training_answer(replace(RUN, model=mixture, layout=layout), H100, known, COST)
    assert answer.trust["step_s"].grade != "A"
    assert any("similar width" in limit.message for limit in answer.limits)


def test_what_was_fitted_to_nothing_is_extrapolated() -> None:
    """The closed form answers, without an interval."""
    bare = TrainingPredictors(LlmTrainingStep(), LlmTrainingMemory())
    answer = training_answer(RUN, H100, bare, COST)
    assert answer.estimates["step_s"].low is None
    assert answer.trust["step_s"].grade == "C"


def test_a_longer_time_never_takes_more_devices(known: TrainingPredictors) -> None:
    """A budget in days takes the cheapest devices that are in time; one of money the fastest."""
    limits = (2.0, 5.0, 20.0, 80.0)
    best = [planned(RUN, H100, known, COST, budget=Budget(days=own)).plan.best[0] for own in limits]
    counts = [one.run.devices for one in best]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]
    around = planned(RUN, H100, known, COST).front
    assert {one.run.devices for one in around} <= {8, 16, 32, 64, 128}
    for days, one in zip(limits, best, strict=True):
        assert 1e11 / one.tokens_per_s / 86_400.0 <= days * (1.0 + 1e-9)


def test_a_budget_that_nothing_keeps_is_one_line(known: TrainingPredictors) -> None:
    """With the fastest and the cheapest that there is."""
    with pytest.raises(UnanswerableQuery, match=r"the fastest takes .* the cheapest takes .* USD"):
        planned(RUN, H100, known, COST, budget=Budget(usd=1.0))
