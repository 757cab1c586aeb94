"""Routed experts of a layer as a family of kernels: loads of experts, bounds and features."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.kernel import ProductFormat
from forerun.features.llm_kernels.chip import ACTIVATION_BYTES, ARITHMETIC, WEIGHT_BYTES, Chip
from forerun.features.llm_kernels.gemm import LAUNCH_S
from forerun.features.llm_kernels.table import LAUNCH_CLOCK_HZ, KernelTable

EXPERTS_FEATURES: Final = (
    "log_tokens",
    "log_hidden_size",
    "log_width",
    "log_local_experts",
    "log_experts_per_token",
    "log_expert_parallel",
    "skew",
    "log_bound",
    "covered_share",
    "log_tokens_per_covered_expert",
    "log_waves",
    "last_wave",
    "tile_fill",
    "log_intensity_over_ridge",
    "log_weights_over_l2",
)
_PRODUCTS: Final = 3.0
"""Matrices of a gated network: gate, up and down."""
_TILE, _TILE_COLUMNS = 64.0, 128.0
_LARGEST_SHARE: Final = 0.8
"""Load of the most loaded expert before normalisation, over the tokens, in AIConfigurator's
benchmark of skewed loads."""


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Dimensions of the routed experts of n kernels, and the devices that share them.

    Attributes:
        hidden_size: (n,) width of a token.
        width: (n,) inner width of a whole expert.
        experts: (n,) routed experts of the layer.
        experts_per_token: (n,) experts that a token is routed to.
        tensor: (n,) devices that each expert is divided over.
        expert: (n,) devices that experts are spread over.
        skew: (n,) exponent of the power law of the experts' loads; 0 for equal loads.
    """

    hidden_size: Column
    width: Column
    experts: Column
    experts_per_token: Column
    tensor: Column
    expert: Column
    skew: Column


def experts_table(
    tokens: Column, sizes: ExpertSizes, form: ProductFormat, device: Device
) -> KernelTable:
    """The gated networks of routed experts on one device of those that share a layer.

    Args:
        tokens: (n,) tokens of all devices together.
        sizes: dimensions and division of the experts.
        form: number format of the products.
        device: where they run.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    hidden_size, expert, skew = sizes.hidden_size, sizes.expert, sizes.skew
    experts, experts_per_token = sizes.experts, sizes.experts_per_token
    chip = Chip.of(device)
    peak = device.peak(ARITHMETIC[form], matrix=True) * 1e12
    own_width, local = sizes.width / sizes.tensor, np.maximum(experts / expert, 1.0)
    routed = tokens * experts_per_token / expert
    covered_share, tiles_share = _loads(tokens, experts, experts_per_token, skew)
    covered, tiles = covered_share * local, tiles_share * local
    weights = covered * _PRODUCTS * hidden_size * own_width * WEIGHT_BYTES[form]
    activations = routed * (2.0 * hidden_size + 2.0 * own_width) * ACTIVATION_BYTES[form]
    compute_s = 2.0 * _PRODUCTS * routed * hidden_size * own_width / peak
    memory_s = (weights + activations) / chip.bandwidth
    bound = np.maximum(compute_s, memory_s)
    fill = np.minimum(routed / (tiles * _TILE), 1.0)
    waves = tiles * np.ceil(2.0 * own_width / _TILE_COLUMNS) / chip.units
    features = [
        np.log2(tokens),
        np.log2(hidden_size),
        np.log2(own_width),
        np.log2(local),
        np.log2(experts_per_token),
        np.log2(expert),
        skew,
        np.log(bound * 1e6),
        covered_share,
        np.log2(np.maximum(routed / covered, 1.0)),
        np.log(waves),
        waves / np.ceil(waves),
        fill,
        np.log(compute_s / memory_s),
        np.log(weights / chip.l2_bytes),
    ]
    scattered_s = routed * hidden_size * 4.0 / chip.bandwidth
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([hidden_size / chip.clock_hz, scattered_s]),
        parallel_s=np.column_stack([compute_s / fill, memory_s]),
        launch=np.full(len(bound), LAUNCH_CLOCK_HZ / chip.clock_hz),
        least_s=np.full(len(bound), LAUNCH_S),
        site=hidden_size * 2.0**36 + sizes.width * 2.0**18 + experts * 2.0**6 + experts_per_token,
    )


def _loads(
    tokens: Column, experts: Column, experts_per_token: Column, skew: Column
) -> tuple[Column, Column]:
    """Share of experts that get a token, and tiles of rows for each expert, each (n,)."""
    cases = np.column_stack([tokens, experts, experts_per_token, skew])
    unique, place = np.unique(cases, axis=0, return_inverse=True)
    results = np.array([_load(*map(float, case)) for case in unique]).reshape(-1, 2)
    covered, tiles = results[place.ravel()].T
    return covered, tiles


@lru_cache(maxsize=65_536)
def _load(
    tokens: float, experts: float, experts_per_token: float, skew: float
) -> tuple[float, float]:
    """Share of experts that get a token, and mean number of tiles of each expert."""
    total = tokens * experts_per_token
    if skew == 0.0:
        covered = min(1.0, total / experts)
        return covered, covered * float(np.ceil(max(1.0, total / experts) / _TILE))
    # Loads at evenly spaced quantiles of a bounded power law, normalised to their total.
    quantiles = (np.arange(experts) + 0.5) / experts
    power, most = 1.0 - skew, max(_LARGEST_SHARE * tokens, 2.0)
    loads = (1.0 + quantiles * (most**power - 1.0)) ** (1.0 / power)
    loads *= total / loads.sum()
    covered = float(np.minimum(loads, 1.0).mean())
    tiles = np.minimum(loads, 1.0) * np.ceil(np.maximum(loads, 1.0) / _TILE)
    return covered, float(tiles.mean())
