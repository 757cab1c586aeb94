"""Steps of training language models: times, kernels and memory."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest

from forerun.data.errors import InputError
from forerun.data.language_models.training import (
    Cluster,
    LlmTraining,
    Recompute,
    SampleLength,
    TrainingFramework,
    TrainingLayout,
)
from forerun.data.list_prices import Price
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Network, TrainingSetup
from forerun.features.llm_training.graph import decoder_graph
from forerun.features.llm_training.layouts import FILLED, SCHEDULE, Layouts
from forerun.features.llm_training.memory import stage_memory
from forerun.features.llm_training.step import model_flop, sheet_of, step_work
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.answer import Asked, answers_to
from forerun.models.answers.served_models import InUse
from forerun.models.contract import PredictorContract
from forerun.models.limit import PEAK_MEMORY
from forerun.models.llm_training.answer import (
    Costs,
    TrainingAnswer,
    of_step,
    planned,
    training_answer,
)
from forerun.models.llm_training.by_kernels import METRICS, are_by_kernels
from forerun.models.llm_training.plans import layouts_of
from forerun.models.llm_training.predictors import (
    MIB,
    RESERVED_MEMORY,
    LlmTrainingMemory,
    TrainingPredictors,
)
from forerun.models.llm_training.rates import step_times
from forerun.models.llm_training.step_time import LlmTrainingStep
from tests.devices import A100, CATALOG, H100
from tests.features.llm_training.test_step import gpt
from tests.golden.bundle import predictors

# Times of training steps: the contract, laws, and what few runs teach.


MODELS = [
    named_language_model(name)
    for name in ("meta-llama/Meta-Llama-3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-2-13b-hf")
]


def query(run: LlmTraining, device: str = "h100-sxm-80gb") -> Query:
    """A run on a device of the catalog."""
    return Query(run, CATALOG.get(device), operation=Operation(run.devices))


@cache
def made_up_rows(factor: float = 1.3) -> Measurements:
    """Steps whose time is that by the rates, times a factor for one framework."""
    runs = [
        query(replace(run, layout=layout, framework=framework), device)
        for run in (LlmTraining(model, 4096, 256, 32) for model in MODELS)
        for device in ("h100-sxm-80gb", "a100-sxm-80gb")
        for framework, layout in (
            ("megatron", TrainingLayout(tensor=4)),
            ("megatron", TrainingLayout(pipeline=4, micro_batch=2)),
            ("fsdp", TrainingLayout(zero_stage=3)),
            ("fsdp", TrainingLayout(zero_stage=3, recompute="full", micro_batch=4)),
        )
    ]
    plain = LlmTrainingStep().predict(runs).values["latency_ms"]
    slow = np.array([factor if one.llm_training.framework == "fsdp" else 1.0 for one in runs])
    families = [str(one.llm_training.model.family) for one in runs]
    return Measurements.of(
        runs, {"latency_ms": plain * slow}, {"family": families, "config_key": range(len(runs))}
    )


@cache
def fitted_step() -> LlmTrainingStep:
    """A predictor that knows the made-up runs."""
    return LlmTrainingStep().fit(made_up_rows())


@pytest.fixture(scope="module")
def fitted() -> LlmTrainingStep:
    return fitted_step()


class TestContract(PredictorContract):
    """The properties of every predictor."""

    make = staticmethod(fitted_step)

    def queries(self) -> Sequence[Query]:
        return [query(LlmTraining(model, 2048, 128, 16)) for model in MODELS]

    training_rows = staticmethod(made_up_rows)


def step_ms(predictor: LlmTrainingStep, run: LlmTraining, device: str = "h100-sxm-80gb") -> float:
    """Predicted time of a step."""
    return float(predictor.predict([query(run, device)]).values["latency_ms"][0])


def test_the_process_learns_what_a_framework_takes_longer(fitted: LlmTrainingStep) -> None:
    """The factor of one framework carries over to a model and a device that no run has."""
    run = LlmTraining(
        named_language_model("Qwen/Qwen3-8B"), 4096, 256, 32, TrainingLayout(zero_stage=3)
    )
    slow, plain = (
        step_ms(fitted, replace(run, framework=framework), "h200-sxm-141gb")
        for framework in ("fsdp", "megatron")
    )
    assert slow / plain == pytest.approx(1.3, rel=0.08)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.family)
def test_times_follow_the_laws_of_training(fitted: LlmTrainingStep, model: object) -> None:
    """Batch, devices, recomputation, network and bubbles act in the direction that they must."""
    layout = TrainingLayout(tensor=2, pipeline=2)
    run = LlmTraining(model, 4096, 256, 32, layout)  # type: ignore[arg-type]
    base = step_ms(fitted, run)
    again = replace(run, layout=replace(layout, recompute="full"))
    assert base < step_ms(fitted, again) < 1.5 * base
    assert base < step_ms(fitted, replace(run, global_batch=512)) <= 2.0 * base
    assert base / 2.0 <= step_ms(fitted, replace(run, devices=64)) * 1.02 < base * 1.02
    assert base <= step_ms(fitted, replace(run, devices=64, global_batch=512)) * 1.01
    assert base <= step_ms(fitted, replace(run, cluster=Cluster(network_gbit_s=10.0)))
    assert step_ms(fitted, run, "a100-sxm-80gb") > base


@pytest.mark.parametrize("framework", get_args(TrainingFramework))
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_recomputation_never_makes_a_released_step_faster(framework: str, precision: str) -> None:
    """Layouts of some searches, by the predictor of the release, value and both ends.

    Full recomputation takes no less than selective, and this no less than none.
    """
    predictor = TrainingPredictors.of(InUse(predictors())).step
    for device, model in (("mi300x", MODELS[0]), ("b200-sxm-180gb", MODELS[1])):
        run = LlmTraining(model, 4096, 256, 64, framework=framework, precision=precision)  # type: ignore[arg-type]
        every = [one for one in layouts_of(run, CATALOG.get(device)) if one.recompute == "none"]
        none = every[:400:4]
        times = [
            predictor.of_layouts(
                run,
                CATALOG.get(device),
                Layouts.of(run, [replace(one, recompute=what) for one in none]),
            )
            for what in get_args(Recompute)
        ]
        for name in ("seconds", "low", "high"):
            ends = np.array([getattr(own, name) for own in times])
            assert len(every) > 5 and (np.diff(ends, axis=0) >= -1e-12 * ends[:-1]).all(), name


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "fsdp", "deepspeed"])
def test_twice_the_devices_at_equal_batch_are_slower_by_messages_alone(framework: str) -> None:
    """By constant rates exactly; learnt errors, which see shares of messages, add 3 % at most."""
    released = TrainingPredictors.of(InUse(predictors())).step
    for device, model in (("mi300x", MODELS[0]), ("b200-sxm-180gb", MODELS[1])):
        sheet = CATALOG.get(device)
        run = LlmTraining(model, 4096, 256, 64, framework=framework)  # type: ignore[arg-type]
        twice = replace(run, devices=128, global_batch=512)
        layouts = layouts_of(run, sheet)[:400]
        for predictor, most in ((LlmTrainingStep(), 1e-9), (released, 0.03)):
            less, more = (
                predictor.of_layouts(own, sheet, Layouts.of(own, layouts)) for own in (run, twice)
            )
            sent = more.parts.parts["data_messages"] - less.parts.parts["data_messages"]
            allowed = 1.0 + np.maximum(sent, 0.0) / less.parts.total
            assert (more.seconds / less.seconds <= allowed * (1.0 + most)).all()


def test_a_pipeline_waits_as_long_as_its_formula_says() -> None:
    """The bubble is (p - 1) / m of the busy time, over the groups of layers on a stage (arXiv
    2104.04473, section 2.2).
    """
    model = replace(MODELS[2], vocabulary=0)
    for pipeline, virtual in ((4, 1), (4, 2), (8, 5)):
        layout = TrainingLayout(pipeline=pipeline, virtual_stages=virtual)
        run = LlmTraining(model, 4096, 64, pipeline, layout)
        parts = LlmTrainingStep().predict([query(run)])[0].breakdown_ms
        busy = sum(parts.values()) - parts["bubble"] - parts["optimizer"]
        assert parts["bubble"] / busy == pytest.approx((pipeline - 1) / virtual / 64, rel=1e-6)


def test_messages_of_experts_hide_behind_the_other_group_of_layers() -> None:
    """Megatron-LM overlaps them only in interleaved pipelines; nowhere do they all disappear."""
    model = named_language_model("deepseek-ai/DeepSeek-V3")
    run = LlmTraining(model, 4096, 4096, 256)
    layouts = [TrainingLayout(pipeline=8, virtual_stages=own, expert=32) for own in (1, 2)]
    work = step_work(run, H100, Layouts.of(run, layouts))
    alone, hidden = step_times(work).parts["expert_messages"]
    assert alone == pytest.approx(work.parts["expert_messages"][0] * work.batches[0] / 8)
    assert alone / 2.0 <= hidden < alone


def test_the_last_stage_waits_for_nobody_and_all_wait_for_its_head() -> None:
    """Where layers divide evenly, the output head makes the last stage longer than the others."""
    model = replace(MODELS[2], layers=MODELS[2].layers[:40], vocabulary=256_000)
    for pipeline, virtual in ((4, 1), (8, 5)):
        layout = TrainingLayout(pipeline=pipeline, virtual_stages=virtual)
        run = LlmTraining(model, 4096, 64, pipeline, layout)
        parts = LlmTrainingStep().predict([query(run)])[0].breakdown_ms
        assert parts["waiting"] == pytest.approx((pipeline - 1) * parts["head"])


def bubble_of(schedule: tuple[int, bool], passes: tuple[float, float, float]) -> float:
    """Longest wait of a stage while a pipeline runs 24 micro-batches, by simulation.

    Args:
        schedule: micro-batches in flight at most, and whether gradients of weights are a pass of
            their own, which runs where nothing else can; stages of 1F1B hold one less than the
            stage before.
        passes: time of a forward pass, and of a backward pass for inputs and for weights.
    """
    (held, apart), (forward, inputs, weights) = schedule, passes
    stages, steps = 4, 24
    done: list[list[list[float]]] = [[[], [], []] for _ in range(stages)]
    free, started, now = [0.0] * stages, [-1.0] * stages, 0.0
    while any(len(own[1 + apart]) < steps for own in done):
        for stage in range(stages):
            fed, back, rest = done[stage]
            most = held if apart else stages - stage
            ahead = done[stage - 1][0][len(fed) :] if stage else [0.0]
            behind = done[stage + 1][1] if stage < stages - 1 else fed
            behind = [max(own) for own in zip(fed, behind, strict=False)][len(back) :]
            took = 0.0
            if free[stage] > now:
                continue
            if behind and behind[0] <= now:
                took = inputs + (0.0 if apart else weights)
                back.append(now + took)
            elif len(fed) < steps and len(fed) - len(back) < most and ahead and ahead[0] <= now:
                took = forward
                fed.append(now + took)
            elif apart and len(rest) < len(back):
                took = weights
                rest.append(now + took)
            if took:
                started[stage] = now if started[stage] < 0.0 else started[stage]
                free[stage] = now + took
        now = min((one for one in free if one > now), default=now)
    spans = [end - start for end, start in zip(free, started, strict=True)]
    return max(spans) - steps * sum(passes)


@pytest.mark.parametrize(
    ("schedule", "simulated", "passes"),
    [
        ("1f1b", (4, False), (1.0, 1.0, 1.0)),
        ("1f1b", (4, False), (1.0, 1.25, 0.75)),
        ("zb-h1", (4, True), (1.0, 1.0, 1.0)),
        ("zb-h2", (7, True), (1.0, 1.0, 1.0)),
    ],
)
def test_bubbles_are_those_of_a_simulated_pipeline(
    schedule: str, simulated: tuple[int, bool], passes: tuple[float, float, float]
) -> None:
    """(p - 1) (F + B + W), less two or three W with the published memory of the schedule."""
    published = 3.0 * (sum(passes) - FILLED[SCHEDULE.index(schedule)] * passes[2])
    assert bubble_of(simulated, passes) == pytest.approx(published)


@pytest.mark.parametrize(("schedule", "filled"), [("zb-h1", 2.0), ("zb-h2", 3.0), ("zb-v", 3.0)])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_gradients_of_weights_fill_the_bubble_of_a_step(schedule, filled, recompute) -> None:
    """By two or three of a micro-batch's: a third of its products, or a fourth where they are
    computed again; adapters have none.
    """
    model = replace(MODELS[2], vocabulary=0)
    virtual = 1 + (schedule == "zb-v")
    layout = TrainingLayout(
        pipeline=4, virtual_stages=virtual, recompute=recompute, schedule=schedule
    )
    run = LlmTraining(model, 4096, 64, 4, layout)
    parts = LlmTrainingStep().predict([query(run)])[0].breakdown_ms
    micro_batch = (sum(parts.values()) - parts["bubble"] - parts["optimizer"]) * 4 / 64
    products = parts["linear"] * 4 / 64
    waiting = micro_batch - filled * products / (3.0 + (recompute == "full"))
    assert parts["bubble"] == pytest.approx(3 / 4 * waiting, rel=1e-6)
    adapted = replace(run, lora_rank=16)
    plain = replace(adapted, layout=TrainingLayout(pipeline=4, recompute=recompute))
    assert step_ms(LlmTrainingStep(), adapted) == pytest.approx(step_ms(LlmTrainingStep(), plain))


def test_dualpipe_waits_as_published_and_hides_messages_of_experts() -> None:
    """(p / 2 - 1) (F&B + B - 3 W), with B twice F: table 2 of arXiv 2412.19437."""
    layout = TrainingLayout(pipeline=4, schedule="dualpipe")
    run = LlmTraining(replace(MODELS[2], vocabulary=0), 4096, 64, 4, layout)
    parts = LlmTrainingStep().predict([query(run)])[0].breakdown_ms
    stage = (sum(parts.values()) - parts["bubble"] - parts["optimizer"]) / 64
    waiting = stage * 5 / 3 - 3 * parts["linear"] / 64 / 3
    assert parts["bubble"] == pytest.approx((4 / 2 - 1) * waiting, rel=1e-6)
    experts = LlmTraining(named_language_model("deepseek-v3"), 4096, 512, 64)
    sent = [
        LlmTrainingStep().predict([query(replace(experts, layout=own))])[0].breakdown_ms
        for own in (
            TrainingLayout(pipeline=4, expert=16, schedule=one) for one in ("1f1b", "dualpipe")
        )
    ]
    assert sent[1]["expert_messages"] < 0.7 * sent[0]["expert_messages"]


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
def test_one_micro_batch_passes_all_stages_forwards_and_back(schedule) -> None:
    """Only its own gradients of weights fill the bubble."""
    run = LlmTraining(
        replace(MODELS[2], vocabulary=0), 4096, 1, 4, TrainingLayout(pipeline=4, schedule=schedule)
    )
    parts = LlmTrainingStep().predict([query(run)])[0].breakdown_ms
    micro_batch = (sum(parts.values()) - parts["bubble"] - parts["optimizer"]) * 4
    waiting = micro_batch - parts["linear"] * 4 / 3.0
    assert parts["bubble"] == pytest.approx(3 / 4 * waiting, rel=1e-6)


@pytest.mark.parametrize("framework", ["torchtitan", "megatron"])
def test_zero_bubble_is_never_slower_than_1f1b(framework: str) -> None:
    """All pipelines of a search by the predictor of the release, value and both ends; ZB-H1's first
    stage holds as much.
    """
    known = TrainingPredictors.of(InUse(predictors()))
    for device, model in (("h100", MODELS[0]), ("b200-sxm-180gb", MODELS[1])):
        sheet = CATALOG.get(device)
        run = LlmTraining(model, 4096, 256, 64, framework=framework)  # type: ignore[arg-type]
        plain = [
            one for one in layouts_of(run, sheet) if one.pipeline > 1 and one.virtual_stages == 1
        ][:300]  # fmt: skip
        tables = [
            Layouts.of(run, [replace(one, schedule=own) for one in plain])
            for own in ("1f1b", "zb-h1", "zb-h2")
        ]
        times = [known.of_layouts(run, sheet, table) for table in tables]
        for name in ("seconds", "low", "high"):
            ends = [getattr(own, name) for own in times]
            assert len(plain) > 5 and (np.diff(ends, axis=0) <= 1e-12).all(), name
        first = [stage_memory(run, table).stages[:, 0] for table in tables]
        assert first[1] == pytest.approx(first[0])


def test_far_from_measured_runs_intervals_have_one_width_and_near_ones_no_wider() -> None:
    """That of left-out families about another model, of left-out devices on another device, and
    the wider of both outside the ranges of measured runs.
    """
    far = replace(fitted_step(), far_model=0.3, far_device=0.2)
    layouts = (TrainingLayout(zero_stage=3, micro_batch=4), TrainingLayout(tensor=4))
    for model, device, devices, width in (
        ("meta-llama/Meta-Llama-3-70B", "h100-sxm-80gb", 32, 0.3),
        ("meta-llama/Meta-Llama-3-70B", "b200", 32, 0.3),
        ("meta-llama/Llama-2-13b-hf", "b200", 32, 0.2),
        ("meta-llama/Llama-2-13b-hf", "b200", 64, 0.3),
    ):  # fmt: skip
        run = LlmTraining(named_language_model(model), 4096, 256, devices, framework="maxtext")
        found = far.of_layouts(run, CATALOG.get(device), Layouts.of(run, layouts))
        assert np.log(found.high / found.low) == pytest.approx(2.0 * width)
    run = LlmTraining(MODELS[2], 131_072, 256, 32, framework="maxtext")
    own = replace(far, factor=100.0).of_layouts(run, H100, Layouts.of(run, layouts))
    assert np.log(own.high / own.low) == pytest.approx(2.0 * 0.3)
    alone = LlmTrainingStep().fit(made_up_rows().take(np.arange(24) < 4))  # one model, one device
    assert np.isfinite(alone.predict([query(run, "b200")]).high["latency_ms"]).all()


def test_nothing_is_faster_than_its_arithmetic(fitted: LlmTrainingStep) -> None:
    """Model FLOP utilisation stays below one at the lower end of every interval."""
    runs = [query(LlmTraining(m, 2048, 64, 8), d) for m in MODELS for d in ("mi300x", "b200")]
    found = fitted.predict(runs)
    for one, low in zip(runs, found.low["latency_ms"], strict=True):
        run = one.llm_training
        assert low >= 1e3 * fitted.of_layouts(run, one.device, Layouts.of(run)).bound[0] * (
            1.0 - 1e-9
        )


def test_what_was_not_measured_is_a_limit_and_widens() -> None:
    """A device, a framework and a size that no run has; known runs have neither."""
    rows = made_up_rows()
    slow = rows.values["latency_ms"] * np.where(rows.group("device") == "h100-sxm-80gb", 1.2, 1.0)
    fitted = LlmTrainingStep().fit(replace(rows, values={"latency_ms": slow}))
    known = rows.queries[0]
    near = fitted.predict([known])
    assert not near[0].limits
    run = replace(
        known.llm_training, framework="deepspeed", sequence_tokens=131_072, global_batch=8
    )
    far = fitted.predict([query(run, "mi300x")])
    said = " ".join(map(str, far[0].limits))
    assert "deepspeed" in said
    assert "no training on this device" in said
    assert "sequences of 131,072 tokens; measured runs had 4,096 to 4,096" in said
    widths = [np.log(f.high["latency_ms"] / f.low["latency_ms"])[0] for f in (near, far)]
    assert widths[1] > 2.0 * widths[0]


def test_more_devices_than_any_run_had_are_a_limit_and_have_the_width_of_what_is_far() -> None:
    """A 70B model on 8,192 H100s, by the release: no run had more than 3,360 devices."""
    released = TrainingPredictors.of(InUse(predictors()))
    model = named_language_model("meta-llama/Meta-Llama-3-70B")
    layout = TrainingLayout(tensor=8, pipeline=4)
    grades, widths = [], []
    for devices in (1024, 8192):
        run = LlmTraining(model, 4096, 2 * devices, devices, layout)
        answer = training_answer(run, H100, released, Costs())
        step = answer.estimates["step_s"]
        grades.append(answer.trust["step_s"])
        widths.append(np.log(step.high / step.low))
    assert [own.grade for own in grades] == ["A", "C"]
    assert grades[1].reason == "extrapolated: 8,192 devices; measured runs had 8 to 3,360"
    step = released.step
    assert widths[0] < widths[1]
    assert widths[1] == pytest.approx(2.0 * max(step.far_model, step.far_device))


@pytest.mark.parametrize(
    ("name", "framework", "precision", "degrees", "grade"),
    [
        ("meta-llama/Meta-Llama-3-70B", "megatron", "fp8", {"tensor": 8, "pipeline": 4}, "A"),
        ("meta-llama/Meta-Llama-3-70B", "deepspeed", "bf16", {"zero_stage": 3}, "B"),
        ("deepseek-ai/DeepSeek-V3", "torchtitan", "bf16", {"pipeline": 8, "expert": 64}, "B"),
        ("meta-llama/Meta-Llama-3-70B", "megatron", "mxfp8", {"tensor": 8, "pipeline": 4}, "C"),
    ],
)
def test_only_what_was_measured_together_has_grade_a(
    name, framework, precision, degrees, grade
) -> None:
    """On H100s, by the release, which has no expert model there but GPT-OSS with Megatron."""
    released = TrainingPredictors.of(InUse(predictors()))
    layout = TrainingLayout(recompute="full", **degrees)
    run = LlmTraining(
        named_language_model(name), 4096, 512, 512, layout, precision, framework=framework
    )
    answer = training_answer(run, H100, released, Costs())
    assert answer.trust["step_s"].grade == grade


@pytest.mark.parametrize("framework", ["fsdp", "deepspeed", "megatron"])
def test_nothing_is_faster_with_its_states_on_the_host(framework: str) -> None:
    """Transfers and the host's step are slower than the device's step, by the release."""
    run = LlmTraining(MODELS[0], 4096, 64, 8, framework=framework)  # type: ignore[arg-type]
    layouts = [TrainingLayout(zero_stage=3, offload=own) for own in ("none", "optimizer")]
    step = TrainingPredictors.of(InUse(predictors())).step
    kept, away = step.of_layouts(run, H100, Layouts.of(run, layouts)).seconds
    assert away > kept


def test_formats_that_a_device_lacks_are_said(fitted: LlmTrainingStep) -> None:
    """Products in bfloat16 on a V100 are those in 32 bits, of five to six times the time."""
    bf16, fp16 = (
        replace(made_up_rows().queries[0].llm_training, precision=own) for own in ("bf16", "fp16")
    )
    on_v100, on_a100 = (
        " ".join(map(str, fitted.predict([query(bf16, name)])[0].limits))
        for name in ("v100-sxm2-32gb", "a100-sxm-80gb")
    )
    assert "no bf16 peak" in on_v100
    assert "no bf16 peak" not in on_a100
    times = [
        LlmTrainingStep().predict([query(own, "v100-sxm2-32gb")])[0].breakdown_ms["linear"]
        for own in (bf16, fp16)
    ]
    peaks = CATALOG.get("v100-sxm2-32gb").peak_tflops
    assert times[0] / times[1] == pytest.approx(peaks["fp16"] / peaks["fp32"])


def test_a_framework_that_was_not_measured_on_the_architecture_is_said(
    fitted: LlmTrainingStep,
) -> None:
    """Of two frameworks on two architectures, one was measured on one of them alone."""
    rows = made_up_rows()
    on_hopper = [one.device.architecture == "hopper" for one in rows.queries]
    sharded = [one.llm_training.framework == "fsdp" for one in rows.queries]
    some = LlmTrainingStep().fit(rows.take(~(np.array(on_hopper) & np.array(sharded))))
    asked = next(o for o, h, s in zip(rows.queries, on_hopper, sharded, strict=True) if h and s)
    assert "fsdp on hopper GPUs" in " ".join(map(str, some.predict([asked])[0].limits))
    assert not fitted.predict([asked])[0].limits


def test_own_runs_move_the_device_they_are_of(fitted: LlmTrainingStep) -> None:
    """Three runs of a device twice as slow as predicted bring its next answer most of the way, and
    leave another device within its interval.
    """
    own = [
        query(LlmTraining(model, 4096, 256, 32, TrainingLayout(tensor=4)), "mi300x")
        for model in MODELS
    ]
    before = fitted.predict(own).values["latency_ms"]
    groups = {"family": ["a", "b", "c"], "config_key": range(3)}
    adapted = fitted.adapt(Measurements.of(own, {"latency_ms": 2.0 * before}, groups))
    after = adapted.predict(own).values["latency_ms"]
    assert (after > 1.5 * before).all()
    other = made_up_rows().queries[:1]
    assert adapted.predict(other).values["latency_ms"] == pytest.approx(
        fitted.predict(other).values["latency_ms"], rel=0.15
    )


def test_micro_batches_outside_the_range_are_counted_as_they_are(fitted: LlmTrainingStep) -> None:
    """Neither as logarithms nor as one more."""
    known = made_up_rows().queries[0]
    run = replace(known.llm_training, global_batch=known.llm_training.data * 1024)
    run = replace(run, layout=replace(run.layout, micro_batch=1))
    measured = sorted({one.llm_training.micro_batches for one in made_up_rows().queries})
    (found,) = fitted.predict([replace(known, workload=run)])
    line = f"1,024 micro-batches a step; measured runs had {measured[0]:,} to {measured[-1]:,}"
    assert line in " ".join(map(str, found.limits))


# Steps in eager PyTorch: one answer whether asked as a language model or as a network.


LAYOUT = TrainingLayout(micro_batch=2, recompute="full")
LORA = LlmTraining(
    named_language_model("tinyllama-1.1b-chat-v1.0"),
    *(1024, 8, 1, LAYOUT),
    framework="fsdp",
    lora_rank=16,
)
FULL = replace(LORA, lora_rank=0)
COST = Costs(1e9, Price(2.0, "as given"))


@pytest.fixture(scope="module")
def known() -> TrainingPredictors:
    """The predictors of the release."""
    return TrainingPredictors.of(InUse(predictors()))


def answered(known: TrainingPredictors, run: LlmTraining) -> TrainingAnswer:
    return training_answer(run, H100, known, COST)


@pytest.mark.parametrize(
    ("run", "precision", "setup"),
    [
        (LORA, "bf16", {"lora_rank": 16, "adapter_precision": "fp32"}),
        (
            replace(LORA, frozen_weights="nf4"),
            "bf16",
            {"lora_rank": 16, "adapter_precision": "fp32", "frozen_weights": "nf4"},
        ),
        (FULL, "amp_bf16", {}),
    ],
)
def test_a_step_is_answered_as_the_network_that_it_is(known, run, precision, setup) -> None:
    """Time, power and memory with their intervals and grades are those of the network."""
    own = answered(known, run)
    asked = TrainingSetup(attention="flash", checkpoint_blocks=True, accumulation=4, **setup)
    graph = decoder_graph(run.model, run.sequence_tokens)
    query = Query(Network(graph, 8, precision, "training", asked), H100)
    (network,) = answers_to([Asked(query, METRICS)], known.in_use)
    assert not isinstance(network, InputError)
    time, step = network.estimates["latency_ms"], own.estimates["step_s"]
    assert (1e3 * step.value, 1e3 * (step.low or 0.0)) == pytest.approx((time.value, time.low))
    assert own.trust["step_s"] == network.trust["latency_ms"]
    for name in METRICS[1:]:
        assert own.estimates[name] == network.estimates[name], name
        assert own.trust[name] == network.trust[name], name


def test_lengths_scale_what_kernels_answer(known) -> None:
    """One length changes nothing, shorter samples are faster, most where they are padded, and
    memory stays.
    """
    plain = answered(known, LORA)
    one, padded, packed = (
        answered(known, replace(LORA, lengths=tuple(own), packed=joined))
        for own, joined in (
            ([SampleLength(1024, 1.0)], False),
            ([SampleLength(1024, 1.0), SampleLength(256, 3.0)], False),
            ([SampleLength(1024, 1.0), SampleLength(256, 3.0)], True),
        )
    )
    assert one.estimates == plain.estimates
    assert padded.estimates["step_s"].value < packed.estimates["step_s"].value
    assert packed.estimates["step_s"].value <= plain.estimates["step_s"].value
    assert padded.estimates[PEAK_MEMORY] == plain.estimates[PEAK_MEMORY]
    assert sum(padded.breakdown_s.values()) == pytest.approx(padded.estimates["step_s"].value)
    assert {own.trust["step_s"].grade for own in (padded, packed)} == {"C"}


def test_parts_rates_and_costs_follow_from_the_step(known) -> None:
    """As of any other layout: parts add up, and energy is power times time."""
    own = answered(known, LORA)
    step, power = own.estimates["step_s"], own.estimates["power_w"]
    assert sum(own.breakdown_s.values()) == pytest.approx(step.value)
    assert sum(own.parts_mib.values()) == pytest.approx(own.estimates["peak_memory_mib"].value)
    found = {name: one.value for name, one in own.estimates.items()}
    assert found["tokens_per_s"] == pytest.approx(8 * 1024 / step.value)
    peak = sheet_of(LORA, H100).peak
    assert found["mfu"] == pytest.approx(model_flop(LORA) / (step.value * peak))
    hours = 24.0 * found["run_days"]
    assert found["run_usd"] == pytest.approx(2.0 * hours)
    assert found["run_kwh"] == pytest.approx(hours * power.value / 1e3)
    again = of_step(LORA, H100, step, COST, power)
    assert again["run_kwh"] == own.estimates["run_kwh"]


def test_which_runs_are_eager_pytorch_alone() -> None:
    """FSDP on one device, and adapters on data-parallel devices; nothing else."""

    def found(**changes) -> bool:
        run = replace(LORA, **changes)
        return bool(are_by_kernels(run, Layouts.of(run))[0])

    assert found() and found(lora_rank=0)
    assert found(devices=4) and found(devices=4, framework="deepspeed")
    assert not found(devices=4, lora_rank=0)
    for framework in ("megatron", "torchtitan", "maxtext", "megatron-deepspeed"):
        assert not found(framework=framework)
    assert not found(framework="deepspeed", lora_rank=0)


def test_a_plan_ranks_by_the_figures_of_its_answers(known) -> None:
    """Layouts on one device: times and memory of a plan are those of each layout's answer."""
    run = replace(LORA, global_batch=4)
    plan = planned(run, H100, known, COST, kept=2).plan
    assert len(plan.best) == 2
    assert [one.seconds for one in plan.best] == sorted(one.seconds for one in plan.best)
    for one in plan.best:
        own = answered(known, one.run)
        assert one.seconds == pytest.approx(own.estimates["step_s"].value)
        assert one.upper_mib == pytest.approx(own.estimates["peak_memory_mib"].high)
        assert own.fits


def test_several_devices_with_adapters_have_an_assumed_power(known) -> None:
    """Power of divided networks is not known: the share of the TDP stands for it."""
    own = answered(known, replace(LORA, devices=2))
    assert own.trust["power_w"].grade == own.trust["run_kwh"].grade == "C"
    assert own.estimates["power_w"].value == pytest.approx(0.76 * 700.0)


# Measured memory of training: constants are found again, intervals say what they rest on.


def memory_query(layers: int, framework="torchtitan", batch: int = 1) -> Query:
    run = LlmTraining(gpt(layers, 2048, 16), 2048, 8 * batch, 8, framework=framework)
    run = replace(run, layout=TrainingLayout(micro_batch=batch))
    return Query(run, A100, operation=Operation(8))


def measured(factor: float, context: float, frameworks=("torchtitan", "deepspeed")) -> Measurements:
    """Rows of each framework, every second of the device, that follow the law with 2 % noise."""
    queries = [memory_query(n, one) for one in frameworks for n in range(4, 64)]
    plain = LlmTrainingMemory(fragmentation=1.0, context_mib=0.0).predict(queries)
    noise = np.exp(0.02 * np.random.default_rng(0).standard_normal(len(queries)))
    reserved = factor * plain.values[RESERVED_MEMORY] * noise
    of_device = np.arange(len(queries)) % 2 == 0
    values = {
        PEAK_MEMORY: np.where(of_device, reserved + context, np.nan),
        RESERVED_MEMORY: np.where(of_device, np.nan, reserved),
    }
    return Measurements.of(queries, values, {"config": np.arange(len(queries)).astype(str)})


@cache
def memory_rows() -> Measurements:
    return measured(1.08, 3000.0)


@cache
def fitted_memory() -> LlmTrainingMemory:
    return LlmTrainingMemory().fit(memory_rows())


class TestLlmTrainingMemory(PredictorContract):
    make = staticmethod(fitted_memory)
    training_rows = staticmethod(memory_rows)

    def queries(self):
        return [memory_query(8), memory_query(16, batch=2), memory_query(32, "maxtext")]


def test_constants_are_found_again() -> None:
    fitted = LlmTrainingMemory().fit(measured(1.10, 4000.0))
    assert fitted.context_mib == pytest.approx(4000.0, rel=0.1)
    for own in fitted.own.values():
        assert own == pytest.approx(1.10, rel=0.02)
    assert 1.05 < fitted.fragmentation < 1.10


def test_intervals_hold_nine_in_ten_and_the_device_holds_more_than_the_allocator() -> None:
    rows = memory_rows()
    found = fitted_memory().predict(rows.queries)
    of_device = np.isfinite(rows.values[PEAK_MEMORY])
    for metric, known in ((PEAK_MEMORY, of_device), (RESERVED_MEMORY, ~of_device)):
        value = rows.values[metric][known]
        inside = (found.low[metric][known] <= value) & (value <= found.high[metric][known])
        assert 0.85 <= inside.mean() <= 0.97
    assert (found.values[PEAK_MEMORY] > found.values[RESERVED_MEMORY]).all()
    assert not any(found.limits)


def test_a_framework_without_rows_is_said_and_has_no_coverage() -> None:
    fitted = fitted_memory()
    found = fitted.predict([memory_query(8, "maxtext"), memory_query(8)])
    assert [len(own) for own in found.limits] == [1, 0]
    assert "maxtext" in str(found.limits[0][0])
    assert np.isnan(found.row_coverage[PEAK_MEMORY]).tolist() == [True, False]


def test_an_architecture_without_rows_has_an_interval_that_is_as_wide_on_both_sides() -> None:
    """That of frameworks and architectures that were left out; grade C, and said."""
    fitted = fitted_memory()
    here = memory_query(32)
    there = replace(here, device=CATALOG.get("b200-sxm-180gb"))
    found = fitted.predict([here, there])
    low, value, high = (own[PEAK_MEMORY] for own in (found.low, found.values, found.high))
    assert value[0] == value[1]
    assert high[1] / low[1] > high[0] / low[0]
    assert high[1] / value[1] == pytest.approx(value[1] / low[1])
    assert np.isnan(found.row_coverage[RESERVED_MEMORY]).tolist() == [False, True]
    assert "torchtitan on blackwell" in str(found.limits[1][0])


def test_many_layouts_are_what_each_query_is_and_the_upper_end_is_above() -> None:
    fitted = fitted_memory()
    asked = memory_query(8, batch=2)
    best, upper = fitted.upper_mib(asked.llm_training, A100, Layouts.of(asked.llm_training))
    one = fitted.predict([asked])
    assert best[0] == pytest.approx(one.values[PEAK_MEMORY][0])
    assert upper[0] == pytest.approx(one.high[PEAK_MEMORY][0])
    assert upper[0] > best[0]


def test_the_lower_end_holds_what_lasts_between_steps() -> None:
    asked = memory_query(32, "maxtext")
    found = LlmTrainingMemory(fragmentation=0.5, context_mib=1.0).predict([asked])
    run = asked.llm_training
    held = stage_memory(run, Layouts.of(run)).model_states[0] / MIB
    assert found.low[PEAK_MEMORY][0] == pytest.approx(held)
    assert held <= found.values[PEAK_MEMORY][0] <= found.high[PEAK_MEMORY][0]
    assert min(found.breakdowns_mib[0].values()) >= 0.0
