"""A cache of Hugging Face in a folder of the test."""

import json
from pathlib import Path

import pytest

VIT = {
    "model_type": "vit",
    "architectures": ["ViTModel"],
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 32,
    "patch_size": 16,
}
"""A configuration of a small network."""


def cache_in(folder: Path, monkeypatch, **models) -> None:
    """Make a cache that has the `config.json` of these models of the owner `me`."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    for name, config in models.items():
        model = folder / f"models--me--{name}"
        (model / "refs").mkdir(parents=True)
        (model / "refs" / "main").write_text(f"hash-of-{name}")
        snapshot = model / "snapshots" / f"hash-of-{name}"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(config))
