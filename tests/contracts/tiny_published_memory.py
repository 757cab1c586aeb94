"""Made-up rows of published memory tables: three families of two sources, and rows left out."""

from typing import Any

import pandas as pd

from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.graph import Operator, OperatorGraph
from tests.contracts.tiny_published import filled_table, named_graphs, packaged_files

TRAINING = "training (forward+backward, no optimizer step)"
USUAL = {
    **{"kind": "measured", "model": "google-bert/bert-base-uncased", "task": TRAINING},
    **{"method": "full", "framework": "transformers", "source_path": "docs/model.md"},
    **{"source_repo": "huggingface/transformers", "source_commit": "0" * 40, "source_line": 1.0},
    **{"precision": "fp16", "batch": 4.0, "seq_or_resolution": "256", "attention": "sdpa"},
    **{"device": "a100-sxm-80gb", "gpu": "a100-sxm-80gb", "gpu_count": 1.0, "peak_unit": "MB(1e6)"},
    **{"tool": "torch.cuda.max_memory_allocated x 1e-6 (script read)", "below_weights": False},
    **{"peak_printed": 1000.0, "peak_mib": 953.7},
}
SEGMENT = {
    **{"model": "SAM-vit_b", "task": "inference over COCO images", "method": "inference"},
    **{"source_repo": "pytorch-labs/segment-anything-fast", "precision": "fp32", "batch": 8.0},
    **{"tool": "torch.cuda max_memory_allocated / 2**20", "peak_unit": "MiB", "compile": "False"},
    **{"peak_printed": 953.7, "seq_or_resolution": "1024"},
}
NAMES = ("bert_base_mlm-256-sum", "pythia_410m-128-sdpa", "sam_vit_b_encoder-1024")


def memory_table(*rows: dict[str, Any]) -> pd.DataFrame:
    """A `table` of these rows; what a row does not say is a usual row of BERT in training."""
    return filled_table(PublishedMemory(), USUAL, rows)


def memory_rows() -> pd.DataFrame:
    """Two families of one source and one of another, twice each, and some rows left out."""
    pythia = {"model": "EleutherAI/pythia-410m-deduped", "seq_or_resolution": "128"}
    return memory_table(
        *({"batch": batch} for batch in (4.0, 8.0)),
        *({**pythia, "batch": batch} for batch in (1.0, 2.0)),
        *({**SEGMENT, "batch": batch} for batch in (1.0, 8.0)),
        {"kind": "rule of thumb"},
        {"kind": "oom", "peak_printed": None, "peak_mib": None, **pythia},
        {},
        {"model": "somebody/else"},
    )


def memory_graphs() -> pd.DataFrame:
    """A `graphs` table of one linear layer under the names of three real networks."""
    shape = ((1, 256, 64),)
    linear = Operator("linear", "aten.linear", shape, shape, 64 * 64)
    return named_graphs(NAMES, OperatorGraph((linear,), parameter_elements=4096))


def published_memory() -> dict[str, bytes]:
    """The files of the package."""
    return packaged_files(table=memory_rows(), graphs=memory_graphs())
