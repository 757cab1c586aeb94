"""Layout of the result tables in README and docs: which tasks and scores, with which headings.

The figures themselves are not written here; `results_tables` takes them from stored evaluations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """A column of scores.

    Attributes:
        heading: heading of the column.
        field: field of a stored row, such as `mape` or `baselines.roofline`.
        unit: unit that follows each figure.
        decimals: number of decimals.
        competes: whether the best of these columns is set in bold.
    """

    heading: str
    field: str
    unit: str = "%"
    decimals: int = 1
    competes: bool = False

    def text(self, value: float | None) -> str:
        """The value as text; empty for None."""
        if value is None:
            return ""
        decimals = 0 if abs(value) >= 1000 else self.decimals
        return f"{value:,.{decimals}f} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: one task.

    Attributes:
        text: description of the held-out rows.
        task: `protocol/part`.
        device: the only device of the rows; None for several.
        metric: the metric, for tasks with several; None for the only one.
    """

    text: str
    task: str
    device: str | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class FigureTable:
    """One table.

    Attributes:
        dataset: dataset whose evaluation the table presents.
        heading: heading of the first column.
        lines: the tasks, in order.
        columns: the scores, in order.
    """

    dataset: str
    heading: str
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]


INTERVALS: Final = (
    Column("90 % intervals hold", "coverage_90"),
    Column("high / low", "median_interval_ratio", "", 2),
)
HELD: Final = (
    Column("measured <= high", "below_high"),
    Column("over-allocated", "over_allocation"),
)
"""For capacities: how often the upper end suffices, and its mean excess over the measured value."""
ROWS: Final = Column("n", "n", "", 0)
ERROR: Final = Column("forerun", "mape", competes=True)
MEDIAN: Final = Column("its median", "median_ape")


def _against(**baselines: str) -> tuple[Column, ...]:
    """Columns: number of rows, our error, errors of baselines (name -> heading), our intervals."""
    others = (
        Column(heading.replace("_", " "), f"baselines.{name}", competes=True)
        for name, heading in baselines.items()
    )
    return (ROWS, ERROR, *others, *INTERVALS)


PRO_6000: Final = "rtx-pro-6000-max-q"
FEW_MODELS: Final = "unseen_device_few_models"
TIMM_BENCH: Final = FigureTable(
    "timm_bench",
    "held-out rows",
    (
        Line("unseen GPU, eager", "unseen_device/eager"),
        Line("unseen GPU, compiled", "unseen_device/compiled"),
        Line("it, ten models measured, eager", f"{FEW_MODELS}/eager", PRO_6000),
        Line("it, ten models measured, compiled", f"{FEW_MODELS}/compiled", PRO_6000),
        Line("of these, other families, eager", f"{FEW_MODELS}_and_families/eager", PRO_6000),
        Line("of these, other families, compiled", f"{FEW_MODELS}_and_families/compiled", PRO_6000),
        Line("unseen GPU and families, eager", "unseen_device_and_family/eager"),
        Line("unseen GPU and families, compiled", "unseen_device_and_family/compiled"),
        Line("unseen models, eager, three GPUs", "unseen_model/eager"),
        Line("unseen models, compiled, three GPUs", "unseen_model/compiled"),
        Line("unseen families, eager, three GPUs", "unseen_family/eager"),
        Line("unseen families, compiled, three GPUs", "unseen_family/compiled"),
        Line("unseen families, training, eager", "unseen_family/eager_training"),
        Line("unseen families, compiled, two CPUs", "unseen_family/compiled_cpu"),
    ),
    _against(roofline="roofline", constant="constant", median_offset="median offset"),
)
A100: Final = "a100-pcie-80gb"
NEUSIGHT: Final = FigureTable(
    "neusight",
    "held-out rows",
    (
        Line("38 whole transformers on six NVIDIA GPUs", "published/e2e"),
        Line("seven of them on the unseen A100 80 GB", "unseen_device/e2e", A100),
        Line("fused transformers", "published/e2e_fused"),
        Line("transformers on three AMD GPUs", "published/e2e_amd"),
        Line("batched products, A100 80 GB", "unseen_device/bmm", A100),
        Line("linear, A100 80 GB", "unseen_device/linear", A100),
        Line("elementwise, A100 80 GB", "unseen_device/elementwise", A100),
        Line("softmax, A100 80 GB", "unseen_device/softmax", A100),
        Line("layer norm, A100 80 GB", "unseen_device/ln", A100),
        Line("linear, V100 left out", "leave_one_gpu_out/linear", "v100-pcie-32gb"),
        Line("batched products, V100 left out", "leave_one_gpu_out/bmm", "v100-pcie-32gb"),
        Line("linear, T4 left out", "leave_one_gpu_out/linear", "t4"),
        Line("batched products, T4 left out", "leave_one_gpu_out/bmm", "t4"),
    ),
    _against(published_neusight="NeuSight", roofline="roofline"),
)
TORCH_OP_ENERGY: Final = FigureTable(
    "torch_op_energy",
    "held-out rows",
    (
        Line("unseen operators, A30", "unseen_operator/power", "a30"),
        Line("unseen operators, RTX 2080 Ti", "unseen_operator/power", "rtx-2080-ti"),
        Line("unseen GPU, operators, A30", "unseen_device/power", "a30"),
        Line("unseen GPU, operators, RTX 2080 Ti", "unseen_device/power", "rtx-2080-ti"),
        *(
            Line(f"{words}, training, {name}", f"{protocol}/training", device)
            for words, protocol in (
                ("unseen networks", "unseen_network"),
                ("unseen GPU", "unseen_device"),
            )
            for name, device in (
                ("A30", "a30"),
                ("A40", "a40"),
                ("P100", "p100-pcie-16gb"),
                ("V100", "v100-pcie-32gb"),
            )
        ),
        Line("unseen GPU, networks in inference, A30", "unseen_device/inference", "a30"),
    ),
    _against(
        operator_boosters="boosters of operators",
        constant_share="0.9 of design power",
        median_share="median share",
        constant="constant",
    ),
)
GPUMEMNET: Final = FigureTable(
    "gpumemnet",
    "held-out rows",
    (
        Line("runs of families never seen", "unseen_family/training_peak"),
        Line("transformers, trained on CNNs", "convolutional_teaches/training_peak"),
        Line("CNNs, trained on transformers", "transformer_teaches/training_peak"),
        Line("perceptrons, three random folds", "mlp_3fold/peak"),
    ),
    (
        *(ROWS, ERROR, MEDIAN),
        Column("FakeTensor", "baselines.published_faketensor", competes=True),
        Column("accelerate", "baselines.published_accelerate", competes=True),
        Column("right bin (8 GB; perceptrons 1 GB)", "bin_accuracy"),
        Column("below the p95 bound", "below_high"),
        Column("over-allocated", "over_allocation"),
        *INTERVALS,
    ),
)
MLENERGY: Final = FigureTable(
    "mlenergy",
    "models left out whole",
    (
        Line("watts a device", "leave_one_model_out/power_w"),
        Line("joules a token", "leave_one_model_out/energy_per_token_j"),
        Line("tokens a second", "leave_one_model_out/tokens_per_s"),
        Line("joules a picture or video", "leave_one_model_out/energy_per_sample_j"),
        Line("watts, without facts of config.json", "leave_one_model_out_without_facts/power_w"),
        Line(
            "joules a token, without them", "leave_one_model_out_without_facts/energy_per_token_j"
        ),
    ),
    _against(
        published_bound="analytic bound",
        published_median_share_of_tdp="median share of design power",
        constant="constant",
    ),
)
MLPERF_INFERENCE: Final = FigureTable(
    "mlperf_inference",
    "later rounds",
    (
        Line("throughput, with a history", "later_rounds/throughput"),
        Line("throughput, without one", "later_rounds/throughput_new"),
        Line("latency, with a history", "later_rounds/latency"),
        Line("latency, without one", "later_rounds/latency_new"),
        Line("power at the wall, with a history", "later_rounds/wall_power"),
        Line("throughput, accelerator unseen", "unseen_accelerator/throughput_new"),
    ),
    (
        *(ROWS, ERROR, MEDIAN),
        Column("median of the history", "baselines.median", competes=True),
        Column("its median error", "baselines_median_ape.median"),
        Column("nearest row", "baselines.nearest", competes=True),
        *INTERVALS,
    ),
)
CONTENTION: Final = FigureTable(
    "contention",
    "held-out rows",
    tuple(
        Line(f"{words}, {clock}", f"{protocol}/{metric}", None, metric)
        for words, protocol in (
            ("kinds of program never seen", "leave_one_family_out"),
            ("the same, steady programs", "leave_one_family_out_steady"),
            ("each profiled next to one load", "leave_one_family_out_profiled"),
            ("neighbours never seen", "leave_one_corunner_out"),
            ("the same, steady programs", "leave_one_corunner_out_steady"),
            ("pairs of programs, asked before they met", "pairs_ahead"),
            ("neighbours that come and go, trained on steady ones", "static_to_dynamic"),
        )
        for clock, metric in (("CPU time", "p_cpu"), ("by the wall", "p_wall"))
    ),
    (
        ROWS,
        Column("forerun", "mae", "", 3, competes=True),
        Column("unslowed", "mae_rule_unslowed", "", 3, competes=True),
        Column("fair share", "mae_rule_fair_share", "", 3, competes=True),
        Column("and its reference", "mae_rule_fair_share_of_reference", "", 3, competes=True),
        Column("median by neighbour", "mae_rule_neighbour_median", "", 3, competes=True),
        Column("program mean", "mae_program_mean", "", 3, competes=True),
        Column("program median", "mae_program_median", "", 3, competes=True),
        Column("repeats differ by", "mae_of_repeats", "", 3),
        Column("on rows", "repeated_rows", "", 0),
        Column("with an interval", "share_with_interval"),
        *INTERVALS,
        Column("class: false alarms", "false_alarms_of_class"),
        Column("misses", "misses_of_class"),
    ),
)
CLOUDPROPHET: Final = FigureTable(
    "cloudprophet_runs",
    "left out in turn",
    (
        Line("an experiment", "leave_one_experiment_out/p_wall"),
        Line("an application", "leave_one_application_out/p_wall"),
    ),
    (
        ROWS,
        Column("forerun", "mae", "", 4, competes=True),
        Column("unslowed", "mae_rule_unslowed", "", 4, competes=True),
        Column("fair share", "mae_rule_fair_share", "", 4, competes=True),
        Column("median by neighbour", "mae_rule_neighbour_median", "", 4, competes=True),
        Column("median of the application", "mae_rule_application_median", "", 4, competes=True),
        *INTERVALS,
    ),
)
TABLES: Final[Mapping[str, FigureTable]] = {
    table.dataset: table
    for table in (
        *(TIMM_BENCH, NEUSIGHT, TORCH_OP_ENERGY, GPUMEMNET, MLENERGY, MLPERF_INFERENCE),
        CONTENTION,
        CLOUDPROPHET,
    )
}
"""Tables by the name of their dataset."""
