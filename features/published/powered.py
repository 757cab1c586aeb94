"""Networks whose power was published: torchvision's on the A30, and jobs of Zeus's traces.

    python -m forerun.features.published.powered FILE.parquet

traces all of them anew (a minute; needs the `zoo` and `train` extras) and writes the table that
comes with the package as `data/power_networks/graphs.parquet`.
"""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from forerun.features.published.sources import Built, Entry, Inputs, Transformer
from forerun.features.published.zoo import declared, graph_table
from forerun.features.readers.torch_trace import declare_operators

CIFAR: Final = "shufflenet_v2_cifar-32"
SQUAD: Final = "bert_base_squad-384-eager"
TWEETS: Final = "bert_base_classes-64-eager"
"""Jobs of Zeus. ShuffleNet on CIFAR-100 has a first layer of stride 1 and no pooling after it
(weiaicunzai/pytorch-cifar100); questions are padded to 384 tokens, the script's default. Tweets are
assumed to have 64 tokens: their length is unpublished and barely affects the power of a busy
GPU."""


def powered() -> Iterator[Entry]:
    """All networks of the power measurements, with their names."""
    for name, sides in declared()["powered"].items():
        for side in sides:
            make = partial(_torchvision, name)
            yield f"{name}-{side}", Built("torchvision's default", make, (1, 3, side, side))
    where = "weiaicunzai/pytorch-cifar100, models/shufflenetv2.py"
    yield CIFAR, Built(where, _shufflenet_of_cifar, (1, 3, 32, 32))
    for name, length, head in (
        (SQUAD, 384, "BertForQuestionAnswering"),
        (TWEETS, 64, "BertForSequenceClassification"),
    ):
        tokens: Inputs = {"input_ids": (1, length), "attention_mask": (1, length)}
        yield name, Transformer("bert-base-uncased", head, "BertConfig", tokens, "eager")


def _torchvision(name: str) -> Any:
    import torchvision

    # These two would spend seconds drawing weights that a graph does not store.
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return getattr(torchvision.models, name)(**options)


def _shufflenet_of_cifar() -> Any:
    import torch
    import torchvision

    network = torchvision.models.shufflenet_v2_x1_0(num_classes=100)
    network.conv1[0].stride = (1, 1)
    network.maxpool = torch.nn.Identity()
    return network


if __name__ == "__main__":
    declare_operators()
    graph_table(sources=dict(powered())).to_parquet(
        Path(sys.argv[1]), index=False, compression="zstd", compression_level=19
    )
