"""Plans of training: what is searched, what fits, and which layout wins."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.device_slices import slice_of
from forerun.data.language_models.training import (
    Cluster,
    LlmTraining,
    TrainingLayout,
    faults_of_layout,
)
from forerun.data.query import Query
from forerun.features.llm_training.layouts import Layouts
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.llm_training.plans import layouts_of, plan
from forerun.models.llm_training.predictors import Seconds, TrainingPredictors
from forerun.models.llm_training.step_time import LlmTrainingStep
from tests.devices import H100
from tests.models.llm_training.test_step_time import fitted_step

LLAMA = named_language_model("meta-llama/Meta-Llama-3-70B")
DEEPSEEK = named_language_model("deepseek-ai/DeepSeek-V3")


class WeightsAlone:
    """Memory of weights, gradients and states: 18 bytes a weight over the model's devices."""

    def upper_mib(
        self, run: LlmTraining, device: Device, layouts: Layouts
    ) -> tuple[Column, Column]:
        """Best estimates and upper ends, MiB."""
        each = 18.0 * run.model.parameters() / (layouts.tensor * layouts.pipeline) / 2.0**20
        return each, 1.1 * each


class NoMemory:
    """Nothing takes any memory."""

    def upper_mib(
        self, run: LlmTraining, device: Device, layouts: Layouts
    ) -> tuple[Column, Column]:
        """Zeros."""
        return np.zeros(len(layouts)), np.zeros(len(layouts))


def known(step: object, memory: object) -> TrainingPredictors:
    """What answers times and memory."""
    return TrainingPredictors(step, memory)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "measured"),
    [
        (LlmTraining(LLAMA, 8192, 256, 64), TrainingLayout(4, 1, 8, 5)),
        (LlmTraining(LLAMA, 8192, 256, 64), TrainingLayout(2, 1, 4, 5)),
        (LlmTraining(DEEPSEEK, 4096, 4096, 256), TrainingLayout(1, 1, 4, 1, 64)),
        (
            LlmTraining(LLAMA, 4096, 128, 64, framework="fsdp"),
            TrainingLayout(zero_stage=3, recompute="full", micro_batch=2),
        ),
    ],
)
def test_layouts_that_people_published_are_searched(
    run: LlmTraining, measured: TrainingLayout
) -> None:
    """Layouts of Llama 3 70B and DeepSeek-V3 in Megatron-Bridge, and the kind of llm-foundry."""
    assert measured in layouts_of(run, H100)


def test_pipelines_of_deepspeed_do_not_interleave() -> None:
    """Its engine has one group of layers a stage, and recomputes whole layers or none."""
    run = LlmTraining(LLAMA, 2048, 256, 64, framework="megatron-deepspeed", attention="eager")
    found = layouts_of(run, H100)
    assert {one.virtual_stages for one in found} == {1}
    assert {one.recompute for one in found} == {"none", "full"}
    usual = layouts_of(replace(run, framework="megatron-legacy"), H100)
    assert {one.virtual_stages for one in usual} > {1}
    assert {one.recompute for one in usual} == {"none", "selective", "full"}


@pytest.mark.parametrize("devices", [1, 8, 24, 64, 200])
@pytest.mark.parametrize("model", [LLAMA, DEEPSEEK], ids=["dense", "experts"])
def test_every_layout_of_a_search_can_run_and_none_is_twice(model: object, devices: int) -> None:
    """Degrees divide devices, batch, heads and experts."""
    run = LlmTraining(model, 4096, 600, devices)  # type: ignore[arg-type]
    found = layouts_of(run, H100)
    assert len(set(found)) == len(found)
    assert not [fault for layout in found for fault in faults_of_layout(run, layout)]


def test_devices_that_no_link_joins_share_data_alone() -> None:
    """But of a cluster that is said to have links."""
    run = LlmTraining(DEEPSEEK, 4096, 600, 8)
    alone = H100.model_copy(update={"node_devices": 1})
    found = layouts_of(run, alone)
    assert found and {(own.tensor, own.context, own.pipeline, own.expert)
                      for own in found} == {(1, 1, 1, 1)}  # fmt: skip
    linked = replace(run, cluster=Cluster(node_devices=8))
    assert max(own.expert for own in layouts_of(linked, alone)) == 8
    piece = slice_of(H100, "3g.40gb")
    assert piece is not None and not layouts_of(linked, piece)
    assert layouts_of(replace(run, devices=1), piece)


class Uncertain:
    """Times of the closed form, known within a factor of 20 for pipelines."""

    process = object()

    def __init__(self) -> None:
        self.form = LlmTrainingStep()

    def of_layouts(self, run: LlmTraining, device: Device, layouts: Layouts) -> Seconds:
        """Times of n layouts."""
        value = self.form.of_layouts(run, device, layouts).seconds
        ratio = np.where(layouts.pipeline > 1, 20.0, 2.0) ** 0.5
        return Seconds(value, value / ratio, value * ratio)

    def drawn_logs(self, queries: Sequence[Query], draws: int, seed: int) -> Matrix:
        """The same times in every draw."""
        return np.tile(np.arange(float(len(queries))), (draws, 1))


def test_layouts_known_within_more_than_a_factor_of_ten_are_counted_and_not_ranked() -> None:
    """As their times are withheld in answers."""
    run = LlmTraining(LLAMA, 8192, 256, 64)
    found = plan(run, H100, known(Uncertain(), NoMemory()), kept=1000)
    alone = [one for one in layouts_of(run, H100) if one.pipeline == 1]
    assert {one.run.layout.pipeline for one in (*found.best, *found.front)} == {1}
    assert (found.fitting, found.withheld) == (len(alone), found.searched - len(alone))


def test_the_best_layout_fits_and_no_other_that_fits_is_faster() -> None:
    """Without limits of memory another one wins, which is named among those that do not fit."""
    run, step = LlmTraining(LLAMA, 4096, 256, 64), fitted_step()
    found = plan(run, H100, known(step, WeightsAlone()))
    limit = H100.usable_mib
    assert limit is not None
    assert all(one.upper_mib <= limit for one in found.best)
    assert all(one.seconds <= two.seconds for one, two in pairwise(found.best))
    free = plan(run, H100, known(step, NoMemory()))
    assert free.best[0].seconds <= found.best[0].seconds
    assert free.fitting == free.searched == found.searched
    assert all(one.upper_mib > limit for one in found.misses)
    assert all(one.seconds < found.best[0].seconds for one in found.misses)


def test_nothing_is_called_fitting_where_nothing_fits() -> None:
    """70 B on one device: no layout is best, and the winner of nothing has no measurement."""
    found = plan(LlmTraining(LLAMA, 4096, 64, 1), H100, known(LlmTrainingStep(), WeightsAlone()))
    assert found.best == ()
    assert found.fitting == 0
    assert found.misses
    assert found.close is None


def test_the_front_trades_time_for_device_hours() -> None:
    """Along the front each layout is slower and cheaper than the one before."""
    run, step = LlmTraining(LLAMA, 4096, 256, 64), fitted_step()
    found = plan(
        run, H100, known(step, WeightsAlone()), devices=(32, 64, 128, 256), objective="price"
    )
    assert len(found.front) > 1
    for one, two in pairwise(found.front):
        assert one.tokens_per_s > two.tokens_per_s
        assert one.device_s_per_token > two.device_s_per_token
    assert found.best[0].device_s_per_token == pytest.approx(found.front[-1].device_s_per_token)


def test_wins_are_shares_and_a_close_call_names_the_second() -> None:
    """Shares of draws add up to one over the drawn layouts; equal ones are a close call."""
    run, step = LlmTraining(LLAMA, 4096, 256, 64), fitted_step()
    found = plan(run, H100, known(step, WeightsAlone()), kept=20)
    assert sum(one.wins for one in found.best) == pytest.approx(1.0)
    if found.best[0].wins < 0.9:
        assert found.close is not None
        others = [one.wins for one in found.best[1:]]
        assert found.best[found.close].wins == max(others)


def test_a_plan_does_not_read_the_layout_of_its_run() -> None:
    """The same plan for a run with another layout."""
    run, step = LlmTraining(LLAMA, 4096, 256, 64), LlmTrainingStep()
    other = replace(run, layout=TrainingLayout(tensor=8))
    one, two = (plan(own, H100, known(step, WeightsAlone())) for own in (run, other))
    assert [own.run.layout for own in one.best] == [own.run.layout for own in two.best]


def test_torchtitan_does_not_divide_heads_of_keys() -> None:
    """Four heads of keys are divided over at most four devices, by Megatron-LM over more."""
    model = named_language_model("Qwen/Qwen3-30B-A3B")
    run = LlmTraining(model, 4096, 256, 64)
    most = {
        framework: max(one.tensor for one in layouts_of(replace(run, framework=framework), H100))
        for framework in ("torchtitan", "megatron")
    }
    assert most == {"torchtitan": 4, "megatron": 8}
