"""Applicability domain of the serving models: devices, models and settings of the training runs."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from math import log
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.device import Device
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import Engine, LlmDeployment
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.weights import BYTES, LayerFormats
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import has_other_settings, with_measured_settings
from forerun.features.llm_serving.engine_settings import tokens_per_iteration
from forerun.features.llm_serving.features import FEWEST_TOGETHER
from forerun.features.llm_serving.operators import layer_counts, parameter_counts
from forerun.features.llm_serving.releases import is_before_runs, is_old, release
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.limit import Limit

FEW: Final = Limit(
    f"few runs with fewer than {FEWEST_TOGETHER:.0f} requests in flight were measured",
    severity="transfer",
)
ARRIVALS: Final = Limit(
    "no Poisson arrivals were measured, only a fixed number of requests in flight",
    severity="transfer",
)
OTHER_MAKERS: Final = frozenset({"amd", "intel"})
"""GPU vendors without any device in the training set."""
KNOWN_BACKENDS: Final = frozenset({("amd", "vllm")})
"""Vendors and engines whose intervals need no widening: in `llm_inference_bench`, they cover 98 and
93 % of the runs of vLLM on an MI250 and an MI300X."""
WIDER_OF_MAKERS: Final = 3.0
"""Factor on the log bounds of the time per output token, for other engines on these vendors' GPUs.
Without it, intervals cover 86, 44 and 42 % of the runs of llama.cpp on an MI250 and an MI300X, and
of both engines on a Max 1550. For each, the other two of these devices call for 2.8, 2.7 and 2.6.
"""
MAKER: Final = Limit("serving was measured only on devices of other vendors")
RELEASE: Final = Limit("the engine release is older than those of all measured runs of such models")
EARLIER: Final = float(np.log(1.7))
"""Logarithm of the factor on the upper bound of the time per output token, for releases that
precede all measured ones; chosen on runs of Qwen3 under SGLang 0.4 on an H20, see
`tests/public_cases`."""
NOWHERE: Final = KnownDevices()
FEWEST_RUNS: Final = 10
"""Runs of a number format from which its residuals are applied to other formats. With formats held
out, that reduces the error of the time per output token from 20 to 14 % (524 runs); with formats
that have fewer runs, it raises it from 8 to 27 % (100)."""
Sizes = tuple[int, int, int, int]
"""Layers, hidden size, total and active parameters; together they identify a model."""


def is_of_other_maker(device: Device) -> bool:
    """Whether no GPU of the device's vendor is in the training set; False for CPUs."""
    return device.kind == "gpu" and device.vendor in OTHER_MAKERS


def width_of_makers(queries: Sequence[Query]) -> Column:
    """Factor on the log bounds of the time per output token, by vendor and engine, (n,)."""
    unknown = [
        is_of_other_maker(query.device)
        and (query.device.vendor, query.deployment.engine.name) not in KNOWN_BACKENDS
        for query in queries
    ]
    return np.where(unknown, WIDER_OF_MAKERS, 1.0)


@dataclass(frozen=True, slots=True)
class KnownRuns:
    """What the runs of a training set cover.

    Attributes:
        devices: devices with runs.
        models: models with runs.
        formats: number format of the weights -> devices with runs.
        campaigns: model, formats, engine and named release -> devices with runs.
        well_measured: the same -> devices with at least `FEWEST_RUNS` runs.
        shortest_s: shortest measured time per output token, seconds.
    """

    devices: KnownDevices = field(default_factory=KnownDevices)
    models: tuple[Sizes, ...] = ()
    formats: Mapping[str, KnownDevices] = field(default_factory=dict)
    campaigns: Mapping[str, KnownDevices] = field(default_factory=dict)
    well_measured: Mapping[str, KnownDevices] = field(default_factory=dict)
    shortest_s: float = 0.0

    @classmethod
    def of(cls, queries: Sequence[Query], token_s: Column) -> Self:
        """Coverage of n deployments, with the time per output token of each, (n,), seconds."""
        formats: dict[str, list[Device]] = {}
        campaigns: dict[str, list[Device]] = {}
        for query in queries:
            for form in _formats(query.deployment.model):
                formats.setdefault(form, []).append(query.device)
            if query.deployment.engine.version:
                campaigns.setdefault(_campaign(query.deployment), []).append(query.device)
        return cls(
            KnownDevices.of([query.device for query in queries]),
            tuple(sorted({sizes(query.deployment) for query in queries})),
            {form: KnownDevices.of(devices) for form, devices in sorted(formats.items())},
            {name: KnownDevices.of(devices) for name, devices in sorted(campaigns.items())},
            {
                name: KnownDevices.of([one for one in runs if runs.count(one) >= FEWEST_RUNS])
                for name, runs in sorted(campaigns.items())
            },
            float(token_s.min()),
        )

    def slower(self, queries: Sequence[Query], token_s: Column) -> Column:
        """Logarithm of a factor on the upper bound of the time per output token, (n,).

        It widens the interval by `EARLIER` for releases earlier than all measured ones, and up to
        `least_s` for predictions below the shortest measured iteration, because host time and
        launches may take that long at least.

        Args:
            queries: the n deployments.
            token_s: (n,) predicted time per output token, seconds.
        """
        earlier = np.array([_is_earlier(query.deployment) for query in queries])
        short = np.log(np.maximum(self.least_s(queries) / token_s, 1.0))
        return np.where(earlier, EARLIER, 0.0) + short

    def least_s(self, queries: Sequence[Query]) -> Column:
        """The shortest measured iteration per token that a sequence gains in it, (n,), seconds."""
        tokens = [tokens_per_iteration(query.deployment.engine) for query in queries]
        return self.shortest_s / np.array(tokens)

    def too_short(self) -> Limit:
        """The limit that a time per output token is below those of all runs."""
        return Limit(f"no measured run took less than {1e3 * self.shortest_s:.2g} ms per token")

    def have(self, queries: Sequence[Query]) -> tuple[Mask, Mask]:
        """Whether runs cover the model under the engine's release, for n deployments.

        Returns:
            Whether there are runs on the same device, and whether there are runs on any, each (n,).
        """
        names: dict[tuple[int, int], str] = {}
        covered = []
        for query in queries:
            one = query.deployment
            key = id(one.model), id(one.engine)
            if key not in names:
                names[key] = _campaign(one)
            covered.append(self.campaigns.get(names[key]))
        here = [
            devices is not None and query.device in devices
            for query, devices in zip(queries, covered, strict=True)
        ]
        anywhere = [devices is not None for devices in covered]
        return np.array(here, dtype=np.bool_), np.array(anywhere, dtype=np.bool_)

    def in_measured_formats(self, queries: Sequence[Query]) -> list[Query]:
        """Replace weight formats without runs by the nearest well-measured one, in n deployments.

        That format has runs of the same model, release and device. Its residual transfers to other
        formats, and keeps formats with fewer bytes from being predicted slower.
        """
        models: dict[tuple[int, ...], LanguageModel] = {}
        replaced = []
        for query in queries:
            one = query.deployment
            key = (id(one.model), id(one.engine), id(query.device))
            if key not in models:
                models[key] = self._in_measured_format(one, query.device)
            if models[key] is not one.model:
                query = replace(query, workload=replace(one, model=models[key]))
            replaced.append(query)
        return replaced

    def _in_measured_format(self, deployment: LlmDeployment, device: Device) -> LanguageModel:
        """The deployment's model in the nearest format that is well measured on the device."""
        model, formats, name = deployment.model, _formats(deployment.model), _campaign(deployment)
        is_known = device in self.campaigns.get(name, NOWHERE)
        if not deployment.engine.version or len(formats) > 1 or is_known:
            return model
        (current,) = formats
        start = name.removesuffix(current)
        known = [
            form for form in self.formats if device in self.well_measured.get(start + form, NOWHERE)
        ]
        if not known:
            return model
        nearest = min(known, key=lambda form: abs(log(BYTES[form] / BYTES[current])))
        layers = (LayerFormats.all_in(nearest),) * len(model.layers)
        return replace(model, formats=replace(model.formats, layers=layers))

    def have_settings(self, queries: Sequence[Query]) -> Mask:
        """Whether runs cover the number formats and settings of n deployments, (n,).

        On a device with runs, a format must have been measured there; on other devices, anywhere.
        """
        return np.array(
            [not self._new_formats(query) and not _not_varied(query) for query in queries],
            dtype=np.bool_,
        )

    def limits_of_load(self, query: Query) -> list[Limit]:
        """Limits on the concurrency or arrival rate of a deployment."""
        load = query.deployment.load
        if load.concurrency is None:
            return [ARRIVALS]
        return [FEW] if load.concurrency < FEWEST_TOGETHER else []

    def limits_at_any_load(self, query: Query, *, of_user: bool = False) -> list[Limit]:
        """Limits on all properties of a deployment except its concurrency or arrival rate.

        Args:
            query: the deployment.
            of_user: whether the prediction relies on the user's own runs on the device.
        """
        new, far = [], []
        if not self.have([query])[0].all():
            is_known = of_user or query.device in self.devices
            if is_of_other_maker(query.device) and not is_known:
                far.append(MAKER)
            elif not is_known:
                new.append("serving was measured on other devices")
            if sizes(query.deployment) not in self.models:
                new.append("serving was measured with other models")
            formats = self._new_formats(query)
            if nowhere := [form for form in formats if form not in self.formats]:
                weights = " and ".join(nowhere)
                far.append(Limit(f"no run with weights in {weights} was measured anywhere"))
            elif formats:
                weights = " and ".join(formats)
                new.append(f"no run with weights in {weights} was measured on {query.device.name}")
            if _is_earlier(query.deployment):
                far.append(RELEASE)
            new += self._later_release(query.deployment.engine)
            if not new and not far and not of_user:
                new.append(
                    "no run of this model with this engine release was measured on this device"
                )
        others = [Limit(line, severity="transfer") for line in (*new, *_not_varied(query))]
        return [*far, *others]

    def _later_release(self, engine: Engine) -> list[str]:
        """A line if the release is later than those of all measured runs of the engine."""
        last = _last_releases(tuple(self.campaigns)).get(engine.name)
        if last is None or not release(engine) > release(last):
            return []
        return [f"{engine.name} {engine.version} is newer than all measured runs ({last.version})"]

    def _new_formats(self, query: Query) -> list[str]:
        """Number formats of the weights that no run covers."""
        is_known = query.device in self.devices
        return sorted(
            form
            for form in _formats(query.deployment.model)
            if form not in self.formats or (is_known and query.device not in self.formats[form])
        )


def _campaign(deployment: LlmDeployment) -> str:
    """Name of the runs of one model, in given number formats, on one engine release."""
    engine, model = deployment.engine, deployment.model
    formats = "+".join(sorted(_formats(model)))
    return f"{engine.name} {engine.version}, {'x'.join(map(str, sizes(deployment)))} {formats}"


@lru_cache(maxsize=16)
def _last_releases(campaigns: tuple[str, ...]) -> dict[str, Engine]:
    """Engine -> its latest release among campaigns, whose names begin with engine and release."""
    named = [name.partition(",")[0].partition(" ")[::2] for name in campaigns]
    engines = [Engine(name, version) for name, version in named]  # type: ignore[arg-type]
    known = [engine for engine in engines if np.isfinite(release(engine))]
    return {engine.name: engine for engine in sorted(known, key=release)}


def _is_earlier(deployment: LlmDeployment) -> bool:
    """Whether the release precedes all measured ones; old vLLM, with rates of its own, does not."""
    if not is_before_runs(deployment.engine):
        return False
    mixers = [layer.mixer for layer, _ in layer_counts(deployment.model)]
    return not (is_old(deployment.engine) and all(isinstance(one, Attention) for one in mixers))


def sizes(deployment: LlmDeployment) -> Sizes:
    """The sizes that identify a model: layers, hidden size, total and active parameters."""
    model = deployment.model
    return (len(model.layers), model.hidden_size, *parameter_counts(model))


@lru_cache(maxsize=256)
def _formats(model: LanguageModel) -> frozenset[str]:
    """Number formats of the weights; fp16 counts as bf16."""
    formats = {form for _, layer in layer_counts(model) for form in astuple(layer)}
    return frozenset("bf16" if form == "fp16" else form for form in formats)


def _not_varied(query: Query) -> list[str]:
    """A sentence for each setting of a deployment that no measured run varies."""
    if not has_other_settings(query):
        return []
    measured, asked = with_measured_settings(query).deployment, query.deployment
    settings = {
        "drafted tokens": asked.engine.draft_tokens > 0,
        "top-p sampling": asked.engine.sampling == "top_p",
        "a prefix cache": asked.load.cached_share > 0.0,
        "unchunked prefill": asked.engine.chunked_prefill != measured.engine.chunked_prefill,
        "kernel launches without CUDA graphs": asked.engine.graphs != measured.engine.graphs,
        "such an old vLLM release": asked.engine.version != measured.engine.version,
    }
    return [
        f"the effect of {name} comes from the closed form, not from measured runs"
        for name, differs in settings.items()
        if differs
    ]
