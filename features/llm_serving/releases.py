"""Releases of inference engines, and what their kernels and their host reach on a device.

Current vLLM, SGLang and TensorRT-LLM, and engines that are not known, have the rates `CURRENT`:
shares of matrix products and of the link are those of kernels in `aiconfigurator`, on seven GPUs of
NVIDIA, and the fixed times of messages lie between those of engines and of NCCL. All other figures
are near what kernels have, and were chosen with the runs of `aiconfigurator_serving` in view.

Others were measured in `llm_inference_bench` in autumn 2024. Their rates are least squares over
rows of one device for each maker, which a comment names: of a Llama 2 and a Llama 3 model, for vLLM
on AMD a third of those of all models. No figure was fitted to the H100 and the MI300X, but that
products are bound by an absolute rate, and caches read for each query head, was seen on the MI300X.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from math import inf, isnan, log2
from typing import Final

from forerun.data.device import Device
from forerun.data.language_models.deployment import Engine

_RELEASE: Final = re.compile(
    r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.-]?rc(\d+))?(?:\.pre\d+)?(?:[.-]?post(\d+))?"
)
_FURTHER: Final = r"(?:(?:[.+-]|[ab]\d)[\w.+-]*)?"
"""What may follow a release: a build, a commit, an earlier stage."""
_BUILD: Final = r"b\d+"
"""A release of llama.cpp, which is a number of a build."""
_CANDIDATES: Final = 50
"""Candidates of a release that are distinguished, and later patches of one."""
RECORDING: Final = 206.0
"""Release of vLLM, 0.2.6, from which on it replays recorded launches."""
NEW_ENGINE: Final = 800.0
"""Release of vLLM, 0.8, from which on its rewritten engine (V1) serves by default."""

_PREPARED_S: Final = 54e-6
"""Further host time of a sequence in vLLM before 0.8: 40 rows of one or 16 on one to four H100."""
_SAMPLED_S: Final = 0.5e-3
"""The same before 0.2.6, which samples each sequence in Python: chosen on batches of Llama-2-70B on
A100 in `splitwise`. Those on H100 and of BLOOM then err by 9 and 8 % (median), by 11 and 11 before.
"""

_DRAWN, _PIVOTED, _SORTED = 37.0, 200.0, 258.0 * 2.1
"""Bytes that drawing a token by top-p moves for each logit, at the bandwidth that kernels reach.

In vLLM PyTorch sorts (`apply_top_k_top_p_pytorch`): about 160 bytes in the passes of a radix sort
of 32-bit logits with indices of eight bytes (`SortStable.cu`), 54 in softmax, sums, masks and
scatter, 44 in scaling and the draw. Sorts reach .4 of the sheet's bandwidth where others reach .84,
by vLLM's own figures: 47.4 requests/s of an 8B model fall to 40.2 with top-p (#11394; an H100 by
its rate), and 512 rows or more take .06 to .09 ns a logit on B200 and GB200 (#40376, #54502).
Triton and FlashInfer, which do not sort, are taken from #40376. Nothing was fitted to `mlenergy`;
one constant for its runs on H100 would be 645 bytes."""
_SAMPLERS: Final = (
    (900.0, 1101.0, 1700.0, 2100.0), (_SORTED, _DRAWN, _SORTED, _PIVOTED, _DRAWN),
)  # fmt: skip
"""Releases in which the sampler of vLLM changed, and these bytes before, between and after them:
FlashInfer from 0.9 (#15777), off from 0.11.1 (#26859), Triton from 0.17 (#33538), FlashInfer again
from 0.21 (#40376)."""

FIRST_RUNS: Final = {"vllm": 1100.0, "sglang": 500.0}
"""Engine -> release, 0.11 and 0.5, from which on `aiconfigurator_serving` has runs."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the sheet's figures that kernels reach, and fixed times.

    Attributes:
        bandwidth: share of the memory bandwidth.
        arithmetic: share of the arithmetic peak in matrix products.
        few_bits: factors on both in products that are computed in eight or four bits.
        experts: factors on both in products with routed experts, whose tiles are partly empty.
        overlap: order of the norm that joins the times of memory and of arithmetic of a product;
            infinite where the longer one hides the other.
        attention: share of the peak in attention of prompts.
        cache: share of the memory bandwidth in reading caches.
        link: share of the link's bandwidth.
        kernel_s: fixed time of a kernel with recorded launches, seconds.
        launched_kernel_s: the same in iterations that are not recorded, seconds.
        eager_kernel_s: the same in an engine that records none, seconds. Least squares over
            batches of Llama-2-70B in `splitwise`, whose vLLM 0.2 records none.
        iteration_s: host time of an iteration, seconds.
        sequence_s: host time of a sequence in an iteration, seconds.
        verified_s: the same where its drafted tokens are verified, seconds: with it, errors of
            drafting SGLang and TensorRT-LLM do not grow with the load.
        collective_s: fixed time of one message over a switched link, seconds; twice over PCIe.
        peer_s: further fixed time for each further device that takes part, seconds.
        flop_per_s: most of matrix products and attention of prompts, whatever the sheet's peak.
        heads_share: whether query heads that share keys and values read them once in decoding.
    """

    bandwidth: float = 0.84
    arithmetic: float = 0.79
    few_bits: tuple[float, float] = (0.95, 0.81)
    experts: tuple[float, float] = (0.85, 0.3)
    overlap: float = 2.1
    attention: float = 0.6
    cache: float = 0.8
    link: float = 0.56
    kernel_s: float = 4e-6
    launched_kernel_s: float = 12e-6
    eager_kernel_s: float = 20e-6
    iteration_s: float = 0.5e-3
    sequence_s: float = 5e-6
    verified_s: float = 0.2e-3
    collective_s: float = 5e-6
    peer_s: float = 1e-6
    flop_per_s: float = inf
    heads_share: bool = True


CURRENT: Final = Rates()
_VLLM_SEQUENCE_S: Final = 15e-6
"""Host time of a sequence in vLLM: between what its runs in `mlenergy` and in
`aiconfigurator_serving` show."""
_AMD_ARITHMETIC: Final = 0.5
"""Products in `amd_kernels` reach 0.46 to 0.53 of the peak of an MI355X."""
_EARLIER: Final = Rates(
    bandwidth=0.8, arithmetic=0.6, few_bits=(1.0, 1.0), experts=(1.0, 1.0), overlap=inf,
    attention=0.45, cache=0.6, link=0.9, collective_s=8e-6, peer_s=0.0, launched_kernel_s=8e-6,
)  # fmt: skip
"""What the figures of other engines were fitted with."""
_HIP_S: Final = 17e-6
"""Fixed time of a kernel in vLLM 0.6 on an MI250, seconds."""
_LLAMA_CPP: Final = {
    "nvidia": replace(_EARLIER, bandwidth=0.63, kernel_s=8e-6),  # A100
    "amd": replace(_EARLIER, bandwidth=0.37, kernel_s=_HIP_S, launched_kernel_s=_HIP_S),  # MI250
    # Max 1550: with layers on several devices, weights are read as slowly as over PCIe.
    "intel": replace(_EARLIER, bandwidth=0.017),
}
"""Vendor of the device -> rates of llama.cpp."""
_MAX_ALONE: Final = 0.09
"""Share of the bandwidth that llama.cpp reaches on one Max 1550, by its Llama 2 and Llama 3; within
2 and 4 % (median) for Qwen2 and Mistral, and 50 % too fast for Mixtral."""
_OLD_VLLM: Final = {
    # MI250. Its decoding attention (`paged_attention_v1` and `v2`) reads keys and values for each
    # query head.
    "amd": replace(
        _EARLIER,
        bandwidth=0.5,
        cache=0.95,
        kernel_s=_HIP_S,
        launched_kernel_s=_HIP_S,
        flop_per_s=45e12,
        heads_share=False,
    ),
    "intel": replace(
        _EARLIER, bandwidth=0.66, kernel_s=0.23e-3, launched_kernel_s=0.23e-3
    ),  # Max 1550
}
"""Vendor of the device -> rates of vLLM before `NEW_ENGINE`, without its host."""


def rates_of(engine: Engine, device: Device, devices: int) -> Rates:
    """What an engine reaches on a device.

    The host of vLLM before 0.8 prepares each iteration after the last. Its further time is fitted
    to 40 rows of one or 16 sequences on one to four H100.

    Args:
        engine: the engine; vLLM of an unknown release counts as current.
        device: each of the devices.
        devices: devices of one worker.
    """
    if engine.name == "llama.cpp":
        alone = devices == 1 and device.vendor == "intel"
        own = _LLAMA_CPP.get(device.vendor, CURRENT)
        return replace(own, bandwidth=_MAX_ALONE) if alone else own
    if not is_old(engine):
        own = CURRENT if device.vendor != "amd" else replace(CURRENT, arithmetic=_AMD_ARITHMETIC)
        return replace(own, sequence_s=_VLLM_SEQUENCE_S) if engine.name == "vllm" else own
    own = _OLD_VLLM.get(device.vendor, CURRENT)
    iteration_s = own.iteration_s + 0.6e-3 + 0.94e-3 * log2(devices)
    each_s = _SAMPLED_S if release(engine) < RECORDING else _PREPARED_S
    return replace(own, iteration_s=iteration_s, sequence_s=own.sequence_s + each_s)


def logit_bytes(engine: Engine) -> float:
    """Bytes that choosing a token moves for each logit; none where the likeliest is taken."""
    if engine.sampling != "top_p":
        return 0.0
    if engine.name != "vllm" or isnan(release(engine)):
        return _DRAWN
    releases, sizes = _SAMPLERS
    return sizes[bisect_right(releases, release(engine))]


def is_old(engine: Engine) -> bool:
    """Whether the engine is vLLM before 0.8."""
    return engine.name == "vllm" and release(engine) < NEW_ENGINE


def is_before_runs(engine: Engine) -> bool:
    """Whether a release of an engine is before those of all runs of it."""
    return release(engine) < FIRST_RUNS.get(engine.name, -inf)


def records_launches(engine: Engine) -> bool:
    """Whether an engine replays recorded launches when it decodes, which can be turned off."""
    return engine.graphs and not (engine.name == "vllm" and release(engine) < RECORDING)


def is_release(engine: str, version: str) -> bool:
    """Whether a version is written as releases of an engine are."""
    pattern = _RELEASE.pattern + _FURTHER
    return bool(
        re.fullmatch(pattern, version) or (engine == "llama.cpp" and re.fullmatch(_BUILD, version))
    )


def release(engine: Engine) -> float:
    """The engine's release as one number that rises with it; NaN where it is not known.

    Candidates (`1.2.0rc6`) come before their release, and patches of either (`post2`) after it.
    """
    found = _RELEASE.match(engine.version)
    if found is None:
        return float("nan")
    major, minor, patch = (float(part or 0) for part in found.groups()[:3])
    candidate, post = found.groups()[3:]
    later = min(float(post or 0), _CANDIDATES - 1.0) / _CANDIDATES
    if candidate is not None:
        later += min(float(candidate), _CANDIDATES - 1.0) - _CANDIDATES
    return major * 1e4 + minor * 1e2 + patch + later / (2.0 * _CANDIDATES)
