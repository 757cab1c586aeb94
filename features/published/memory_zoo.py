"""Graphs of networks whose peak memory is listed in public tables, by name.

    python -m forerun.features.published.memory_zoo FILE.parquet

traces all of them anew (minutes; needs the `zoo` and `train` extras) and writes the table that
comes with the dataset `published_memory`. Networks that also occur in latency tables are those of
`forerun.features.published.zoo`, by the same names; the others are BERT's classifier, Llama, ViT,
ViViT, and latent diffusion as one graph: text encoder, one pass of the denoiser, image decoder. All
three are in memory while a pipeline runs them in sequence, so this graph has a pipeline's peak.
Their configurations are those of the checkpoints' folders on huggingface.co.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from forerun.data.errors import MissingExtra
from forerun.data.lazy import nn, torch
from forerun.features.published.sources import (
    HUB,
    Built,
    Entry,
    Source,
    Transformer,
    with_summed_logits,
)
from forerun.features.published.zoo import declared, entries, graph_table, networks

TOKENS: Final = 77


@dataclass(frozen=True)
class Latent:
    """A pipeline's parts.

    checkpoint: on huggingface.co.
    text, denoiser: fields of their configurations that differ from the class's defaults.
    side: latents along each side of an image, an eighth of its pixels.
    guided: whether the denoiser runs with and without the prompt at once.
    checked: whether a vision transformer checks the image.
    """

    checkpoint: str
    text: Mapping[str, Any]
    denoiser: Mapping[str, Any] = field(default_factory=dict)
    side: int = 64
    guided: bool = False
    checked: bool = False


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a configuration with lists converted to tuples, as in diffusers."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}


def diffusion() -> Iterator[Entry]:
    """Stable Diffusion 1.5 with guidance, and two distilled descendants without."""
    for name, fields in declared()["diffusion"]["pipelines"].items():
        latent = Latent(**fields)
        where = f"{HUB} {latent.checkpoint}, {TOKENS} tokens"
        yield name, Built(where, partial(_pipeline, latent), (1, 4, latent.side, latent.side))


def _pipeline(latent: Latent) -> Any:
    """A module from latents of one image to its pixels; guidance doubles the denoiser's batch."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel

    kl, unet = _diffusers()
    shared = declared()["diffusion"]
    clip, looker = CLIPTextConfig(**latent.text), CLIPVisionConfig(**shared["checker"])
    clip._attn_implementation = looker._attn_implementation = "sdpa"
    passes = 2 if latent.guided else 1

    class Pipeline(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text = CLIPTextModel(clip)
            self.denoiser = unet(sample_size=latent.side, **_fields(latent.denoiser))
            self.images = kl(sample_size=512, **_fields(shared["decoder"]))
            self.checker = CLIPVisionModel(looker) if latent.checked else None

        def forward(self, latents: Any) -> Any:
            words = torch.zeros((len(latents), TOKENS), dtype=torch.int64, device=latents.device)
            prompts = self.text(input_ids=words)[0]
            noisy = torch.cat([latents] * passes)
            step = torch.ones((), dtype=torch.int64, device=latents.device)
            noise = self.denoiser(noisy, step, torch.cat([prompts] * passes)).sample
            image = self.images.decode(latents - noise[: len(latents)]).sample
            if self.checker is None:
                return image
            small = nn.functional.interpolate(image, size=(224, 224))
            return image, self.checker(pixel_values=small).pooler_output

    return Pipeline()


def _diffusers() -> tuple[Any, Any]:
    try:
        from diffusers import AutoencoderKL, UNet2DConditionModel
    except ImportError as error:
        raise MissingExtra("Tracing a diffusion pipeline", "zoo") from error
    return AutoencoderKL, UNet2DConditionModel


SUMMED: Final = re.compile(r"(?:bert_base_mlm-(?:256|512)|biogpt-(?:128|256))-sdpa")
"""Networks trained without a loss, on the gradient of the sum of their logits: their peaks leave no
room for a cross-entropy."""


def without_loss() -> Iterator[Entry]:
    """BERT and BioGPT with the sum of their logits as output."""
    for name, source in networks().items():
        if SUMMED.fullmatch(name) and isinstance(source, Transformer):
            summed = replace(source, wrap=with_summed_logits)
            yield name.replace("-sdpa", "-sum"), summed


TIMED: Final = re.compile(
    r"(?:albert_base-|biogpt-(?:64|128)|pythia_410m).*-sdpa"
    r"|(?:beit_base|data2vec_base)-224-sdpa|sam_vit_[bh]_encoder-1024"
)
"""Networks in both memory and latency tables; the kind of attention is an option."""


def memory_networks() -> dict[str, Source]:
    """All traceable networks of the memory tables, by name."""
    shared = {name: source for name, source in networks().items() if TIMED.fullmatch(name)}
    untimed = (*without_loss(), *entries("memory"), *diffusion())
    return {**shared, **dict(untimed)}


if __name__ == "__main__":
    graph_table(sources=memory_networks(), marks=True).to_parquet(
        Path(sys.argv[1]), index=False, compression="zstd", compression_level=19
    )
