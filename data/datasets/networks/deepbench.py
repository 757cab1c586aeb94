"""Times of matrix products, convolutions and recurrent layers on GPUs of 2015 to 2019.

Every device ran the same shapes. Times are means over many consecutive launches, so that launch
overhead is mostly hidden, and are given in whole microseconds.
Source: baidu-research/DeepBench at da81ba78, `results/*.xlsx`, Apache-2.0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Mask, Names
from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.quality import with_findings
from forerun.data.split import is_one_of
from forerun.data.upstream.downloads import RawFiles
from forerun.data.upstream.plain_files import Cell, all_sheets

TABLES: Final = ("gemm", "conv", "rnn")
ROUNDED_ABOVE: Final = 0.02
"""A time is flagged if a step of 1 us is more than this share of it."""
STEP_MS: Final = 0.001

_RESULTS = "results/*.xlsx"
_DEVICE = re.compile(r"DeepBench_(?:NV_|AMD_|IA_)?(.+)\.xlsx$")
_GEMM = ("m", "n", "k", "a_t", "b_t", "latency_ms")
_CONV = (
    *("w", "h", "c", "batch", "k", "r", "s"),
    *("pad_h", "pad_w", "stride_v", "stride_h", "fwd_ms", "bwd_input_ms", "bwd_weight_ms"),
)
_RNN = ("hidden", "batch", "timesteps", "fwd_ms", "bwd_ms", "bwd_input_ms", "bwd_weight_ms")


class DeepBench(Dataset, declared="deepbench"):
    """Leave one GPU out, and leave one architecture out."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`gemm`, `conv` and `rnn`; sparse products and inference convolutions are left out."""
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        for path in raw.matching(_RESULTS):
            for sheet in all_sheets(raw.read(path), path).values():
                for table, row in _rows(sheet, path):
                    rows[table].append(row)
        columns = {
            "gemm": ("device", "suite", "precision", "precision_note", "sparse", *_GEMM),
            "conv": ("device", "suite", "precision", "precision_note", *_CONV),
            "rnn": ("device", "suite", "cell", "precision", *_RNN),
        }
        tables = {}
        for name, listed in rows.items():
            if listed:
                frame = pd.DataFrame(listed).reindex(columns=list(columns[name]))
                whole = "n" if name == "gemm" else "batch"
                tables[name] = frame.drop_duplicates(ignore_index=True).astype({whole: "int64"})
        return tables

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`generation`: the architecture if several devices share it, else the device."""
        of = self.facts["generations"]
        return {"generation": np.array([of.get(d, d) for d in rows["device"].astype(str)])}

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Rows of devices that share their architecture with others."""
        return {"shared": is_one_of(rows["device"], self.facts["generations"])}

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `gemm`: duplicates, and times of only a few clock steps."""
        time_ms = bundle.table("gemm")["latency_ms"].to_numpy(dtype=np.float64)
        coarse, found = time_ms < STEP_MS / ROUNDED_ABOVE, super().flags(bundle)
        return with_findings(found, coarse, "rounded", "its time is a few whole microseconds")


def _rows(sheet: list[list[Cell]], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(table, row) of each measurement of one sheet.

    A section starts with its name in the first column; its headings are in the same row or in the
    next.
    """
    found = _DEVICE.search(path)
    suite = "train" if "/train/" in path else "inference"
    section, note = "", ""
    places: dict[str, int] = {}
    for row in sheet:
        if row and row[0] == "Precision":
            note = str(row[1])
        if row and isinstance(row[0], str):
            section, places = row[0], {}
        if not places:
            places = _places(section, row)
            continue
        cells = {name: row[at] if at < len(row) else None for name, at in places.items()}
        if found is None or not _is_measured(cells):
            continue
        key = {"device": found[1], "suite": suite, "precision": _precision(note)}
        if section.startswith("Dense"):
            yield "gemm", {**key, "precision_note": note, "sparse": False, **cells}
        elif section.startswith("Recurrent"):
            cell = section.rpartition(" ")[2]
            yield "rnn", {**key, "cell": cell, **_numbers(cells)}
        elif suite == "train":
            yield "conv", {**key, "precision_note": note, **_numbers(cells)}


def _places(section: str, row: Sequence[Cell]) -> dict[str, int]:
    """Column name -> position, if this row holds the section's headings."""
    listed: Mapping[str, dict[str, str]] = DeepBench.facts["headings"]
    known = next((headings for name, headings in listed.items() if section.startswith(name)), {})
    places: dict[str, int] = {}
    for place, cell in enumerate(row):
        heading = str(cell or "").strip().lower()
        name_of = known.get(heading) or known.get(heading.partition(" (")[0].strip())
        if place > 0 and name_of and name_of not in places:
            places[name_of] = place
    return places if len(places) > 2 else {}


def _is_measured(cells: Mapping[str, Cell]) -> bool:
    """Whether the row has sizes and a time; `Not Supported` and empty cells do not count."""
    time = cells.get("latency_ms", cells.get("fwd_ms"))
    size = cells.get("m", cells.get("w", cells.get("hidden")))
    return isinstance(time, float) and isinstance(size, float)


def _numbers(cells: Mapping[str, Cell]) -> dict[str, float]:
    """Cells as numbers; cells marked as not applicable are missing."""
    return {n: value if isinstance(value, float) else np.nan for n, value in cells.items()}


def _precision(note: str) -> str:
    if "int8" in note.lower():
        return "int8"
    return "fp16_mixed" if note.startswith("16 bit") else "fp32"
