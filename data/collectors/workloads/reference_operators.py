"""Reference operators: those that most networks consist of, at sizes that span common ones.

Their times characterise a device. Each is measured alone in seconds, without a model at hand, as in
the sweeps that predictors of single kernels are trained on (NeuSight, ASPLOS 2025).
"""

from forerun.data.collectors.workloads.single_operators import conv, elements, linear, product, rows
from forerun.data.graph import Operator


def reference_operators() -> tuple[Operator, ...]:
    """Products, convolutions, rows and elements, small to large; names give kind and size."""
    return (
        *(linear(*sizes) for sizes in ((64, 1024, 1024), (512, 1024, 4096), (4096, 4096, 4096))),
        *(linear(*sizes) for sizes in ((1, 4096, 4096), (16384, 768, 3072))),
        *(product(*sizes) for sizes in ((16, 128, 128, 64), (96, 512, 64, 512))),
        *(product(*sizes) for sizes in ((64, 1024, 1024, 64), (16, 2048, 128, 2048))),
        *(conv(*sizes) for sizes in ((1, 64, 64, 56, 3), (16, 64, 64, 56, 3))),
        *(conv(*sizes) for sizes in ((32, 256, 1024, 14, 1), (32, 512, 512, 7, 3))),
        conv(32, 96, 96, 56, 3, groups=96),
        *(rows("softmax", *shape) for shape in ((96, 512, 512), (16, 2048, 2048))),
        *(rows("layer_norm", *shape) for shape in ((512, 768), (16384, 1024))),
        *(elements(*sizes) for sizes in (("relu", 2**16), ("gelu", 2**22), ("add", 2**25))),
    )
