"""Networks that requests may refer to by name: traced on the meta device, without weights.

    python -m forerun.features.published.named FOLDER

traces all of them anew (a minute; needs the `zoo` and `train` extras) and writes the files that
come with the package in `data/named/network_graphs`.
"""

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forerun.data.graph import OperatorGraph
from forerun.data.lazy import torch
from forerun.data.named.networks import DIGESTS
from forerun.features.published.yolo import PICTURE, SIZES, detector
from forerun.features.published.zoo import declared
from forerun.features.readers import read_graph
from forerun.features.readers.model_zoo import zoo_graph
from forerun.features.readers.torch_trace import trace_module

SIDE: Final = 224
"""Height and width of pictures, pixels."""

TORCHVISION: Final = ("alexnet", "googlenet", "shufflenet-v2-x1-0", "squeezenet1-1")
"""Networks missing in timm, by their names in torchvision with hyphens."""


def named_networks() -> Iterator[tuple[str, OperatorGraph]]:
    """Name and graph of every network, at batch size 1."""
    named = declared()["named"]
    for name, architecture in named["timm"].items():
        yield name, zoo_graph(architecture, SIDE)
    for name in TORCHVISION:
        yield name, _of_torchvision(name.replace("-", "_"))
    for name in SIZES:
        yield name, _of_detector(name)
    for name, text in named["text"].items():
        content = json.dumps(text["config"]).encode()
        yield name, read_graph(content, sequence_length=text["tokens"])


def _of_torchvision(name: str) -> OperatorGraph:
    from torchvision.models import get_model

    auxiliary = {"aux_logits": False} if name == "googlenet" else {}
    with torch.device("meta"):
        module = get_model(name, weights=None, **auxiliary).eval()
        return trace_module(module, (torch.empty(1, 3, SIDE, SIDE),))


def _of_detector(name: str) -> OperatorGraph:
    with torch.device("meta"):
        return trace_module(detector(name).eval(), (torch.empty(1, 3, PICTURE, PICTURE),))


def main(folder: Path) -> None:
    """Write the graph of every network as `NAME.json.xz`, and the digests of all."""
    digests = {}
    for name, graph in named_networks():
        content = json.dumps(graph.to_json(), separators=(",", ":")).encode()
        (folder / f"{name}.json.xz").write_bytes(lzma.compress(content, preset=9))
        digests[name] = graph.digest
    text = json.dumps(digests, indent=1, sort_keys=True) + "\n"
    (folder / DIGESTS).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
