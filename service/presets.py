"""Named questions to try first, of every kind of workload.

Each is a request that one endpoint answers as it stands, with the bundled predictors and without
any file. Networks and programs are named; their graphs come with the package.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.data.errors import UnknownPreset

PREDICT, LLM, DIFFUSION = "/v1/predict", "/v1/llm/estimate", "/v1/diffusion/estimate"
COLOCATION, RANK, SWEEP = "/v1/colocation", "/v1/rank", "/v1/power/sweep"
Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Preset:
    """A named question.

    Attributes:
        name: slug that the command line and the web page use.
        title: one line for a list.
        kind: kind of the workload, as in `GET /v1/workloads`.
        endpoint: path that answers the request, by POST.
        request: body of the request, in JSON.
        note: where the workload comes from, and what to know about the answer.
    """

    name: str
    title: str
    kind: str
    endpoint: str
    request: Mapping[str, Any]
    note: str


@cache
def presets() -> tuple[Preset, ...]:
    """All presets, grouped by kind of workload."""
    return (
        *_networks(),
        *_questions_about_devices(),
        *_serving(),
        *_architectures(),
        *_designs(),
        *_benchmarks(),
        *_colocations(),
    )


def preset_named(name: str) -> Preset:
    """The preset of that name.

    Raises:
        UnknownPreset: no preset has that name; the message suggests similar ones.
    """
    by_name = {preset.name: preset for preset in presets()}
    if name not in by_name:
        raise UnknownPreset(name, by_name)
    return by_name[name]


def _network(graph: str, batch_size: int, precision: str = "amp", **more: Any) -> Content:
    given = {"graph": graph, "batch_size": batch_size, "precision": precision}
    return {"kind": "network", **given, **more}


def _predict(workload: Content, device: str, **more: Any) -> Content:
    return {"workload": workload, "device": device, **more}


def _networks() -> tuple[Preset, ...]:
    timm = "Traced from timm at 224 x 224 pixels, without weights."
    text = "Traced from transformers with the sizes of the published config.json, 128 tokens."
    long = "Traced from transformers with the sizes of the published config.json, 2,048 tokens."
    adamw = {"optimizer": "adamw"}
    fused = {"runtime": "compiled"}
    rows = (
        ("resnet50", "ResNet-50, 32 images", _network("resnet50", 32), "l4", {}, timm),
        (
            "resnet50-training",
            "ResNet-50, one training step of 64 images",
            _network("resnet50", 64, phase="training", training=adamw),
            "rtx-4090",
            {},
            timm,
        ),
        (
            "vit-base-compiled",
            "ViT-B/16 with torch.compile, 64 images",
            _network("vit-base", 64),
            "a100-pcie-80gb",
            {"software": fused},
            timm,
        ),
        (
            "efficientnet-b0-cpu",
            "EfficientNet-B0, one image on a processor",
            _network("efficientnet-b0", 1, "fp32"),
            "xeon-platinum-8480-plus",
            {"software": {"runtime": "compiled"}},
            timm,
        ),
        (
            "bert-base",
            "BERT base, 16 sequences of 128 tokens",
            _network("bert-base", 16, "fp16"),
            "t4",
            {},
            text,
        ),
        (
            "llama-3-8b-memory",
            "Llama 3 8B, a forward pass over 2,048 tokens: does it fit?",
            _network("llama-3-8b", 1, "bf16"),
            "rtx-4090",
            {},
            long,
        ),
        (
            "llama-3-8b-qlora",
            "Llama 3 8B, training adapters over 4-bit weights",
            _network(
                "llama-3-8b",
                1,
                "bf16",
                phase="training",
                training={"lora_rank": 16, "frozen_weights": "nf4", "checkpoint_blocks": True},
            ),
            "rtx-4090",
            {},
            long,
        ),
    )
    return tuple(
        Preset(name, title, "network", PREDICT, _predict(work, device, **more), note)
        for name, title, work, device, more, note in rows
    )


def _questions_about_devices() -> tuple[Preset, ...]:
    product = {
        "kind": "linear",
        "input_shapes": [[4096, 4096]],
        "output_shapes": [[4096, 4096]],
        "parameter_elements": 4096 * 4096,
    }
    kernel = {"kind": "kernel", "operator": product, "precision": "fp16"}
    three = ["l4", "a100-pcie-80gb", "rtx-4090"]
    return (
        Preset(
            "matrix-product",
            "One product of two 4,096 x 4,096 matrices",
            "kernel",
            PREDICT,
            _predict(kernel, "a100-pcie-80gb"),
            "A single operator.",
        ),
        Preset(
            "cheapest-device",
            "Which of three GPUs takes the least energy for ResNet-50?",
            "network",
            RANK,
            {"workload": _network("resnet50", 64), "devices": three, "objective": "energy_j"},
            "Devices in order of an objective, with the reason why others are left out.",
        ),
        Preset(
            "power-limits",
            "ResNet-50 at every power limit of an A100",
            "network",
            SWEEP,
            _predict(_network("resnet50", 64), "a100-pcie-80gb"),
            "Time and energy at each power limit, and the limit that saves most.",
        ),
    )


def _serving() -> tuple[Preset, ...]:
    note = "Trained on ML.ENERGY's measurements on H100 and B200; steady state."
    chat = {"total_parameters": 8.03e9, "request": "chat", "max_sequences": 64}
    large = {"total_parameters": 70.6e9, "max_sequences": 128, "tensor_parallel": 4}
    image = {"parameters": 1.2e10, "height": 1024, "width": 1024, "steps": 28, "batch_size": 4}
    h100 = "h100-sxm-80gb"
    return (
        Preset(
            "serve-8b-chat",
            "A language model of 8 billion weights, 64 chats at a time",
            "llm_serving",
            LLM,
            {"model": chat, "device": h100, "device_count": 1},
            note,
        ),
        Preset(
            "serve-70b-chat",
            "A language model of 70 billion weights on four GPUs",
            "llm_serving",
            LLM,
            {"model": large, "device": h100, "device_count": 4},
            note,
        ),
        Preset(
            "draw-images",
            "A diffusion model of 12 billion weights, four pictures at a time",
            "diffusion",
            DIFFUSION,
            {"model": image, "device": h100},
            note,
        ),
    )


def _architectures() -> tuple[Preset, ...]:
    cell = (
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|"
        "+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|"
    )
    nb201 = {"kind": "architecture", "space": "nb201", "cell": cell}
    fbnet = {"kind": "architecture", "space": "fbnet", "blocks": ["k3_e6", "k5_e3"] * 11}
    ofa = {
        "kind": "architecture",
        "space": "ofa",
        "kernel_sizes": [5] * 20,
        "expansions": [4] * 20,
        "depths": [3] * 5,
        "image_size": 224,
    }
    rows = (
        ("nb201-phone", "A NAS-Bench-201 cell on a Pixel 3", nb201, "pixel3"),
        ("nb201-edge-tpu", "The same cell on an Edge TPU", nb201, "embedded-tpu-edge-tpu-int8"),
        ("fbnet-raspberry-pi", "An FBNet on a Raspberry Pi 4", fbnet, "raspi4"),
        ("ofa-v100", "A once-for-all network on a V100", ofa, "v100-1"),
    )
    note = "The device's name stands for chip, runtime, batch and precision as they were measured."
    return tuple(
        Preset(name, title, "architecture", PREDICT, _predict(work, device), note)
        for name, title, work, device in rows
    )


def _designs() -> tuple[Preset, ...]:
    directives = {"__PARA__L0": "1", "__PARA__L1": "4", "__PIPE__L0": "off"}
    design = {"kind": "design", "program": "gesummv", "directives": directives}
    tool = {"framework": "sdx", "version": "2018.3"}
    return (
        Preset(
            "hls-gesummv",
            "A sum of matrix-vector products on an FPGA",
            "design",
            PREDICT,
            _predict(design, "xilinx-vcu1525", software=tool),
            "Program graph of HLSyn (CC BY-SA 4.0), with directives for its loops.",
        ),
    )


def _benchmark(suite: str, **settings: Any) -> Content:
    return {"kind": "benchmark", "suite": suite, "settings": settings}


def _benchmarks() -> tuple[Preset, ...]:
    layer = _benchmark(
        "hls4ml dense layer",
        d_in=64,
        d_out=32,
        multipliers=2048,
        precision_bits=14,
        reuse_factor=1,
        strategy="resource",
    )
    processor = _benchmark(
        "SPECrate2017_int_base",
        **{"L3 cache": 99840, "base frequency": 2.1, "cores per socket": 48, "sockets": 2},
        **{"thermal design power": 350, "preset": "gcc8.1 O2 | SSE | MultipleCopy"},
        test="SPECrate2017_int_base",
    )
    mlperf = _benchmark("mlperf_inference", model="resnet50", scenario="Offline")
    llama = _benchmark("mlperf_inference", model="llama2-70b-99.9", scenario="Server")
    job = _benchmark("zeus_powercap", dataset="imagenet", network="resnet50", batch_size=256)
    eight = {"operation": {"device_count": 8}}
    rows = (
        ("hls4ml-layer", "A dense layer of hls4ml", layer, "xilinx-vu13p", {}),
        ("spec-integer", "SPECrate 2017 integer", processor, "xeon-platinum-8480-plus", {}),
        ("mlperf-resnet50", "MLPerf offline, ResNet-50, 8 x H100", mlperf, "h100-sxm-80gb", eight),
        ("mlperf-llama2", "MLPerf server, Llama 2, 8 x H200", llama, "h200-sxm-141gb", eight),
        (
            "training-job-150w",
            "An epoch of ImageNet on a V100 limited to 150 W",
            job,
            "v100-pcie-32gb",
            {"operation": {"power_limit_w": 150}},
        ),
    )
    note = "A test of a benchmark suite at the settings that its results name."
    return tuple(
        Preset(name, title, "benchmark", PREDICT, _predict(work, device, **more), note)
        for name, title, work, device, more in rows
    )


def _colocations() -> tuple[Preset, ...]:
    request = {
        "candidate": {"name": "convnet", "working_set_mib": 64.0, "cpu_share": 1.0},
        "host": {"residents": [{"name": "triad", "working_set_mib": 64.0, "cpu_share": 1.0}]},
    }
    return (
        Preset(
            "neighbours",
            "A convolutional network next to a program that fills the memory bus",
            "colocation",
            COLOCATION,
            request,
            "Both programs were measured on a guest of two CPUs.",
        ),
    )
