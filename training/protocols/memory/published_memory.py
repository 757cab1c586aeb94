"""published_memory: peak memory of published setups, with intervals calibrated on other rows.

The bundled `CalibratedMemory` calibrated its prediction intervals on these rows, so evaluating it
as shipped would be optimistic. The protocols evaluate its estimates, which were not fitted on these
rows, with intervals calibrated without the source or the family of the held-out rows.

Each source has a function here that returns the set-up of a row (`Described`: network, batch size,
precision and options), or the reason why no query can express it. Facts that a table omits and its
repository states elsewhere (a script's default, a configuration file) are documented where they are
used.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.memory.published_memory import (
    ALLOCATED,
    DEVICE,
    RESERVED,
    PublishedMemory,
    families,
    metrics,
    peak_mib,
    phases,
    reasons,
    sources,
)
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Runtime, Software
from forerun.data.workload import InferenceSetup, Network, NumberFormat, Phase, TrainingSetup
from forerun.features.operators.roofline import ELEMENT_BYTES
from forerun.features.published.zoo import read_graphs
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory
from forerun.models.predictor import Predictor
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.memory.gpumemnet import VISION_BIN_MIB
from forerun.training.protocols.networks.published_networks import ATTENTION_TABLES, SEQUENCE_TABLES
from forerun.training.scores.task_scores import Capacity

Row = Mapping[Any, Any]
NO_GRAPH: Final = "no graph: configuration not certain"
PIPELINE: Final = "a pipeline of several networks"
LENGTHS: Final = "sequence lengths depend on the data"
OFFLOADED: Final = "offloaded to the host"

BATCHES: Final[Mapping[str, int]] = {"timm/vit_huge_patch14_224": 8}
"""Model -> images per step, from the text above the table (torchao/optim/README.md)."""

TORCHTUNE_CHUNKS: Final = 8
"""Default number of chunks of torchtune's `CEWithChunkedOutputLoss`."""

TORCHTITAN_BATCH: Final = 1
"""Samples per device for torchao's float8 table, made with torchtitan, which states none:
`batch_size` of torchtitan's train_configs/llama3_8b.toml."""

LOW_RANK: Final = ("ADALORA", "DELORA", "GRALORA", "PVERA", "RANDLORA", "UNILORA", "VBLORA", "VERA")
"""PEFT methods that add two low-rank products to the output of a linear layer, like LoRA, but train
other parts of them. They are predicted as LoRA of the same rank and scored separately."""
SAME_AS_LORA: Final = ("rank32", "rank64", "rank64-rslora")
"""Suffixes of PEFT's experiments with plain LoRA; others change its arithmetic."""
NEAR_LORA: Final = ("lorafa", "mica")
"""Suffixes of experiments with the arithmetic of LoRA that train fewer weights."""

WITHOUT_LOSS: Final = ("google-bert/bert-base-uncased", "microsoft/biogpt")
"""Checkpoints whose training tables use the sum of the logits as the loss."""
IN_FP32: Final = ("microsoft/beit-base-patch16-224", "facebook/data2vec-vision-base")
"""Checkpoints whose inference ran in fp32 although the text says half precision: the peak of one
image, 359 MiB, fits the weights in fp32 (330 MiB) and is more than twice what fp16 would take."""
HEADLESS: Final = "google-bert/bert-base-uncased"
"""Checkpoint whose inference head is not stated; no single head explains the peaks."""

GPT_NEOX_TABLES_BYTES: Final = 24 * (2048 * 2048 + 2 * 2048 * 16 * 2)
"""Buffers of the 24 layers of Pythia 410M, which later versions no longer have: a causal mask of
2,048 by 2,048 booleans and rotary tables of 16 columns in 16 bits (`_init_bias` and
`GPTNeoXRotaryEmbedding` of modeling_gpt_neox.py). They were discovered on these rows, whose peaks
in generation and training were 100 MiB above the plan at every length and batch size."""

DIFFUSION: Final[Mapping[str, str]] = PublishedMemory.facts["diffusion"]

OPTIMIZERS: Final[tuple[tuple[str, str], ...]] = PublishedMemory.facts["optimizers"]


@dataclass(frozen=True)
class Described:
    """The set-up of a row.

    Attributes:
        part: table or benchmark of one source, whose rows are scored together.
        graph: name of the network's graph.
        batch_size: samples per step and device, over all micro-batches.
        precision: number format of the run.
        training, inference: options of training or inference; the other one is None.
        runtime: eager or compiled.
        stored_bytes: size of buffers of the network that are not in its graph.
    """

    part: str
    graph: str
    batch_size: int
    precision: NumberFormat
    training: TrainingSetup | None = None
    inference: InferenceSetup | None = None
    runtime: Runtime = "eager"
    stored_bytes: float = 0.0


def described(source: str, row: Row) -> Described | str:
    """The set-up of a row, or the reason why no query can express it.

    Args:
        source: name of the source, as in `forerun.data.datasets.memory.published_memory.sources`.
        row: column -> value.
    """
    rule = _SOURCES.get(source)
    return NO_GRAPH if rule is None else rule(row)


def optimizer(written: object) -> str:
    """The optimizer of a row; empty if it is not modelled, AdamW if none is named."""
    if not isinstance(written, str):
        return "adamw"
    return next((name for pattern, name in OPTIMIZERS if re.match(pattern, written)), "")


def _transformers(row: Row) -> Described | str:
    task, attention = str(row["task"]), row["attention"]
    if task == "load":
        return "no run: the network is loaded only"
    if row["model"] == "google-bert/bert-large-uncased":
        return _guide(row)
    if attention not in ("eager", "sdpa"):
        return NO_GRAPH
    training = task.startswith("training")
    name = _attention_graph(row, "training" if training else "inference")
    if training and row["model"] == "google/vivit-b-16x2-kinetics400":
        return "the columns of eager and fused attention are exchanged"
    if not name or (row["model"] == HEADLESS and not training):
        return NO_GRAPH
    summed = training and row["model"] in WITHOUT_LOSS
    batch, graph = int(row["batch"]), f"{name}-{'sum' if summed else 'sdpa'}"
    stored = GPT_NEOX_TABLES_BYTES if name.startswith("pythia_410m") else 0.0
    if training:
        setup, part = TrainingSetup("none", attention=attention), "transformers_attention"
        return Described(part, graph, batch, "fp16", training=setup, stored_bytes=stored)
    if not task.startswith("generate"):
        forward = InferenceSetup(attention, "all")
        precision: NumberFormat = "fp32" if row["model"] in IN_FP32 else "fp16"
        return Described("transformers_attention", graph, batch, precision, inference=forward)
    # Releases of that time made the logits of every position of the prompt, in the run's precision,
    # and GPT-NeoX had no cache class (`GPTNeoXForCausalLM.forward`, `_attn_projections_and_rope`).
    tokens = int(row["seq_or_resolution"]) + 100
    steps = InferenceSetup(attention, "all", cache_tokens=tokens, joined_cache=True)
    part = "transformers_generation"
    return Described(part, graph, batch, "fp16", inference=steps, stored_bytes=stored)


def _attention_graph(row: Row, phase: str) -> str:
    model, side = str(row["model"]), row["seq_or_resolution"]
    sequence = SEQUENCE_TABLES[phase].get(model)
    if model == "EleutherAI/pythia-410m-deduped":
        sequence = "pythia_410m"
    if model == "albert/albert-base-v2":
        # Its training peaks hold no logits over the vocabulary: there was no masked-token head.
        sequence = "albert_base"
    if sequence:
        return f"{sequence}-{side}"
    if model == "google/vivit-b-16x2-kinetics400":
        # The script casts to fp16; the text says fp32, whose weights alone would exceed the peak.
        return "vivit_b-32x224"
    # Images of another size are for semantic segmentation, whose head is not specified.
    return ATTENTION_TABLES.get(model, "") if phase == "inference" else ""


def _guide(row: Row) -> Described:
    """The single-GPU guide: BERT large on 512 tokens, before transformers had fused attention.

    Its Trainer used transformers' own AdamW, which steps one tensor at a time, on PyTorch 1.10.
    """
    micro, accumulation = int(row["batch"]), int(row["grad_accum"])
    setup = TrainingSetup(
        optimizer(row["optimizer"]),  # type: ignore[arg-type]
        accumulation=accumulation,
        attention="eager",
        checkpoint_blocks=row["checkpointing"] == "True",
        optimizer_kernel="fused",
        legacy_pytorch=True,
    )
    precision: NumberFormat = "amp" if str(row["precision"]).startswith("amp") else "fp32"
    graph, batch = "bert_large_classification-512", micro * accumulation
    return Described("transformers_guide", graph, batch, precision, training=setup)


def _torchtune(row: Row) -> Described | str:
    steps, variant = str(row["config"]), row["packed"]
    if not steps.startswith("cumulative"):
        return "no run: the network is loaded only" if "init" in str(row["task"]) else LENGTHS
    name = steps.partition(": ")[2]
    if variant != "True" and name == "baseline":
        return LENGTHS
    if name == "+optimizer in backward":
        return "an optimizer that steps in the backward pass is not modelled"
    order = ("+packed", "+compile", "+chunked CE", "+activation checkpointing")
    if name not in order:
        return OFFLOADED
    setup = TrainingSetup(
        "adamw",
        optimizer_kernel="fused",
        loss_chunks=TORCHTUNE_CHUNKS if order.index(name) >= 2 else 1,
        checkpoint_blocks=order.index(name) >= 3,
    )
    runtime: Runtime = "compiled" if order.index(name) >= 1 else "eager"
    batch = int(row["batch"])
    return Described("torchtune", "llama_3.2_3b-4096", batch, "bf16", setup, None, runtime)


def _peft(row: Row) -> Described | str:
    if row["model"] != "meta-llama/Llama-3.2-3B":
        return NO_GRAPH
    method, rank, part = row["method"], 0, "peft_llama"
    if method != "full":
        targets = set(re.findall(r"\w+", str(row["target_modules"])))
        variant = str(row["peft_variant"])
        plain = method == "LORA" and variant.endswith(SAME_AS_LORA)
        near = method in LOW_RANK or (method == "LORA" and variant.endswith(NEAR_LORA))
        if not plain and not near:
            return "adapter method is not modelled"
        if targets != {"q_proj", "v_proj"}:
            return "adapters on layers that no option names"
        rank, part = int(row["lora_rank"]), part if plain else "peft_llama_as_lora"
    setup = TrainingSetup(
        "adamw",
        lora_rank=rank,
        lora_targets="query_value",
        adapter_precision="fp32" if rank else None,
    )
    return Described(part, "llama_3.2_3b-768", int(row["batch"]), "bf16", training=setup)


def _torchao(row: Row) -> Described | str:
    model, written = str(row["model"]), str(row["optimizer"])
    if not model.startswith("timm/"):
        return _torchtitan(row) if model.startswith("Llama-3") else LENGTHS
    if "offload" in written and not written.endswith("none"):
        return OFFLOADED
    stepped = optimizer(written)
    if not stepped:
        return "optimizer is not modelled"
    setup = TrainingSetup(
        stepped,  # type: ignore[arg-type]
        checkpoint_blocks=row["checkpointing"] == "True",
        optimizer_kernel="fused",
    )
    huge = model == "timm/vit_huge_patch14_224"
    batch = BATCHES.get(model) or int(row["batch"])
    precision: NumberFormat = "amp_bf16" if huge else "bf16"
    runtime: Runtime = "compiled" if huge or row["compile"] == "True" else "eager"
    graph = "vit_huge_patch14-224" if huge else "vit_giant_patch14-224"
    return Described("torchao_optimizers", graph, batch, precision, setup, None, runtime)


def _torchtitan(row: Row) -> Described | str:
    """Sharded fp32 weights, cast to bf16 where they are used; float8 keeps them.

    Tensor parallelism splits embeddings, norms and block inputs along the sequence, and the loss
    along the vocabulary (`apply_tp` of parallelize_llama.py; `disable_loss_parallel` is off).
    """
    checkpointing = str(row["checkpointing"])
    if row["cp"] != 1:
        return "context parallelism is not modelled"
    if checkpointing.startswith("selective"):
        return "checkpointing by operator is not modelled"
    batch = row["batch"] if row["batch"] > 0 else TORCHTITAN_BATCH
    sizes = {8030000000.0: "llama_3.1_8b", 70600000000.0: "llama_3.1_70b"}
    graph = sizes.get(float(row["params"]))
    if graph is None:
        return NO_GRAPH
    setup = TrainingSetup(
        "adamw",
        checkpoint_blocks=checkpointing == "full",
        data_parallel=int(row["dp"]),
        tensor_parallel=int(row["tp"]),
        pipeline_parallel=int(row["pp"]),
        zero_stage=3,
        sequence_parallel=row["tp"] > 1,
    )
    runtime: Runtime = "compiled" if row["compile"] == "True" else "eager"
    name = f"{graph}-{int(float(row['seq_or_resolution']))}"
    part = "torchtitan" if row["source_repo"] == "pytorch/torchtitan" else "torchao_float8"
    return Described(part, name, int(batch), "amp_bf16", setup, None, runtime)


def _segment_anything(row: Row) -> Described | str:
    """The image encoder; the mask decoder adds only a few percent."""
    if row["compile"] != "False":
        return "runtime is not modelled"
    graph = f"sam_{str(row['model'])[4:]}_encoder-1024"
    forward = InferenceSetup("eager", "all", cache_tokens=0)
    precision = row["precision"]
    return Described("segment_anything", graph, int(row["batch"]), precision, inference=forward)


def _open_muse(row: Row) -> Described | str:
    """Pipelines in fp16 throughout, at the image size that the script asks for.

    For the latent consistency model, the script prints 1024 but sets no size, so the model draws
    768 pixels, its configured size. SDXL's decoder runs in fp32. Other pipelines are not in
    `diffusers` or not described.
    """
    graph = DIFFUSION.get(str(row["model"]))
    if graph is None:
        return PIPELINE
    forward = InferenceSetup("sdpa", "all", cache_tokens=0)
    return Described("open_muse", graph, int(row["batch"]), "fp16", inference=forward)


_SOURCES: Final[Mapping[str, Callable[[Row], Described | str]]] = {
    "transformers": _transformers,
    "torchtune": _torchtune,
    "peft": _peft,
    "ao": _torchao,
    "torchtitan": _torchtitan,
    "segment-anything-fast": _segment_anything,
    "diffusers": lambda row: PIPELINE,
    "open-muse": _open_muse,
    "deepspeed": lambda row: "batch size is not printed",
    "detectron2": lambda row: "no graph: proposals depend on the images",
}


METRICS: Final = (ALLOCATED, RESERVED, DEVICE)

BOARDS: Final[Mapping[str, str]] = PublishedMemory.facts["boards"]
UNNAMED: Final = "v100-sxm2-16gb"
"""Board of rows that name none: all are from the single-GPU guide, which prints its nvidia-smi."""


def memory_measurements(
    table: pd.DataFrame, graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> tuple[Measurements, NDArray[np.intp]]:
    """Rows of `table` as measured networks.

    Args:
        table: table `table` of the bundle.
        graphs: name -> operator graph at batch size 1.
        catalog: spec sheets of devices.

    Returns:
        m rows, and their indices in `table`, shape (m,). Values are peaks in MiB under the metric
        that was measured, and NaN under the two others. Rows with the same group
        `part` are scored together.
    """
    found = questions(table, graphs)
    kept = [row for row, setup in enumerate(found) if isinstance(setup, Described)]
    asked = [setup for setup in found if isinstance(setup, Described)]
    rows = table.iloc[kept]
    queries = [
        _query(setup, graphs[setup.graph], _device(row, catalog))
        for setup, row in zip(asked, rows.to_dict("records"), strict=True)
    ]
    measured, metric = peak_mib(rows), metrics(rows)
    values = {name: np.where(metric == name, measured, np.nan) for name in METRICS}
    groups = {
        "model": rows["model"],
        "family": families(rows["model"]),
        "graph": [setup.graph for setup in asked],
        "source": sources(rows),
        "phase": phases(rows),
        "part": [setup.part for setup in asked],
        "metric": metric,
        "row": rows["row_id"],
    }
    return Measurements.of(queries, values, groups), np.array(kept, dtype=np.intp)


def questions(table: pd.DataFrame, graphs: Mapping[str, OperatorGraph]) -> list["Described | str"]:
    """The set-up of each of n rows, or the reason why it is left out."""
    found: list[Described | str] = []
    columns = (reasons(table), sources(table), table.to_dict("records"))
    for why, source, row in zip(*columns, strict=True):
        answer = str(why) or described(str(source), row)
        if isinstance(answer, Described) and answer.graph not in graphs:
            answer = NO_GRAPH
        found.append(answer)
    return found


def left_out(table: pd.DataFrame, graphs: Mapping[str, OperatorGraph]) -> dict[str, int]:
    """Reason -> number of rows that are left out for it."""
    return dict(Counter(one for one in questions(table, graphs) if isinstance(one, str)))


def _query(setup: Described, graph: OperatorGraph, device: Device) -> Query:
    phase: Phase = "inference" if setup.training is None else "training"
    if setup.stored_bytes and graph.parameter_elements is not None:
        # The memory plan keeps weights that no operator reads in their stored precision.
        unread = int(setup.stored_bytes / ELEMENT_BYTES[setup.precision])
        graph = replace(graph, parameter_elements=graph.parameter_elements + unread)
    run = (graph, setup.batch_size, setup.precision, phase, setup.training, setup.inference)
    return Query(Network(*run), device, Software(runtime=setup.runtime))


def _device(row: Mapping[object, object], catalog: DeviceCatalog) -> Device:
    if isinstance(row["device"], str):
        return catalog.get(row["device"])
    named = row["gpu"]
    return catalog.get(BOARDS.get(named, named) if isinstance(named, str) else UNNAMED)


class PublishedMemoryProtocols(dp.DatasetProtocols):
    """Allocated, reserved or device memory, as measured, by source and kind of set-up."""

    dataset = "published_memory"
    held_out_by: ClassVar = {
        "published": (),
        "unseen_model": ("family",),
        "unseen_source": ("source",),
    }
    fits_any_folder = True
    unseen: ClassVar = {
        "unseen_model": {"family": dp.NEW, "source": dp.KNOWN},
        "unseen_model_and_source": {"family": dp.NEW, "source": dp.NEW},
        "unseen_source": {"family": dp.KNOWN, "source": dp.NEW},
    }

    def predictor(self, seed: int = 0) -> Predictor:
        """`CalibratedMemory` on the bundled `Memory`; only the intervals are fitted."""
        return CalibratedMemory(bundled_memory())

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All usable rows with an operator graph."""
        return memory_measurements(bundle.table("table"), graphs_of(bundle), catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """`published` without calibration on these rows, then families and sources held out."""
        rows, _ = self.measured(bundle, catalog)
        yield dp.Fold(
            "published",
            rows.take(np.array([], dtype=np.intp)),
            list(self.tasks("published", rows, None)),
        )
        yield from super().folds(bundle, catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each metric, part and phase."""
        scores = [Capacity(VISION_BIN_MIB)]
        for metric in METRICS:
            of_metric = held_out.take(held_out.groups["metric"] == metric)
            name = f"{protocol}/{{part}}_{{phase}}"
            yield from dp.tasks_by(of_metric, ("part", "phase"), name, metric, scores=scores)

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, int]:
        """Rows that are not exact measurements, or whose set-up no query can express."""
        return left_out(bundle.table("table"), graphs_of(bundle))


def graphs_of(bundle: Bundle) -> dict[str, OperatorGraph]:
    """Operator graphs by name, from the bundle or, if it has none, from the package."""
    return read_graphs(PublishedMemory().table_of(bundle, "graphs"))


def bundled_memory() -> Memory:
    """The bundled `Memory`.

    Raises:
        BadArtifact: the installation is damaged, or contains no such predictor.
    """
    return dp.bundled_part(CalibratedMemory).base
