"""NeuSight operator and network latencies on eleven GPUs, fp32.

One row of `ops` is one kernel: mean of the five fastest of 25 CUDA-event timings, launch included.
The source calls the contraction N and the output width K; here `k` is the contraction.
Source: sitar-lab/NeuSight at 6945927d, MIT. Paper: ASPLOS 2025, arXiv 2407.13853.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.split import Split, is_one_of
from forerun.data.upstream.downloads import RawFiles

ROOT = "scripts/asplos"
GRAPH_KEYS = ("model", "mode", "seqlen", "batch", "option")
DIMENSIONS = ("batch", "m", "n", "k", "h", "c_in", "c_out", "ksize", "in_hw", "stride", "pad")
PREDICTORS = {"neusight": "neusight", "roofline": "roofline", "habitat": "habitat"} | {
    "lietal": "micro"
}
NVIDIA_SOFTWARE = "torch2.1.0+cu121"
AMD_SOFTWARE = "torch2.4.1+rocm"
KERNEL_CHARACTERS = 80

_CLASS = {"bmm": "bmm", "linear": "linear", "conv": "conv", "ln": "ln", "softmax": "softmax"}
_TEST_FILES = ("bmm", "linear", "elem", "ln", "softmax")
_TILE = r"(?:sgemm_|_MT)(\d+)x(\d+)"
_RUN = re.compile(
    r"(?P<model>.+?)-(?P<mode>inf|train)-(?P<seqlen>\d+)-(?P<batch>\d+)(?:-(?P<option>.+))?"
)
_LAYER = re.compile(r"_(?:layer|layers|h|block)_(\d+)(?:_|$)")
_FINAL_NORM = re.compile(r"_(?:ln_f|final_layer_norm)$")


def read_ops(raw: RawFiles) -> "pd.DataFrame":
    """Operator timings of all devices: the `ops` table."""
    parts = [
        _timings(raw, path, split)
        for split, pattern in (
            ("train", f"{ROOT}/data/dataset/train/collect/*.csv"),
            *(("test", f"{ROOT}/data/dataset/test/{name}.csv") for name in _TEST_FILES),
            ("train", f"{ROOT}/data/dataset_amd/train/collect/*.csv"),
            ("test", f"{ROOT}/data/dataset_amd/test/collect/*.csv"),
        )
        for path in raw.matching(pattern)
    ]
    if not parts:
        return pd.DataFrame()
    words = ("device", "op_class", "op", "split_published", "dtype", "software", "kernel")
    return pd.concat(parts, ignore_index=True).astype(dict.fromkeys(words, "category"))


def _timings(raw: RawFiles, path: str, split: str) -> "pd.DataFrame":
    """Rows of one file of timings.

    Raises:
        KeyError: a column is missing.
    """
    table = raw.table(path)
    op = table["OPName"].astype(str).str.strip()
    op_class = op.map(_CLASS).fillna("elementwise")
    kind = "convolutions" if "Input_Channel" in table else "rows" if "H" in table else "products"
    names = NeuSight.facts["dimensions"][kind]
    dims = table.rename(columns=names).reindex(columns=DIMENSIONS).astype("Int32")
    tiles = table["Kernel Name"].astype(str).str.extract(_TILE)
    return pd.DataFrame(
        {
            "device": table["Device"].astype(str).str.strip(),
            "op_class": op_class,
            "op": op,
            "split_published": split,
            "in_published_filter": _published_filter(op_class, dims),
            "dtype": "fp32",
            "software": AMD_SOFTWARE if "dataset_amd" in path else NVIDIA_SOFTWARE,
            **{name: dims[name] for name in DIMENSIONS},
            "latency_ms": table["Latency"].astype("float64"),
            "kernel": table["Kernel Name"].astype(str).str[:KERNEL_CHARACTERS],
            "tile_a": tiles[0].astype("Float64").astype("Int32"),
            "tile_b": tiles[1].astype("Float64").astype("Int32"),
            "grid_blocks": table[["Grid x", "Grid y", "Grid z"]].prod(axis=1).astype("int64"),
            "block_threads": table[["Block x", "Block y", "Block z"]].prod(axis=1).astype("int32"),
        }
    )


def _published_filter(op_class: "pd.Series[str]", dims: "pd.DataFrame") -> "pd.Series[bool]":
    """Rows that the paper trains on, which exclude small vector operators."""
    least = op_class.map({"elementwise": 8192, "ln": 4096, "softmax": 4096})
    large = (dims["batch"] > least) & (dims["h"] > 512)
    return (least.isna() | large.fillna(False)).astype(bool)


def read_devices(raw: RawFiles, trained: frozenset[str]) -> "pd.DataFrame":
    """Spec sheets as given in the paper: the `devices` table."""
    rows = []
    for path in raw.matching(f"{ROOT}/data/device_configs/*.json"):
        sheet = raw.json(path)
        key = _stem(path)
        rows.append(
            {
                "device_key": key,
                "device": sheet["Device"],
                "mem_gb": sheet["Dev_Mem"],
                "mem_bw_gbs": sheet["Mem_Bw"],
                "num_sm": sheet["Num_Sm"],
                "cores_per_sm": sheet["Core_Per_SM"],
                "freq_mhz": sheet["Freq"],
                "fp32_gflops_vec": sheet.get("SingleFLOPsVEC", sheet.get("SingleFLOPs")),
                "fp32_gflops_mm": sheet.get("SingleFLOPsMM", sheet.get("SingleFLOPs")),
                "l2_mb": sheet["L2Cache"],
                "role": "train" if sheet["Device"] in trained else "unseen",
            }
        )
    return pd.DataFrame(rows)


def read_models(raw: RawFiles) -> dict[str, Any]:
    """Model name -> the part of its Hugging Face configuration that sets its shapes."""
    found = {}
    for path in raw.matching(f"{ROOT}/data/DLmodel_configs/*.json"):
        content = raw.json(path)
        kept = content.keys() & set(NeuSight.facts["config_keys"])
        found[_stem(path)] = {k: v for k, v in content.items() if k in kept}
    return found


def read_e2e(raw: RawFiles) -> "pd.DataFrame":
    """Whole-network labels with the published predictions: the `e2e` table."""
    rows = []
    for path in raw.matching(f"{ROOT}/label/*.json"):
        device, name = path.split("/")[-2], _stem(path)
        label = raw.json(path)
        row = {"device_key": device, **_run(name)}
        row["num_layer"] = float(label["num_layer"])
        row["e2e_latency_ms"] = float(label["e2e_latency"])
        row["fw_latency_ms"] = float(label["fw_latency"])
        row["bw_latency_ms"] = float(label["bwall_latency"])
        for column, folder in PREDICTORS.items():
            guess = f"{ROOT}/results/prediction/{device}/{folder}/{name}.json"
            there = guess in raw.paths
            value = raw.json(guess)["e2e_latency"] if there else float("nan")
            row[f"pub_{column}_e2e_ms"] = float(value)
        rows.append(row)
    return pd.DataFrame(rows)


def read_opgraphs(raw: RawFiles, models: dict[str, Any]) -> "pd.DataFrame":
    """Operator graphs without timings: the `opgraphs` table."""
    columns = NeuSight.facts["columns"]["opgraphs"]
    parts = []
    for path in raw.matching(f"{ROOT}/results/opgraph/*.csv"):
        run = _run(_stem(path))
        table = raw.table(path, dtype=str, keep_default_na=False)
        table = _with_keys(table, columns, run)
        expanded = bool(run["option"])
        repeat = 1 if expanded else _repeats(table["name"], _layers(models.get(run["model"], {})))
        parts.append(table.assign(repeat=repeat))
    if not parts:
        return pd.DataFrame(columns=[*GRAPH_KEYS, "idx", *columns.values(), "repeat"])
    graphs = pd.concat(parts, ignore_index=True)
    return graphs.astype({"idx": "int64", "repeat": "int64"})


def read_graph_ops(raw: RawFiles, opgraphs: "pd.DataFrame") -> "pd.DataFrame":
    """Nodes of the graphs as timed on each device: the `graph_ops` table.

    Timings without a graph are dropped.
    """
    columns = NeuSight.facts["columns"]["graph_ops"]
    parts = []
    for path in raw.matching(f"{ROOT}/label/*.csv"):
        run = _run(_stem(path))
        keys = {"device_key": path.split("/")[-2], **{k: run[k] for k in GRAPH_KEYS[:4]}}
        parts.append(_with_keys(raw.table(path), columns, keys))
    if not parts:
        return pd.DataFrame()
    nodes = pd.concat(parts, ignore_index=True)
    plain = opgraphs[opgraphs["option"] == ""]
    shared = [*GRAPH_KEYS[:4], "name"]
    extra = ["op_class", "fw_ops", "bw_ops", "acc_ops", "repeat"]
    joined = nodes.merge(plain[shared + extra], on=shared, how="inner", validate="m:1")
    texts = ["device_key", "model", "mode", "name", "fx_op", "target", "input_shapes"]
    texts += ["output_shape", "dtype", "op_class", "fw_ops", "bw_ops", "acc_ops"]
    return joined.astype({"idx": "int64", **dict.fromkeys(texts, "string")})


def _with_keys(
    table: "pd.DataFrame", columns: Mapping[str, str], keys: Mapping[str, Any]
) -> "pd.DataFrame":
    """Columns under their new names, after the keys of the graph and the node's number."""
    kept = table.rename(columns=columns)[list(columns.values())]
    return kept.assign(**keys, idx=range(len(kept)))[[*keys, "idx", *kept]]


def _run(name: str) -> dict[str, Any]:
    """`gpt2_large-train-1024-4-dp4` as model, mode, sequence length, batch size and option."""
    found = _RUN.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} does not name a run")
    return {
        "model": found["model"],
        "mode": "inference" if found["mode"] == "inf" else "training",
        "seqlen": int(found["seqlen"]),
        "batch": int(found["batch"]),
        "option": found["option"] or "",
    }


def _layers(config: dict[str, Any]) -> int:
    """Number of transformer layers; 1 if the configuration does not give it."""
    for key in ("num_hidden_layers", "n_layer", "num_layers"):
        if key in config:
            return int(config[key])
    return 1


def _repeats(names: "pd.Series[str]", layers: int) -> list[int]:
    """Number of occurrences of each node: a graph with only layer 0 represents all layers.

    The layer extends from its first named node to the final norm, or to its last named node.
    """
    found = [_LAYER.search(name) for name in names]
    inside = [i for i, match in enumerate(found) if match]
    if not inside or any(match and int(match[1]) > 0 for match in found):
        return [1] * len(names)
    norms = [i for i, name in enumerate(names) if _FINAL_NORM.search(name) and not found[i]]
    end = min((i for i in norms if i > inside[-1]), default=inside[-1] + 1)
    return [layers if inside[0] <= i < end else 1 for i in range(len(names))]


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].rsplit(".", 1)[0]


NVIDIA_TRAINING: Final = (
    "Tesla P4",
    "Tesla P100-PCIE-16GB",
    "Tesla V100-PCIE-32GB",
    "Tesla T4",
    "NVIDIA A100-PCIE-40GB",
)
AMD_TRAINING: Final = ("AMD Instinct MI100", "AMD Instinct MI210")
OPERATOR_QUERY: Final = ("device", "op", "dtype", "software", *DIMENSIONS)

_WINOGRAD = 4.0
"""Winograd's F(4x4, 3x3) needs a quarter of the multiplications (Lavin and Gray 2016)."""
_LAUNCH_BOUND_MS = 0.02


class NeuSight(Dataset, declared="neusight"):
    """Trained on operators of five GPUs, evaluated on unseen GPUs and on whole networks."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`ops`, `devices`, `e2e`, `opgraphs` and `graph_ops`, as far as their files are there."""
        opgraphs = read_opgraphs(raw, read_models(raw))
        trained = frozenset((*NVIDIA_TRAINING, *AMD_TRAINING))
        tables = {
            "ops": read_ops(raw),
            "devices": read_devices(raw, trained),
            "e2e": read_e2e(raw),
            "opgraphs": opgraphs,
            "graph_ops": read_graph_ops(raw, opgraphs),
        }
        return {name: frame for name, frame in tables.items() if len(frame)}

    def documents(self, raw: RawFiles) -> dict[str, Any]:
        """`models`: transformer configurations by name."""
        return {"models": read_models(raw)}

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_device` (NVIDIA), `unseen_device_amd`, `leave_one_gpu_out/DEVICE`, `end_to_end`.

        The published protocol is `unseen_device`: it trains on the train rows of five GPUs and
        holds out the test rows of every other NVIDIA GPU (or GPU unknown to the paper). Train rows
        of other GPUs, such as the convolutions of the A100 80GB, are not used. End-to-end rows are
        never training rows.
        """
        splits = []
        if bundle.has("ops"):
            splits += _operator_splits(bundle.table("ops"))
        if bundle.has("e2e"):
            rows = len(bundle.table("e2e"))
            nobody, all_rows = np.zeros(rows, dtype=np.bool_), np.ones(rows, dtype=np.bool_)
            splits.append(Split("end_to_end", "e2e", nobody, all_rows))
        return [split for split in splits if split.held_out.any()]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `ops`: duplicates, impossible values, throttled groups."""
        return self.flags_of(bundle.table("ops"), bundle.table("devices"))

    def flags_of(self, ops: "pd.DataFrame", devices: "pd.DataFrame") -> "pd.DataFrame":
        """Doubtful rows of a selection, so that training rows are checked without held-out rows."""
        bound, floor = bounds_ms(ops, devices)
        latency = ops["latency_ms"].to_numpy(dtype=np.float64)
        utilisation = np.where(bound > _LAUNCH_BOUND_MS, bound / latency, np.nan)
        return check(
            ops,
            Quantities(time_ms=latency, bound_ms=floor, utilisation=utilisation),
            same=(*OPERATOR_QUERY, "latency_ms"),
            groups=("device", "op_class", "split_published"),
        )


def bounds_ms(
    ops: "pd.DataFrame", devices: "pd.DataFrame"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Roofline time of each operator from the paper's spec sheets, and a strict lower bound.

    The lower bound only counts arithmetic, because a small tensor may stay in cache and a
    convolution may use Winograd's algorithm. Both are NaN for devices without a spec sheet.
    """
    dims = {d: ops[d].fillna(0).to_numpy(dtype=np.float64) for d in DIMENSIONS}
    b, m, n, k, h = (dims[d] for d in ("batch", "m", "n", "k", "h"))
    kind = ops["op_class"].astype(str).to_numpy()
    gemm, conv = np.isin(kind, ["bmm", "linear"]), kind == "conv"
    out = (dims["in_hw"] + 2 * dims["pad"] - dims["ksize"]) // np.maximum(dims["stride"], 1) + 1
    weights = dims["c_in"] * dims["c_out"] * dims["ksize"] ** 2
    flops = np.where(gemm, 2 * b * m * n * k, np.where(conv, 2 * b * out**2 * weights, b * h))
    images = b * (dims["c_in"] * dims["in_hw"] ** 2 + dims["c_out"] * out**2) + weights
    operands = 2 + is_one_of(ops["op"], ("add", "mul", "pow", "div"))
    shared = np.where(kind == "linear", 1, b)
    elements = np.where(gemm, b * m * (k + n) + shared * k * n, operands * b * h)
    sheets = devices.drop_duplicates("device").set_index("device")
    of_row = sheets.reindex(ops["device"].astype(str))
    matrix = of_row["fp32_gflops_mm"].to_numpy(dtype=np.float64)
    vector = of_row["fp32_gflops_vec"].to_numpy(dtype=np.float64)
    arithmetic = flops / (np.where(gemm | conv, matrix, vector) * 1e6)
    traffic = 4 * np.where(conv, images, elements) / of_row["mem_bw_gbs"].to_numpy(float) / 1e6
    return np.maximum(arithmetic, traffic), np.where(conv, arithmetic / _WINOGRAD, arithmetic)


def _operator_splits(ops: "pd.DataFrame") -> list[Split]:
    device, part = ops["device"], ops["split_published"].astype(str)
    train_part, tested = is_one_of(part, ("train",)), is_one_of(part, ("test",))
    amd = np.asarray(device.astype(str).str.startswith("AMD"), dtype=np.bool_)

    def split(protocol: str, train: NDArray[np.bool_], held_out: NDArray[np.bool_]) -> Split:
        return Split(protocol, "ops", train, held_out, ("device",), OPERATOR_QUERY)

    nvidia_trained, amd_trained = (
        is_one_of(device, NVIDIA_TRAINING),
        is_one_of(device, AMD_TRAINING),
    )
    splits = [
        split("unseen_device", train_part & nvidia_trained, tested & ~nvidia_trained & ~amd),
        split("unseen_device_amd", train_part & amd_trained, tested & ~amd_trained & amd),
    ]
    for name in NVIDIA_TRAINING:
        out = is_one_of(device, (name,))
        train = train_part & nvidia_trained & ~out
        splits.append(split(f"leave_one_gpu_out/{name}", train, tested & out))
    return splits
