"""Structural features of architectures in a search space: counts, arithmetic, depth, launches.

NAS-Bench-201 (Dong and Yang 2020): a cell of six edges between four nodes, in a network of three
stages of five cells. FBNet (Wu et al. 2019): 22 blocks, here on 32 x 32 images. OFA-MobileNetV3
(Cai et al. 2020): five stages of two to four blocks at a chosen image size.

Runtimes differ in the edges of a cell that they run: PyTorch computes edges that do not reach the
output, while a compiler for phones prunes them. Every count is therefore given twice, over all
edges and over live ones; a device's measurements decide which of the two it follows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from forerun.data.errors import BadArchitecture
from forerun.data.shapes import Bool, Float64, Int
from forerun.data.workload import Architecture, Space

Codes = Int[np.ndarray, "n places"]
"""Choices of n architectures of one space, as many per architecture as `PLACES` says."""

NONE, SKIP, CONV1, CONV3, POOL = range(5)
"""Choices at an edge of a NAS-Bench-201 cell."""

PLACES: Final[Mapping[Space, int]] = {"nb201": 6, "fbnet": 22, "ofa": 46}
"""Number of choices of an architecture, by space."""

_EDGES: Final = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
_CELLS = 15
_CELL_MACS_M: Final = np.array([0.0, 0.0, 0.262144, 2.359296, 0.0])
_EDGE_LAUNCHES: Final = np.array([1.0, 0.0, 3.0, 3.0, 1.0])

NB201_FEATURES: Final = (
    "skips",
    "conv1x1",
    "conv3x3",
    "pools",
    "live_skips",
    "live_conv1x1",
    "live_conv3x3",
    "live_pools",
    "log_macs",
    "log_live_macs",
    "launches",
    "live_launches",
    "live_adds",
    "live_nodes",
    "live_edges_from_input",
    "deepest_path",
    "heaviest_path",
    "has_path",
)


def nb201_features(codes: Int[np.ndarray, "n 6"]) -> Float64[np.ndarray, "n 18"]:
    """Counts of a NAS-Bench-201 cell, shape (n, 18), columns `NB201_FEATURES`.

    Args:
        codes: choices at the edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3, shape (n, 6).
    """
    live = live_edges(codes)
    every, alive = _counts(codes, np.ones_like(live)), _counts(codes, live)
    macs, live_macs = every @ _CELL_MACS_M, alive @ _CELL_MACS_M
    ends = np.array([end for _, end in _EDGES])
    into = np.stack([live[:, ends == node].sum(axis=1) for node in (1, 2, 3)], axis=1)
    columns = [
        *every[:, SKIP:].T,
        *alive[:, SKIP:].T,
        np.log(_CELLS * macs + 7.78),
        np.log(_CELLS * live_macs + 7.78),
        every @ _EDGE_LAUNCHES,
        alive @ _EDGE_LAUNCHES,
        np.maximum(into - 1, 0).sum(axis=1),
        (into > 0).sum(axis=1),
        live[:, [0, 1, 3]].sum(axis=1),
        _longest_path(codes, live, np.array([0.0, 0.0, 1.0, 1.0, 1.0])),
        _longest_path(codes, live, np.array([0.0, 0.1, 1.0, 3.0, 1.0])),
        live.any(axis=1),
    ]
    return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)


def live_edges(codes: Int[np.ndarray, "n 6"]) -> Bool[np.ndarray, "n 6"]:
    """Edges on a path from input to output without any `none`, shape (n, 6)."""
    there = codes != NONE
    fed = np.zeros((len(codes), 4), dtype=np.bool_)
    used = np.zeros((len(codes), 4), dtype=np.bool_)
    fed[:, 0] = used[:, 3] = True
    for edge, (start, end) in enumerate(_EDGES):
        fed[:, end] |= fed[:, start] & there[:, edge]
    for edge, (start, end) in reversed(list(enumerate(_EDGES))):
        used[:, start] |= used[:, end] & there[:, edge]
    starts, ends = np.array(_EDGES).T
    return np.asarray(there & fed[:, starts] & used[:, ends], dtype=np.bool_)


def _counts(
    codes: Int[np.ndarray, "n 6"], kept: Bool[np.ndarray, "n 6"]
) -> Float64[np.ndarray, "n 5"]:
    """Number of edges with each of the five choices, shape (n, 5)."""
    chosen = (codes[:, :, None] == np.arange(5)) & kept[:, :, None]
    return np.asarray(chosen.sum(axis=1), dtype=np.float64)


def _longest_path(
    codes: Int[np.ndarray, "n 6"], live: Bool[np.ndarray, "n 6"], weights: Float64[np.ndarray, " 5"]
) -> Float64[np.ndarray, " n"]:
    """Largest sum of weights over paths of live edges from input to output; 0 without a path."""
    best = np.full((len(codes), 4), -np.inf)
    best[:, 0] = 0.0
    for edge, (start, end) in enumerate(_EDGES):
        reach = np.where(live[:, edge], best[:, start] + weights[codes[:, edge]], -np.inf)
        best[:, end] = np.maximum(best[:, end], reach)
    return np.where(np.isfinite(best[:, 3]), best[:, 3], 0.0)


_FBNET_CHOICES: Final = (
    (3, 1, 1),
    (3, 1, 2),
    (3, 3, 1),
    (3, 6, 1),
    (5, 1, 1),
    (5, 1, 2),
    (5, 3, 1),
    (5, 6, 1),
)
"""Kernel, expansion and groups of each choice; 8 is the skip."""
_FBNET_SKIP = 8
_FBNET_STAGES: Final = (
    (16, 1, 32, 1),
    (24, 4, 32, 1),
    (32, 4, 16, 2),
    (64, 4, 8, 2),
    (112, 4, 8, 1),
    (184, 4, 4, 2),
    (352, 1, 4, 1),
)
"""Channels, blocks, output height, and stride of the first block, per stage."""

FBNET_FEATURES: Final = (
    "blocks",
    "blocks_kernel5",
    "blocks_grouped",
    "blocks_expand3",
    "blocks_expand6",
    "log_macs",
    "pointwise_macs",
    "depthwise_macs",
    "depthwise_macs_kernel5",
    "activations",
    "log_parameters",
    "macs_at_32",
    "macs_at_16",
    "macs_at_8",
    "macs_at_4",
    "blocks_at_32",
    "blocks_at_16",
    "blocks_at_8",
    "blocks_at_4",
)


def fbnet_features(codes: Int[np.ndarray, "n 22"]) -> Float64[np.ndarray, "n 19"]:
    """Counts of an FBNet, shape (n, 19), columns `FBNET_FEATURES`; macs in millions.

    Args:
        codes: choices of the 22 blocks, shape (n, 22).
    """
    costs = _fbnet_costs()
    chosen = costs[np.arange(codes.shape[1]), codes]
    pointwise, depthwise, activations, parameters = np.moveaxis(chosen, 2, 0)
    macs = pointwise + depthwise
    block = (codes != _FBNET_SKIP).astype(np.float64)
    kernel, expand, groups = np.array([*_FBNET_CHOICES, (0, 0, 0)]).T
    heights = np.array([height for _, n, height, _ in _FBNET_STAGES for _ in range(n)])
    columns = [
        block.sum(axis=1),
        (kernel[codes] == 5).sum(axis=1),
        (groups[codes] == 2).sum(axis=1),
        (expand[codes] == 3).sum(axis=1),
        (expand[codes] == 6).sum(axis=1),
        np.log(macs.sum(axis=1) + 2.5),
        pointwise.sum(axis=1),
        depthwise.sum(axis=1),
        (depthwise * (kernel[codes] == 5)).sum(axis=1),
        activations.sum(axis=1),
        np.log(parameters.sum(axis=1) + 0.1),
        *(macs[:, heights == height].sum(axis=1) for height in (32, 16, 8, 4)),
        *(block[:, heights == height].sum(axis=1) for height in (32, 16, 8, 4)),
    ]
    return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)


FBNET_LAUNCHES: Final = ("projections", "launches")


def fbnet_launches(codes: Int[np.ndarray, "n 22"]) -> Float64[np.ndarray, "n 2"]:
    """Executed kernels of an FBNet, shape (n, 2), columns `FBNET_LAUNCHES`.

    A block launches three convolutions, and with groups two assumed channel shuffles. A skip
    launches nothing, except at the start of a stage, where it is a projection by a convolution.

    Args:
        codes: choices of the 22 blocks, shape (n, 22).
    """
    sizes = np.array([blocks for _, blocks, _, _ in _FBNET_STAGES])
    begins = np.isin(np.arange(sizes.sum()), np.cumsum(sizes) - sizes)
    skipped = codes == _FBNET_SKIP
    grouped = np.array([groups == 2 for _, _, groups in _FBNET_CHOICES] + [False])[codes]
    projections = (skipped & begins).sum(axis=1)
    launches = 3 * (~skipped).sum(axis=1) + projections + 2 * grouped.sum(axis=1)
    return np.stack([projections, launches], axis=1).astype(np.float64)


def _fbnet_costs() -> Float64[np.ndarray, "22 9 4"]:
    """Pointwise and depthwise macs, activations and parameters, millions, shape (22, 9, 4)."""
    costs = np.zeros((PLACES["fbnet"], len(_FBNET_CHOICES) + 1, 4))
    layer, before = 0, 16
    for channels, blocks, height, first_stride in _FBNET_STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            inside, outside = (height * stride) ** 2, height**2
            for choice, (kernel, expand, groups) in enumerate(_FBNET_CHOICES):
                wide = before * expand
                widen, narrow = before * wide / groups, wide * channels / groups
                deep = kernel**2 * wide
                costs[layer, choice] = (
                    widen * inside + narrow * outside,
                    deep * outside,
                    wide * (inside + outside) + channels * outside,
                    widen + deep + narrow,
                )
            if before != channels:
                straight = before * channels
                costs[layer, _FBNET_SKIP] = (straight * outside, 0.0, channels * outside, straight)
            layer, before = layer + 1, channels
    return costs / 1e6


_OFA_STAGES: Final = ((24, 2), (40, 2), (80, 2), (112, 1), (160, 2))
"""Channels and stride of the first block of each of the five stages; the input has 16 channels."""
_OFA_DEPTH = 4

OFA_FEATURES: Final = (
    "blocks",
    "blocks_kernel5",
    "blocks_kernel7",
    "mean_expansion",
    "image_size",
    "log_macs",
    "log_pointwise_macs",
    "log_depthwise_macs",
    "log_activations",
    "log_parameters",
    *(f"macs_in_stage_{stage}" for stage in range(len(_OFA_STAGES))),
    *(f"blocks_in_stage_{stage}" for stage in range(len(_OFA_STAGES))),
)


def ofa_features(codes: Int[np.ndarray, "n 46"]) -> Float64[np.ndarray, "n 20"]:
    """Counts of an OFA-MobileNetV3, shape (n, 20), columns `OFA_FEATURES`; macs in millions.

    Args:
        codes: kernel sizes and expansions of 20 blocks, depths of 5 stages, image size: (n, 46).
    """
    n, stages = len(codes), len(_OFA_STAGES)
    kernel = codes[:, :20].reshape(n, stages, _OFA_DEPTH).astype(np.float64)
    expand = codes[:, 20:40].reshape(n, stages, _OFA_DEPTH).astype(np.float64)
    there = np.arange(_OFA_DEPTH) < codes[:, 40:45, None]
    size = codes[:, 45].astype(np.float64)
    sums = np.zeros((4, n, stages))
    before, side = 16, size / 2
    for stage, (channels, stride) in enumerate(_OFA_STAGES):
        for block in range(_OFA_DEPTH):
            inside = side**2
            side = np.ceil(side / stride) if block == 0 else side
            wide, outside = before * expand[:, stage, block], side**2
            deep = kernel[:, stage, block] ** 2 * wide
            row = (
                wide * (before * inside + channels * outside),
                deep * outside,
                wide * (inside + outside) + channels * outside,
                wide * (before + channels) + deep,
            )
            sums[:, :, stage] += np.where(there[:, stage, block], np.stack(row), 0.0)
            before = channels
    pointwise, depthwise, activations, parameters = sums / 1e6
    depth = there.sum(axis=(1, 2))
    columns = [
        depth,
        (there & (kernel == 5)).sum(axis=(1, 2)),
        (there & (kernel == 7)).sum(axis=(1, 2)),
        (there * expand).sum(axis=(1, 2)) / depth,
        size,
        *(np.log(q.sum(axis=1)) for q in (pointwise + depthwise, pointwise, depthwise)),
        *(np.log(q.sum(axis=1)) for q in (activations, parameters)),
        *(pointwise + depthwise).T,
        *there.sum(axis=2).T,
    ]
    return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)


_FEATURES: Final[Mapping[Space, Callable[[Codes], Float64[np.ndarray, "n features"]]]] = {
    "nb201": nb201_features,
    "fbnet": fbnet_features,
    "ofa": ofa_features,
}


def features_of(space: Space, codes: Codes) -> Float64[np.ndarray, "n features"]:
    """Features of n architectures of one space, shape (n, features of the space)."""
    return _FEATURES[space](codes)


def codes_of(architectures: Sequence[Architecture]) -> Codes:
    """Choices of n architectures of one space, shape (n, places).

    Raises:
        BadArchitecture: an architecture's number of choices differs from its space's.
    """
    for architecture in architectures:
        if len(architecture.operators) != PLACES[architecture.space]:
            raise BadArchitecture(
                f"An architecture of {architecture.space} has {PLACES[architecture.space]} "
                f"choices, this one {len(architecture.operators)}."
            )
    return np.array([a.operators for a in architectures], dtype=np.int64)


def random_codes(space: Space, count: int, seed: int = 0) -> Int[np.ndarray, "{count} places"]:
    """Choices drawn uniformly from a space, shape (count, places), as typical architectures."""
    generator = np.random.default_rng(seed)
    if space == "nb201":
        return generator.integers(0, POOL + 1, (count, PLACES[space]))
    if space == "fbnet":
        return generator.integers(0, _FBNET_SKIP + 1, (count, PLACES[space]))
    kernels = generator.choice([3, 5, 7], (count, 20))
    expansions = generator.choice([3, 4, 6], (count, 20))
    depths = generator.integers(2, _OFA_DEPTH + 1, (count, len(_OFA_STAGES)))
    sizes = generator.choice(np.arange(128, 225, 4), (count, 1))
    return np.concatenate([kernels, expansions, depths, sizes], axis=1)


def present_choices(space: Space, codes: Codes) -> Codes:
    """Choices that affect the network, shape (n, places); those of absent OFA blocks are 0."""
    if space != "ofa":
        return codes
    there = np.arange(_OFA_DEPTH) < codes[:, 40:45, None]
    blocks = there.reshape(len(codes), -1)
    return np.concatenate([codes[:, :20] * blocks, codes[:, 20:40] * blocks, codes[:, 40:]], axis=1)


COARSE: Final[Mapping[Space, tuple[int, ...]]] = {
    "nb201": tuple(map(NB201_FEATURES.index, ("log_macs", "log_live_macs", "launches"))),
    "fbnet": tuple(map(FBNET_FEATURES.index, ("blocks", "log_macs", "log_parameters"))),
    "ofa": tuple(map(OFA_FEATURES.index, ("blocks", "log_macs", "log_activations"))),
}
"""Columns that explain most of the times on any device: launches, arithmetic, memory."""
