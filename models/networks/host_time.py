"""Predicts the host time to dispatch a network, from measured small batches.

In eager mode the framework spends a nearly constant time per operator, and the latency of small
batches is that time (30 to 60 microseconds per operator in published tables). Its logarithm is a
linear mixed model: fixed effects of the execution mode, and a random effect per host, because
spec sheets do not describe the host's CPU, driver and container. The fixed effects have normal
priors (`TERMS`), and fitting is Bayesian linear regression.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, groups_of
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.caches import Recent
from forerun.features.kernels.rows import TrainingStep, lowering_of
from forerun.features.lowering import lowered
from forerun.features.lowering.mode import casts_of, torch_version
from forerun.features.networks.dispatch import attentions, dispatched_operators, product_share
from forerun.features.operators.adapters import adapted_layers, behind_adapters
from forerun.models.domain.feature_range import DEVICES_KEPT, Sheet, same_sheet, sheet
from forerun.models.equal_runs import equal_but_batch, on_any_device

OVERLAP = 4.0
"""Order of the norm that combines device and host time: where both are equal, the latency is 19 %
longer than either. Published latencies of ResNet-50 rise as gradually around the batch size at
which the device time overtakes the host time."""
_FUSED_FROM = 2.0
STEP_FORWARD_PASSES = 3.6
"""Host time of a training step over that of a forward pass."""
ADAPTER_OPERATORS = 2.0
"""Operators that an adapter adds to a forward pass: two products, a scaling and a sum, of which
half is saved because the backward pass has no gradient of the frozen weight. A LoRA step on 256
tokens (Qwen-7B on an A100) is measured at 1.2 s and predicted at 1.3 s; the figure was set with
this measurement in view."""

EAGER_ATTENTION_OPERATORS = 6.0
"""Operators that attention in steps adds to a forward pass: transformers traced both ways have 5 to
7 more operators per attention (BERT, ALBERT, Pythia)."""


def _modern(query: Query) -> bool:
    return torch_version(query.software) >= _FUSED_FROM


def _autocast(query: Query) -> bool:
    return casts_of(query.network.precision) == "autocast" and not query.software.fuses


def _without_python(query: Query) -> bool:
    return query.software.runtime in ("torchscript", "onnxruntime")


def _products_in_training(query: Query) -> float:
    if query.software.fuses or query.network.phase != "training":
        return 0.0
    return product_share(query.network.graph)


def _without_optimizer(query: Query) -> bool:
    training = query.network.training
    return (
        query.network.phase == "training" and training is not None and training.optimizer == "none"
    )


class _Term(NamedTuple):
    mean: float
    deviation: float
    value: Callable[[Query], float]


TERMS: Mapping[str, _Term] = {
    "operator": _Term(float(np.log(30e-6)), 0.4, lambda q: not q.software.fuses),
    "fused_launch": _Term(float(np.log(35e-6)), 0.4, lambda q: q.software.fuses),
    "recorded": _Term(float(np.log(0.5)), 0.7, lambda q: q.software.runtime == "reduce-overhead"),
    "engine": _Term(float(np.log(5.0 / 35.0)), 0.5, lambda q: q.software.runtime == "tensorrt"),
    "without_python": _Term(float(np.log(0.7)), 0.3, _without_python),
    "autocast": _Term(float(np.log(1.2)), 0.15, _autocast),
    "training": _Term(
        float(np.log(STEP_FORWARD_PASSES)), 0.1, lambda q: q.network.phase == "training"
    ),
    "products_in_training": _Term(0.65, 0.15, _products_in_training),
    "without_optimizer": _Term(float(np.log(0.7)), 0.3, _without_optimizer),
    "before_2_0": _Term(float(np.log(1.4)), 0.2, lambda q: not _modern(q)),
}
"""Fixed effect -> mean and standard deviation of its prior in log units, and its indicator for a
run. `operator`: seconds per operator in eager fp32 inference on torch 2. `fused_launch`: seconds
per kernel of a compiled network, guards and wrapper included. The others are factors on these.
`products_in_training` is proportional to the share of matrix products among the operators: each
dispatches two products, transposes and a sum in the backward pass, and its weights are cast under
autocast. `without_optimizer` marks steps without a weight update, as tables of transformers time
them. The priors are round figures, wide enough for the training rows to move them; the two for
training are those of eager steps on an H200 in `torch_gpu`.
"""

HOST_DEVIATION = 0.25
"""Standard deviation of the log time between hosts: published rows of one network, execution mode
and framework generation differ by about as much between tables."""
NOISE_DEVIATION = 0.12
"""Standard deviation of the log time between networks on one host."""
FARTHEST = 2.0
"""Standard deviations from the model's mean beyond which a time is not plausible as host time."""


@dataclass(frozen=True)
class HostEffect:
    """Posterior of the random effect of one host, in log units.

    Attributes:
        sheet: spec sheet of the device that the host drives, which identifies the host.
        modern: whether the framework is torch 2 or newer.
        mean: posterior mean.
        variance: posterior variance.
    """

    sheet: Sheet
    modern: bool
    mean: float
    variance: float


@dataclass(frozen=True)
class HostTime:
    """Mixed model of the host time.

    Attributes:
        mean: (len(TERMS),) posterior mean of the fixed effects.
        covariance: (len(TERMS), len(TERMS)) posterior covariance of the fixed effects.
        effects: random effects of hosts that were adapted to.
    """

    mean: Column = field(default_factory=lambda: np.array([t.mean for t in TERMS.values()]))
    covariance: Matrix = field(
        default_factory=lambda: np.diag([t.deviation**2 for t in TERMS.values()])
    )
    effects: tuple[HostEffect, ...] = ()

    def fit(self, queries: Sequence[Query], seconds: Column, hosts: Sequence[str]) -> Self:
        """Fit the fixed effects to host-bound runs.

        The random effects of these hosts are discarded: each table measures a GPU in one machine,
        so the effect belongs to the machine rather than the GPU.

        Args:
            queries: n network runs.
            seconds: (n,) host time of each.
            hosts: n keys; rows with the same key share a random effect.
        """
        design_matrix, calls = _design_matrix(queries)
        target = np.log(seconds / calls)
        prior = HostTime()
        names, host = np.unique(np.array(hosts), return_inverse=True)
        joint = np.hstack([design_matrix, np.eye(len(names))[host]])
        center = np.concatenate([prior.mean, np.zeros(len(names))])
        precision = np.zeros((len(center), len(center)))
        terms = len(TERMS)
        precision[:terms, :terms] = np.linalg.inv(prior.covariance)
        precision[terms:, terms:] = np.eye(len(names)) / HOST_DEVIATION**2
        weights = 1.0 / NOISE_DEVIATION**2
        posterior: Matrix = np.asarray(np.linalg.inv(precision + weights * joint.T @ joint))
        mean: Column = posterior @ (precision @ center + weights * joint.T @ target)
        return type(self)(mean[:terms], np.array(posterior[:terms, :terms], dtype=np.float64))

    def adapt(self, queries: Sequence[Query], seconds: Column) -> Self:
        """Estimate the random effects of these devices' hosts; fixed effects stay.

        Devices with the same spec sheet count as one host, as in `seconds`.

        Args:
            queries: n host-bound network runs.
            seconds: (n,) host time of each.
        """
        expected, _ = self._without_effects(queries)
        errors = np.log(seconds) - expected
        hosts = [(sheet(q.device), _modern(q)) if q.device.has_sheet else None for q in queries]
        effects = list(self.effects)
        remaining = dict.fromkeys(host for host in hosts if host is not None)
        while remaining:
            device_sheet, modern = next(iter(remaining))
            equal = {(s, m) for s, m in remaining if m == modern and same_sheet(s, device_sheet)}
            remaining = {host: None for host in remaining if host not in equal}
            rows = [i for i, host in enumerate(hosts) if host in equal]
            variance = 1.0 / (1.0 / HOST_DEVIATION**2 + len(rows) / NOISE_DEVIATION**2)
            mean = variance * errors[rows].sum() / NOISE_DEVIATION**2
            effects = [
                e for e in effects if not (same_sheet(e.sheet, device_sheet) and e.modern == modern)
            ]
            effects.append(HostEffect(device_sheet, modern, float(mean), float(variance)))
        return type(self)(self.mean, self.covariance, tuple(effects))

    def seconds(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Host time of each run in seconds, and the standard deviation of its log, each (n,)."""
        groups = list(equal_but_batch(queries).values())
        place = np.empty(len(queries), dtype=np.intp)
        for index, rows in enumerate(groups):
            place[rows] = index
        firsts = [queries[rows[0]] for rows in groups]
        expected, variance = self._without_effects(firsts)
        for row, query in enumerate(firsts):
            effect = self._effect(query.device, _modern(query))
            expected[row] += effect[0]
            variance[row] += effect[1] + NOISE_DEVIATION**2
        return np.exp(expected)[place], np.sqrt(variance)[place]

    def plausible(self, queries: Sequence[Query], seconds: Column) -> Mask:
        """Which of n times lie within `FARTHEST` deviations of the mean over hosts, shape (n,).

        Times outside are device times mistaken for host times.

        Args:
            queries: n network runs.
            seconds: (n,) candidate host times.
        """
        expected, variance = self._without_effects(queries)
        reach = FARTHEST * np.sqrt(variance + HOST_DEVIATION**2 + NOISE_DEVIATION**2)
        with np.errstate(divide="ignore"):
            return np.asarray(np.abs(np.log(seconds) - expected) <= reach)

    def _without_effects(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        design_matrix, calls = _design_matrix(queries)
        variance = np.einsum("ij,jk,ik->i", design_matrix, self.covariance, design_matrix)
        return np.log(calls) + design_matrix @ self.mean, variance

    def _known(self, device_sheet: Sheet, modern: bool) -> list[HostEffect]:
        """Effects of known hosts whose devices have this sheet."""
        known = self._recent.get((device_sheet, modern))
        if known is None:
            known = [
                e for e in self.effects if e.modern == modern and same_sheet(e.sheet, device_sheet)
            ]
            self._recent.put((device_sheet, modern), known)
        return known

    @cached_property
    def _recent(self) -> Recent[tuple[Sheet, bool], list[HostEffect]]:
        return Recent(DEVICES_KEPT)

    def _effect(self, device: Device, modern: bool) -> tuple[float, float]:
        """Mean and variance of the effect over a device's known hosts, or the prior's if none."""
        unknown = (0.0, HOST_DEVIATION**2)
        if not self.effects or not device.has_sheet:
            return unknown
        known = self._known(sheet(device), modern)
        if not known:
            return unknown
        means = np.array([e.mean for e in known])
        variances = np.array([e.variance for e in known])
        return float(means.mean()), float(variances.mean() + means.var())


def _design_matrix(queries: Sequence[Query]) -> tuple[Matrix, Column]:
    """The design matrix, (n, len(TERMS)), and the dispatched operators or kernels, (n,)."""
    design_matrix, calls = np.zeros((len(queries), len(TERMS))), np.ones(len(queries))
    # No term depends on the device.
    for rows in groups_of(map(on_any_device, queries)).values():
        query = queries[rows[0]]
        network, software = query.network, query.software
        if software.fuses:
            forward = lowered(*lowering_of(query)).launches
        else:
            forward = dispatched_operators(network.graph)
            if network.attention == "eager":
                forward += EAGER_ATTENTION_OPERATORS * attentions(network.graph)
        calls[rows] = _calls(network, max(1.0, forward))
        design_matrix[rows] = [term.value(query) for term in TERMS.values()]
    return design_matrix, calls


def _calls(network: Network, forward: float) -> float:
    """Operators or kernels dispatched in a run, in units of adapter-free forward passes.

    Args:
        network: a run; training steps may have micro-batches, adapters and recomputation.
        forward: operators or kernels of one forward pass.
    """
    if network.phase != "training" or network.training is None:
        return forward
    step = TrainingStep.of(network.training)
    if step.lora_rank:
        later = len(behind_adapters(network.graph, step.lora_targets)) / len(network.graph)
        forward *= (1.0 + (STEP_FORWARD_PASSES - 1.0) * later) / STEP_FORWARD_PASSES
        forward += ADAPTER_OPERATORS * len(adapted_layers(network.graph, step.lora_targets))
    return forward * step.micro_batches * (1.0 + step.recomputed / STEP_FORWARD_PASSES)
