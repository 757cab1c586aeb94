"""Configurations of diffusers as operator graphs: a whole pipeline, or its denoising network alone.

`model_index.json` names the parts of a pipeline, whose configurations lie in folders next to it:
text encoders run once, the denoising network once a step, the decoder of images or videos once. A
pipeline is one graph of all three in this order, whose operators have their part as an attribute;
an alone standing `unet/config.json` or `transformer/config.json` is one step. Parts are built on
the meta device by diffusers and transformers, without weights.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

from forerun.data.errors import BadShape, MissingExtra, UnreadableModel
from forerun.data.facts import facts_of
from forerun.data.graph import BoundDimension, OperatorGraph
from forerun.features.graphs.pipeline import DECODER, DENOISER, ENCODER, joined
from forerun.features.readers.huggingface import HuggingFaceReader, check_sizes
from forerun.features.readers.input_sizes import InputSizes
from forerun.features.readers.operator_json import parse_json

LATENT_PIXELS: Final = 8
"""Pixels of a latent along each side, where the configuration does not say so."""
CLIP_TOKENS: Final = 77
_DECLARED: Final[Mapping[str, Mapping[str, Any]]] = facts_of(__file__)
"""Class of a denoising network -> what its pipeline does."""


class DiffusersReader:
    """Reads `model_index.json` and `config.json` of diffusers; no weights, no network."""

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """Whether it is JSON that names a class of diffusers."""
        return head.lstrip()[:1] == b"{" and b'"_class_name"' in head

    def read(self, source: Path | bytes, sizes: InputSizes) -> OperatorGraph:
        """The graph of a pipeline, or of one step of its denoising network.

        Raises:
            BadShape: shapes or a sequence length are given.
            MissingExtra: diffusers or transformers is not installed.
            UnreadableModel: a configuration is damaged, of no known class, or cannot be traced.
        """
        where = source.name if isinstance(source, Path) else "the upload"
        if sizes.shapes or sizes.sequence_length is not None:
            raise BadShape(f"{where} takes no shapes and no sequence length; give an image size.")
        content = source.read_bytes() if isinstance(source, Path) else source
        given = _object(content, where)
        if not str(given["_class_name"]).endswith("Pipeline"):
            return _Tracing(where, given, sizes).step()
        if not isinstance(source, Path):
            raise UnreadableModel(where, "it names parts in folders; give the folder by its path.")
        folders = [name for name, value in given.items() if isinstance(value, list)]
        found = {name: source.parent / name / "config.json" for name in folders}
        parts = {name: path for name, path in found.items() if path.is_file()}
        for name in ("transformer", "unet"):
            if name in parts:
                network = _object(parts.pop(name).read_bytes(), f"{name}/config.json")
                return _Tracing(where, network, sizes).pipeline(parts)
        raise UnreadableModel(
            where, "no transformer/config.json or unet/config.json is next to it."
        )


def _object(content: bytes, where: str) -> Mapping[str, Any]:
    given = parse_json(content, where)
    if not isinstance(given.get("_class_name"), str):
        raise UnreadableModel(where, "it is no configuration of diffusers.")
    check_sizes(where, "", given)
    return given


class _Tracing:
    """Traces the parts of one pipeline at a batch size and a size of images.

    Args:
        where: name of the file in messages.
        network: configuration of the denoising network.
        sizes: sizes that the question gives.
    """

    def __init__(self, where: str, network: Mapping[str, Any], sizes: InputSizes) -> None:
        self._where, self._network, self._sizes = where, network, sizes
        own = str(network["_class_name"])
        if own not in _DECLARED:
            raise UnreadableModel(where, f"{own} is not read; {', '.join(_DECLARED)} are.")
        self._kind = _DECLARED[own]
        side, size = self._kind.get("latent_pixels", LATENT_PIXELS), network.get("sample_size")
        usual = size * side if isinstance(size, int) else 1024
        pair = self._kind.get("pixels", [usual, usual])
        self._pixels = [sizes.image_size or one for one in pair]
        self._latent = [one // side for one in self._pixels]
        frames = self._kind.get("frames", 0)
        self._frames = [(frames - 1) // 4 + 1] if frames else []
        distilled = network.get("guidance_embeds") or network.get("time_cond_proj_dim")
        self._passes = 1 if distilled else 2

    def step(self) -> OperatorGraph:
        """One step of the denoising network."""
        return self._described({DENOISER: [self._denoiser()]}, 1)

    def pipeline(self, others: Mapping[str, Path]) -> OperatorGraph:
        """All parts, with as many steps as are usual."""
        _libraries()  # First, so that all that is missing is named at once.
        steps = int(self._kind["steps"])
        texts = [self._texts(path) for name, path in others.items() if name.startswith("text_enc")]
        decoders = [self._decoder(path) for name, path in others.items() if name == "vae"]
        parts = {ENCODER: texts, DENOISER: [self._denoiser()], DECODER: decoders}
        return self._described(parts, steps)

    def _described(self, parts: Mapping[str, Sequence[OperatorGraph]], steps: int) -> OperatorGraph:
        graph = joined(parts, steps, self._passes)
        size = " x ".join(map(str, self._pixels))
        frames = f", {self._kind['frames']} frames" if self._frames else ""
        line = f"{size} pixels{frames}"
        batch = (BoundDimension("sample", 0, "batch", graph.batch_size, "batch"),)
        said = (line, *graph.assumptions)
        return replace(graph, source="diffusers", bound_dimensions=batch, assumptions=said)

    def _denoiser(self) -> OperatorGraph:
        """The denoising network; its first input is the latents of the batch."""
        torch, diffusers = _libraries()
        kind, passes, inputs = self._kind, self._passes, self._inputs

        class Step(torch.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self, network: Any) -> None:
                super().__init__()
                self.network = network

            def forward(self, sample: Any) -> Any:
                noisy = torch.cat([sample] * passes)
                given = inputs(torch, self.network.config, len(noisy))
                return self.network(**{str(kind["sample"]): noisy}, **given)[0]

        made = self._built(getattr(diffusers, str(self._network["_class_name"])), self._network)
        config = made.config
        channels = int(config.in_channels)
        if kind.get("packed"):
            shape = [prod(self._latent) // 4, channels]
        else:
            shape = [channels, *self._frames, *self._latent]
            if kind.get("frames_first"):
                shape[:2] = shape[1::-1]
        return self._traced(Step(made), shape)

    def _inputs(self, torch: Any, config: Any, n: int) -> dict[str, Any]:
        """The inputs next to the latents, by the names that the class gives them."""
        made: dict[str, Any] = {}
        known = {"n": n, "tokens": prod(self._latent) // 4}
        for name, shape in self._kind["inputs"].items():
            sizes = [known.get(s) or getattr(config, s) if isinstance(s, str) else s for s in shape]
            if None not in sizes:
                made[name] = torch.zeros(sizes, device="meta")
        for name in self._kind.get("masks", ()):
            made[name] = torch.ones(made["encoder_hidden_states"].shape[:2], device="meta")
        if self._kind.get("conditions"):
            made["added_cond_kwargs"] = {"resolution": None, "aspect_ratio": None}
        if getattr(config, "addition_embed_type", None) == "text_time":
            width = (
                config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            )
            texts = {"text_embeds": torch.zeros((n, width), device="meta")}
            made["added_cond_kwargs"] = {**texts, "time_ids": torch.zeros((n, 6), device="meta")}
        return made

    def _texts(self, path: Path) -> OperatorGraph:
        """One text encoder at the length of prompts; guidance reads an empty prompt too."""
        given = json.loads(path.read_bytes()) | {"is_encoder_decoder": False}
        clip = "clip" in str(given.get("model_type"))
        tokens = CLIP_TOKENS if clip else int(self._kind.get("text_tokens", CLIP_TOKENS))
        sizes = replace(self._sizes, image_size=None, sequence_length=tokens)
        graph = HuggingFaceReader().read(json.dumps(given).encode(), sizes)
        again = [replace(op, repeat=op.repeat * self._passes) for op in graph.operators]
        return replace(graph, operators=tuple(again))

    def _decoder(self, path: Path) -> OperatorGraph:
        """The decoder of the autoencoder, whose encoder is in memory too."""
        torch, diffusers = _libraries()
        given = _object(path.read_bytes(), "vae/config.json")

        class Decoder(torch.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self, network: Any) -> None:
                super().__init__()
                self.network = network

            def forward(self, latents: Any) -> Any:
                return self.network.decode(latents, return_dict=False)[0]

        made = self._built(getattr(diffusers, str(given["_class_name"]), None), given)
        channels = given.get("latent_channels") or given.get("z_dim") or 4
        return self._traced(Decoder(made), [channels, *self._frames, *self._latent])

    def _built(self, kind: Any, given: Mapping[str, Any]) -> Any:
        torch, _ = _libraries()
        try:
            with torch.device("meta"):
                return kind.from_config(dict(given))
        except Exception as error:
            # A configuration can fail anywhere inside the model's constructor.
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise UnreadableModel(self._where, f"diffusers cannot build it: {reason}.") from None

    def _traced(self, module: Any, shape: list[int]) -> OperatorGraph:
        from forerun.features.readers.torch_trace import trace_module

        torch, _ = _libraries()
        sample = torch.empty((1, *shape), device="meta")
        return trace_module(module, (sample,), batch_size=self._sizes.batch_size, marks=True)


@cache
def _libraries() -> tuple[Any, Any]:
    try:
        import torch

        from forerun.features.readers.torch_trace import declare_operators

        declare_operators()
        import diffusers
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtra("Reading a configuration of diffusers", "zoo") from None
    return torch, diffusers
