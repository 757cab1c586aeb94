"""Made-up rows of AMD's tables of kernels: five GPUs, two of one chip, and rows left out."""

import numpy as np
import pandas as pd

from tests.contracts.tiny_published import packaged_files

GPUS = ("gfx90a_104cu", "gfx90a_110cu", "gfx906_64cu", "gfx942_304cu")


def amd_kernels() -> dict[str, bytes]:
    """Convolutions forward, backward and of the weights, products and expert layers."""
    rng, shapes = np.random.default_rng(0), 12
    conv = pd.DataFrame(
        [
            {
                **{"gpu": gpu, "dir": way, "dtype": form, "layout": "NCHW", "shape_id": shape},
                **{"n": 1 + shape, "c": 16, "h": 28, "w": 28, "k": 32, "kh": 3, "kw": 3},
                **{"ph": 1, "pw": 1, "sh": 1, "sw": 1, "dh": 1, "dw": 1, "groups": 1},
                **{"n_timed": 4, "best_ms": np.float32(0.01 * (1 + shape))},
            }
            for gpu in GPUS
            for way in ("F", "B", "W")
            for form in ("FP32", "INT8")
            for shape in range(shapes)
        ]
    )
    gemm = pd.DataFrame(
        [
            {
                **{"gpu": gpu, "a_dtype": "fp8", "scale": scale, "preshuffled": False, "batch": 1},
                **{"M": m, "N": 256 * n, "K": 512, "out_dtype": "bfloat16", "us": 5.0 + m + n},
            }
            for gpu in ("gfx942_304cu", "gfx950_256cu", "gfx1250_256cu")
            for scale in ("1x128", "unheard of")
            for m in (1, 64)
            for n in range(1, shapes)
        ]
    )
    moe = pd.DataFrame(
        [
            {
                **{"gpu": gpu, "token": 2**token, "model_dim": 256 * width, "inter_dim": 128},
                **{"expert": 8, "topk": 2, "a_dtype": "bf16", "w_dtype": "bf16", "scale": "none"},
                **{"gated": True, "us": 10.0 + token + rng.random()},
            }
            for gpu in ("gfx942_304cu", "gfx950_256cu")
            for token in range(4)
            for width in range(1, shapes)
        ]
    )
    return packaged_files(conv=conv, gemm=gemm, moe=moe)
