"""Pipelines of diffusers, traced from small configurations of their parts."""

import json

import pytest

from forerun.data.errors import BadShape, UnreadableModel
from forerun.features.graphs.pipeline import DECODER, DENOISER, ENCODER
from forerun.features.readers import read_graph
from tests.public_cases.graphs import write_pipeline
from tests.zoo import needs_zoo

UNET = {
    "_class_name": "UNet2DConditionModel",
    "sample_size": 16,
    "block_out_channels": [32, 64],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    "layers_per_block": 1,
    "cross_attention_dim": 32,
    "attention_head_dim": 8,
}
VAE = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [32, 32, 32, 32],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "latent_channels": 4,
}
TEXT = {
    "model_type": "clip_text_model",
    "architectures": ["CLIPTextModel"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 100,
}
INDEX = {"_class_name": "StableDiffusionPipeline", "unet": ["x", "y"], "vae": ["x", "y"]}
FLUX = {
    "_class_name": "FluxTransformer2DModel",
    "in_channels": 16,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
    "pooled_projection_dim": 32,
    "axes_dims_rope": [4, 6, 6],
    "guidance_embeds": True,
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    index = {**INDEX, "text_encoder": ["x", "y"]}
    parts = {"model_index": index, "unet": UNET, "vae": VAE, "text_encoder": TEXT}
    write_pipeline(folder, parts)
    return folder


@needs_zoo
@pytest.mark.slow
def test_a_folder_is_all_parts_with_all_their_weights(pipeline):
    graph = read_graph(pipeline)
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    assert list(dict.fromkeys(op.part for op in graph.operators)) == [ENCODER, DENOISER, DECODER]
    assert not graph.unknown
    with torch.device("meta"):
        parts = (
            UNet2DConditionModel.from_config(UNET),
            AutoencoderKL.from_config(VAE),
            CLIPTextModel(CLIPTextConfig(**TEXT)),
        )
    weights = sum(one.numel() for part in parts for one in part.parameters())
    assert graph.parameter_elements == weights
    assert graph.assumptions == ("128 x 128 pixels",)
    convolution = next(op for op in graph.operators if op.part == DENOISER and op.kind == "conv")
    assert convolution.input_shapes[0] == (2, 4, 16, 16)
    assert convolution.repeat == 50


@needs_zoo
@pytest.mark.slow
def test_a_config_alone_is_one_step_and_distilled_guidance_one_pass(pipeline):
    step = read_graph(pipeline / "unet", batch_size=3, image_size=64)
    first = next(op for op in step.operators if op.kind == "conv")
    assert (first.input_shapes[0], first.repeat) == ((6, 4, 8, 8), 1)
    flux = read_graph(json.dumps(FLUX).encode(), image_size=128)
    assert flux.assumptions == ("128 x 128 pixels",)
    assert not flux.unknown


def test_what_is_not_read_is_named(tmp_path):
    other = b'{"_class_name": "SomeTransformer"}'
    with pytest.raises(UnreadableModel, match="SomeTransformer is not read; UNet2DConditionModel"):
        read_graph(other)
    with pytest.raises(BadShape, match="takes no shapes and no sequence length"):
        read_graph(other, sequence_length=5)
    with pytest.raises(UnreadableModel, match="give the folder by its path"):
        read_graph(json.dumps(INDEX).encode())
    write_pipeline(tmp_path, {"model_index": INDEX})
    with pytest.raises(UnreadableModel, match="no transformer/config"):
        read_graph(tmp_path)
