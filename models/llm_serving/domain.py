"""Domain of a training set of deployments: the devices, models and settings of its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from typing import Final, Self

import numpy as np

from forerun.data.columns import Mask
from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.model import LanguageModel
from forerun.data.number_formats import GGUF
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import has_other_settings, with_measured_settings
from forerun.features.llm_serving.features import FEWEST_TOGETHER
from forerun.features.llm_serving.operators import layer_counts, parameter_counts
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.limit import Limit

FEW: Final = Limit(
    f"hardly any run with fewer than {FEWEST_TOGETHER:.0f} requests in flight was measured",
    severity="transfer",
)
ARRIVALS: Final = Limit(
    "no Poisson arrivals were measured, only a fixed number of requests in flight",
    severity="transfer",
)
OTHER_MAKERS: Final = frozenset({"amd", "intel"})
"""Makers of GPUs none of which is in the training set. In `llm_inference_bench` intervals hold 91,
76 and 41 % of the runs on an MI250, an MI300X and a Max 1550."""
MAKER: Final = Limit("serving was measured on devices of other makers")
OF_FILES: Final = Limit("no run with weights in a format of GGUF files was measured")
Sizes = tuple[int, int, int, int]
"""Layers, width, and total and active parameters: what tells models apart."""


@dataclass(frozen=True, slots=True)
class KnownRuns:
    """What the runs of a training set have.

    Attributes:
        devices: their devices.
        models: their models.
        formats: number format of weights -> devices with runs in it.
        campaigns: model, formats, engine and its release, where it is named -> devices with runs.
    """

    devices: KnownDevices = field(default_factory=KnownDevices)
    models: tuple[Sizes, ...] = ()
    formats: Mapping[str, KnownDevices] = field(default_factory=dict)
    campaigns: Mapping[str, KnownDevices] = field(default_factory=dict)

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """What these deployments have."""
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
            {form: KnownDevices.of(own) for form, own in sorted(formats.items())},
            {name: KnownDevices.of(own) for name, own in sorted(campaigns.items())},
        )

    def have(self, queries: Sequence[Query]) -> tuple[Mask, Mask]:
        """Whether there are runs of the model under the engine's release, each (n,).

        Returns:
            Whether there are any on the device, and whether there are any on some device.
        """
        found = [self.campaigns.get(_campaign(query.deployment)) for query in queries]
        here = [
            own is not None and query.device in own
            for query, own in zip(queries, found, strict=True)
        ]
        anywhere = [own is not None for own in found]
        return np.array(here, dtype=np.bool_), np.array(anywhere, dtype=np.bool_)

    def have_settings(self, queries: Sequence[Query]) -> Mask:
        """Whether there are runs with the formats and the settings of each of n deployments, (n,).

        A format counts where it was measured on the device, or, of other devices, on any.
        """
        return np.array(
            [not self._new_formats(query) and not _not_varied(query) for query in queries],
            dtype=np.bool_,
        )

    def limits_of_load(self, query: Query) -> list[Limit]:
        """What the number or rate of requests of a deployment has that no run has."""
        load = query.deployment.load
        if load.concurrency is None:
            return [ARRIVALS]
        return [FEW] if load.concurrency < FEWEST_TOGETHER else []

    def limits_at_any_load(self, query: Query) -> list[Limit]:
        """What else a deployment has that no run has, one limit each."""
        new, far = [], []
        if not self.have([query])[0].all():
            if query.device.vendor in OTHER_MAKERS and query.device not in self.devices:
                far.append(MAKER)
            elif query.device not in self.devices:
                new.append("serving was measured on other devices")
            if sizes(query.deployment) not in self.models:
                new.append("serving was measured with other models")
            formats = self._new_formats(query)
            if not GGUF.keys().isdisjoint(formats):
                far.append(OF_FILES)
            elif formats:
                where = f"on {query.device.name}" if query.device in self.devices else "anywhere"
                new.append(f"no run with weights in {' and '.join(formats)} was measured {where}")
            if not new and not far:
                new.append("no run of this model in this release was measured on this device")
        others = [Limit(line, severity="transfer") for line in (*new, *_not_varied(query))]
        return [*far, *others]

    def _new_formats(self, query: Query) -> list[str]:
        """Number formats of the weights that were not measured."""
        is_known = query.device in self.devices
        return sorted(
            form
            for form in _formats(query.deployment.model)
            if form not in self.formats or (is_known and query.device not in self.formats[form])
        )


def _campaign(deployment: LlmDeployment) -> str:
    """Model, number formats of its weights, engine and release, as one name."""
    engine, model = deployment.engine, deployment.model
    formats = "+".join(sorted(_formats(model)))
    return f"{engine.name} {engine.version}, {'x'.join(map(str, sizes(deployment)))} {formats}"


def sizes(deployment: LlmDeployment) -> Sizes:
    """What identifies a model: its layers, width, and total and active parameters."""
    model = deployment.model
    return (len(model.layers), model.hidden_size, *parameter_counts(model))


@lru_cache(maxsize=256)
def _formats(model: LanguageModel) -> frozenset[str]:
    """Number formats of the weights; both half precisions count as one."""
    found = {form for _, layer in layer_counts(model) for form in astuple(layer)}
    return frozenset("bf16" if form == "fp16" else form for form in found)


def _not_varied(query: Query) -> list[str]:
    """A sentence for each setting of a deployment that no measured run varies."""
    if not has_other_settings(query):
        return []
    usual, own = with_measured_settings(query).deployment, query.deployment
    settings = {
        "drafted tokens": own.engine.draft_tokens > 0,
        "a prefix cache": own.load.cached_share > 0.0,
        "prompts in one piece": own.engine.chunked_prefill != usual.engine.chunked_prefill,
        "launches that are not recorded": own.engine.graphs != usual.engine.graphs,
        "so old a release of vLLM": own.engine.version != usual.engine.version,
    }
    return [
        f"no measured run has {name}: the effect is that of the closed form"
        for name, is_own in settings.items()
        if is_own
    ]
