"""Efficiency of inference engines by release: achieved shares of spec-sheet rates, and fixed times.

Current vLLM, SGLang and TensorRT-LLM, and unknown engines, have the rates `CURRENT`. The shares of
matrix products and of the link are those of kernels in `aiconfigurator`, on seven NVIDIA GPUs, and
the fixed times of messages lie between those of engines and of NCCL. All other figures are close to
those of kernels, and were chosen in view of the runs in `aiconfigurator_serving`.

llama.cpp and old vLLM were measured in `llm_inference_bench` in autumn 2024. Their rates are
least-squares fits to rows of one device per vendor, which a comment names: of a Llama 2 and a
Llama 3 model; for vLLM on AMD, to a third of the rows of all models. No figure was fitted to the
H100 or the MI300X, but the MI300X showed that an absolute rate bounds products, and that caches are
read once for each query head.
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
"""What may follow a release number: a build, a commit or a pre-release."""
_BUILD: Final = r"b\d+"
"""A release of llama.cpp, which is a build number."""
_CANDIDATES: Final = 50
"""Release candidates that are distinguished, and likewise later patches."""
RECORDING: Final = 206.0
"""First release of vLLM that replays CUDA graphs, 0.2.6."""
NEW_ENGINE: Final = 800.0
"""First release of vLLM whose rewritten engine (V1) serves by default, 0.8."""

_PREPARED_S: Final = 54e-6
"""Additional host time per sequence in vLLM before 0.8: 40 rows of one or 16 sequences on one to
four H100."""
_SAMPLED_S: Final = 0.5e-3
"""The same before 0.2.6, which samples each sequence in Python: chosen on batches of Llama-2-70B on
A100 in `splitwise`. The median errors on H100 and of BLOOM are then 9 and 8 %, down from 11 and 11.
"""

_DRAWN, _PIVOTED, _SORTED = 37.0, 200.0, 258.0 * 2.1
"""Bytes moved per logit to sample a token by top-p, at the bandwidth that kernels reach.

In vLLM, PyTorch sorts (`apply_top_k_top_p_pytorch`): about 160 bytes in the passes of a radix sort
of 32-bit logits with 8-byte indices (`SortStable.cu`), 54 in softmax, sums, masks and scatter, 44
in scaling and drawing. Sorts reach 0.4 of the sheet's bandwidth where other kernels reach 0.84, by
vLLM's own figures: top-p reduces the 47.4 requests/s of an 8B model to 40.2 (#11394; an H100 by its
rate), and 512 rows or more take 0.06 to 0.09 ns per logit on B200 and GB200 (#40376, #54502). The
figures of Triton and FlashInfer, which do not sort, are from #40376. Nothing was fitted to
`mlenergy`; one constant for its runs on H100 would be 645 bytes."""
_SAMPLERS: Final = (
    (900.0, 1101.0, 1700.0, 2100.0), (_SORTED, _DRAWN, _SORTED, _PIVOTED, _DRAWN),
)  # fmt: skip
"""Releases in which vLLM's sampler changed, and bytes per logit before, between and after them:
FlashInfer from 0.9 (#15777), off from 0.11.1 (#26859), Triton from 0.17 (#33538), FlashInfer again
from 0.21 (#40376)."""

FIRST_RUNS: Final = {"vllm": 1100.0, "sglang": 500.0}
"""Engine -> first release with runs in `aiconfigurator_serving`, 0.11 and 0.5."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Achieved shares of spec-sheet rates, and fixed times.

    Attributes:
        bandwidth: share of the memory bandwidth.
        arithmetic: share of the peak FLOP/s in matrix products.
        few_bits: factors on both for products computed in eight or four bits.
        experts: factors on both for routed experts, whose tiles are partly empty.
        overlap: order p of the p-norm that combines memory and arithmetic time of a product;
            infinite if the longer one hides the other.
        attention: share of the peak FLOP/s in prefill attention.
        cache: share of the memory bandwidth in cache reads.
        link: share of the link bandwidth.
        kernel_s: fixed time per kernel in a replayed CUDA graph, seconds.
        launched_kernel_s: the same in iterations without a graph, seconds.
        eager_kernel_s: the same in an engine without graphs, seconds. A least-squares fit to
            batches of Llama-2-70B in `splitwise`, whose vLLM 0.2 has none.
        iteration_s: host time per iteration, seconds.
        sequence_s: host time per sequence and iteration, seconds.
        verified_s: additional host time per sequence whose draft tokens are verified, seconds.
            With it, errors of SGLang and TensorRT-LLM with speculative decoding do not grow with
            the load.
        collective_s: fixed time per message over a switched link, seconds; twice that over PCIe.
        peer_s: additional fixed time per further device that takes part, seconds.
        flop_per_s: absolute upper bound on FLOP/s of matrix products and prefill attention.
        heads_share: whether query heads that share keys and values read them once in decode.
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
"""Host time per sequence in vLLM: between what its runs in `mlenergy` and
`aiconfigurator_serving` show."""
_AMD_ARITHMETIC: Final = 0.5
"""Products in `amd_kernels` reach 0.46 to 0.53 of the peak of an MI355X."""
_EARLIER: Final = Rates(
    bandwidth=0.8, arithmetic=0.6, few_bits=(1.0, 1.0), experts=(1.0, 1.0), overlap=inf,
    attention=0.45, cache=0.6, link=0.9, collective_s=8e-6, peer_s=0.0, launched_kernel_s=8e-6,
)  # fmt: skip
"""Rates that stayed fixed while the figures of older engines were fitted."""
_HIP_S: Final = 17e-6
"""Fixed time per kernel in vLLM 0.6 on an MI250, seconds."""
_LLAMA_CPP: Final = {
    "nvidia": replace(_EARLIER, bandwidth=0.63, kernel_s=8e-6),  # A100
    "amd": replace(_EARLIER, bandwidth=0.37, kernel_s=_HIP_S, launched_kernel_s=_HIP_S),  # MI250
    # Max 1550: with layers on several devices, it reads weights as slowly as over PCIe.
    "intel": replace(_EARLIER, bandwidth=0.017),
}
"""Vendor of the device -> rates of llama.cpp."""
_MAX_ALONE: Final = 0.09
"""Share of the bandwidth that llama.cpp reaches on one Max 1550, from Llama 2 and Llama 3. Median
errors are 2 and 4 % for Qwen2 and Mistral; Mixtral is predicted 50 % too fast."""
_OLD_VLLM: Final = {
    # MI250. Decode attention (`paged_attention_v1` and `v2`) reads keys and values once for each
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
"""Vendor of the device -> rates of vLLM before `NEW_ENGINE`, without its additional host time."""


def rates_of(engine: Engine, device: Device, devices: int) -> Rates:
    """The rates that an engine achieves on a device.

    In vLLM before 0.8, the host prepares an iteration only after the previous one ends. Its
    additional time is fitted to 40 rows of one or 16 sequences on one to four H100.

    Args:
        engine: the engine; vLLM of an unknown release counts as current.
        device: the device type.
        devices: devices of one worker.
    """
    if engine.name == "llama.cpp":
        alone = devices == 1 and device.vendor == "intel"
        rates = _LLAMA_CPP.get(device.vendor, CURRENT)
        return replace(rates, bandwidth=_MAX_ALONE) if alone else rates
    if not is_old(engine):
        rates = CURRENT if device.vendor != "amd" else replace(CURRENT, arithmetic=_AMD_ARITHMETIC)
        return replace(rates, sequence_s=_VLLM_SEQUENCE_S) if engine.name == "vllm" else rates
    rates = _OLD_VLLM.get(device.vendor, CURRENT)
    iteration_s = rates.iteration_s + 0.6e-3 + 0.94e-3 * log2(devices)
    each_s = _SAMPLED_S if release(engine) < RECORDING else _PREPARED_S
    return replace(rates, iteration_s=iteration_s, sequence_s=rates.sequence_s + each_s)


def logit_bytes(engine: Engine) -> float:
    """Bytes moved per logit to sample a token; 0 for greedy decoding."""
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
    """Whether an engine's release precedes those of all its measured runs."""
    return release(engine) < FIRST_RUNS.get(engine.name, -inf)


def records_launches(engine: Engine) -> bool:
    """Whether an engine replays CUDA graphs in decode, which a setting can turn off."""
    return engine.graphs and not (engine.name == "vllm" and release(engine) < RECORDING)


def is_release(engine: str, version: str) -> bool:
    """Whether a version has the form of a release of an engine."""
    pattern = _RELEASE.pattern + _FURTHER
    return bool(
        re.fullmatch(pattern, version) or (engine == "llama.cpp" and re.fullmatch(_BUILD, version))
    )


def release(engine: Engine) -> float:
    """The engine's release as one number that rises with it; NaN if unknown.

    Candidates (`1.2.0rc6`) come before their release, and patches of either (`post2`) after it.
    """
    match = _RELEASE.match(engine.version)
    if match is None:
        return float("nan")
    major, minor, patch = (float(part or 0) for part in match.groups()[:3])
    candidate, post = match.groups()[3:]
    later = min(float(post or 0), _CANDIDATES - 1.0) / _CANDIDATES
    if candidate is not None:
        later += min(float(candidate), _CANDIDATES - 1.0) - _CANDIDATES
    return major * 1e4 + minor * 1e2 + patch + later / (2.0 * _CANDIDATES)
