"""Fit every predictor on all its training rows and seal them as one artifact."""

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from forerun.data.bundle import find
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.models.architectures.latency import ArchitectureLatency
from forerun.models.artifact.sealed_folder import Manifest, check, seal
from forerun.models.artifact.stored_predictor import contained, load_part, stored_name
from forerun.models.benchmark_suites.history import BenchmarkHistory
from forerun.models.benchmark_suites.scores import BenchmarkBoost
from forerun.models.colocation.booster import ColocationBoost
from forerun.models.hls_designs.booster import DesignBoost
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory
from forerun.models.networks.booster import NetworkBoost
from forerun.models.networks.latency import NetworkLatency
from forerun.models.operators.booster import OperatorBoost
from forerun.models.power.operator_power import OperatorPower
from forerun.models.power.training_jobs import PowerCap
from forerun.models.predictor import Predictor
from forerun.models.processors.latency import CpuLatency
from forerun.models.router import Router
from forerun.models.serving.power import ServingPower
from forerun.training.protocols.architectures.nas_latency import NasLatencyProtocols
from forerun.training.protocols.benchmark_suites.lambda_bench import LambdaBenchProtocols
from forerun.training.protocols.benchmark_suites.mlperf_inference import MlperfInferenceProtocols
from forerun.training.protocols.benchmark_suites.ncpp import NcppProtocols
from forerun.training.protocols.colocation.contention import ContentionProtocols
from forerun.training.protocols.hls_designs.hlsyn import HLSynProtocols
from forerun.training.protocols.hls_designs.wa_hls4ml import WaHls4mlProtocols
from forerun.training.protocols.memory.gpumemnet import GpuMemNetProtocols
from forerun.training.protocols.memory.published_memory import PublishedMemoryProtocols
from forerun.training.protocols.networks.deepbench import CONVOLUTIONS, DeepBenchProtocols
from forerun.training.protocols.networks.neusight import NeuSightProtocols
from forerun.training.protocols.networks.onnxruntime_cpu import OnnxruntimeCpuProtocols
from forerun.training.protocols.networks.published_networks import PublishedNetworksProtocols
from forerun.training.protocols.networks.timm_bench import TimmBenchProtocols
from forerun.training.protocols.power.mlenergy import MlEnergyProtocols
from forerun.training.protocols.power.power_networks import DiffusionPower, ZeusNetworkPower
from forerun.training.protocols.power.torch_op_energy import TorchOpEnergyProtocols
from forerun.training.protocols.power.zeus_powercap import ZeusPowerCapProtocols
from forerun.training.protocols.protocol import DatasetProtocols
from forerun.training.tracking.record import TrainingRecord

Progress = Callable[[str], None]
Documents = Callable[[TrainingRecord], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One predictor and the datasets it is trained on.

    Attributes:
        predictor: unfitted.
        protocols: the dataset that it is trained on and evaluated by.
        others: further datasets, whose training rows are added.
    """

    predictor: Predictor
    protocols: DatasetProtocols
    others: tuple[DatasetProtocols, ...] = ()

    @property
    def all_protocols(self) -> tuple[DatasetProtocols, ...]:
        """`protocols`, then `others`."""
        return (self.protocols, *self.others)


RECIPES: tuple[Recipe, ...] = (
    Recipe(CpuLatency(), OnnxruntimeCpuProtocols()),
    Recipe(NetworkBoost(), TimmBenchProtocols()),
    Recipe(OperatorBoost(), NeuSightProtocols(), (DeepBenchProtocols(CONVOLUTIONS, ("fp32",)),)),
    Recipe(NetworkLatency(), PublishedNetworksProtocols()),
    Recipe(OperatorPower(), TorchOpEnergyProtocols(), (ZeusNetworkPower(), DiffusionPower())),
    Recipe(ArchitectureLatency(), NasLatencyProtocols()),
    Recipe(DesignBoost(), HLSynProtocols()),
    Recipe(BenchmarkBoost(), WaHls4mlProtocols()),
    Recipe(BenchmarkBoost(), NcppProtocols()),
    Recipe(BenchmarkHistory(), MlperfInferenceProtocols()),
    Recipe(BenchmarkHistory(), LambdaBenchProtocols()),
    Recipe(Memory(), GpuMemNetProtocols()),
    Recipe(CalibratedMemory(), PublishedMemoryProtocols()),
    Recipe(ColocationBoost(), ContentionProtocols()),
    Recipe(ServingPower(), MlEnergyProtocols()),
    Recipe(PowerCap(), ZeusPowerCapProtocols()),
)
"""Recipes in the order of preference in which the router asks the fitted predictors.

The predictors of `COMPOSED` contain others, which are fitted before them.

Only the convolutions of deepbench are training rows, since NeuSight's convolutions have a single
kernel size. Deepbench's matrix products, measured with libraries of 2015 to 2017, increased
the error on matrix products of newer, held-out GPUs (docs/protocols.md).
"""


DEVICE_TIMES = (NetworkBoost.name, OperatorBoost.name)
"""Predictors that `NetworkLatency` contains."""
COMPOSED: Mapping[str, tuple[str, ...]] = {
    NetworkLatency.name: DEVICE_TIMES,
    CalibratedMemory.name: (Memory.name,),
}
"""Predictor -> predictors that it contains."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A sealed artifact and the record of its training set.

    Attributes:
        folder: folder of the artifact.
        manifest: version and hashes.
        record: digests, grouping keys and number of the training rows.
    """

    folder: Path
    manifest: Manifest
    record: TrainingRecord


def train(
    output: Path,
    *,
    names: Sequence[str] = (),
    base: Path | None = None,
    data: Mapping[str, Path] | None = None,
    documents: Documents = lambda record: {},
    progress: Progress = lambda line: None,
) -> Trained:
    """Fit, compose, save and seal; an existing `output` is replaced only once all is done.

    Args:
        output: folder of the artifact.
        names: predictors to fit; all when empty. The artifact holds these and those of `base`.
        base: artifact whose other predictors are kept.
        data: dataset -> folder of its bundle, in place of the pulled one.
        documents: function from the training record to further files that are sealed with the
            predictors, name -> text (model card, scores).
        progress: called with a line of text that reports progress.

    Raises:
        InputError: an unknown predictor.
        BadArtifact: `base` is damaged.
        MissingData: a bundle is missing; the message names the command that fetches it.
    """
    recipes = recipes_of(names, composable(base))
    names_of_data = [protocols.dataset for c in recipes for protocols in c.all_protocols]
    bundles = {name: find(name, (data or {}).get(name)) for name in names_of_data}
    catalog = DeviceCatalog.load()
    parts = _parts(base, {c.predictor.name for c in recipes})
    record = TrainingRecord() if base is None else TrainingRecord.read(base)
    fitted: list[Predictor] = []
    for recipe in RECIPES:
        before = next((part for part in parts if part.name == recipe.predictor.name), None)
        if before is not None:
            parts.remove(before)
        if recipe in recipes:
            parts_of_rows = []
            for protocols in recipe.all_protocols:
                bundle = bundles[protocols.dataset]
                rows = protocols.training_rows(bundle, catalog)
                # Rows of a part of a bundle do not replace the record of the whole bundle.
                if protocols is recipe.protocols or not record.knows(bundle):
                    record = record.with_rows(bundle, rows)
                parts_of_rows.append(rows)
            training_rows = sum(parts_of_rows[1:], parts_of_rows[0])
            sources = " and ".join(protocols.dataset for protocols in recipe.all_protocols)
            progress(
                f"{recipe.predictor.name}: fitting on {len(training_rows):,} rows of {sources}"
            )
            unfitted, fitted = _composed(recipe.predictor, fitted)
            fitted.append(unfitted.fit(training_rows))
        elif before is not None:
            fitted.append(before)
    return _written(Router(tuple(fitted)), output, record, documents(record))


def _parts(base: Path | None, fitted_anew: Collection[str]) -> list[Predictor]:
    """Predictors of `base` that are kept. The others are not loaded: their format may be older."""
    if base is None:
        return []
    check(base)
    kept = []
    for name, folder in _parts_of(base):
        if name not in fitted_anew:
            kept.append(folder)
        elif name in COMPOSED:
            kept += [part for own, part in contained(folder) if own not in fitted_anew]
    return [load_part(folder) for folder in kept]


def _composed(whole: Predictor, fitted: Sequence[Predictor]) -> tuple[Predictor, list[Predictor]]:
    """A predictor with the fitted ones that it contains, and the remaining fitted ones."""
    names = COMPOSED.get(whole.name, ())
    parts = {part.name: part for part in fitted if part.name in names}
    rest = [part for part in fitted if part.name not in names]
    if isinstance(whole, NetworkLatency):
        networks, operators = (parts[name] for name in DEVICE_TIMES)
        assert isinstance(networks, NetworkBoost)
        assert isinstance(operators, OperatorBoost)
        return replace(whole, networks=networks, operators=operators).without_published(), rest
    if isinstance(whole, CalibratedMemory):
        base = parts[Memory.name]
        assert isinstance(base, Memory)
        return replace(whole, base=base), rest
    return whole, rest


def composable(base: Path | None) -> frozenset[str]:
    """Predictors of `COMPOSED` that an artifact contains, or contains all parts of."""
    if base is None:
        return frozenset()
    check(base)
    kinds = {name for name, _ in _parts_of(base)}
    return frozenset(
        whole for whole, parts in COMPOSED.items() if whole in kinds or set(parts) <= kinds
    )


def _parts_of(base: Path) -> list[tuple[str, Path]]:
    """Name and folder of each predictor in an artifact: the router's parts, or the one."""
    name = stored_name(base)
    return contained(base) if name == Router.name else [(name, base)]


def recipes_of(names: Sequence[str], composed: Collection[str] = ()) -> list[Recipe]:
    """Recipes of the named predictors and of the predictors that contain them.

    Args:
        names: predictors to fit; all when empty.
        composed: predictors of `COMPOSED` whose parts are in an earlier artifact, so that parts
            that are not named need not be fitted again.

    Raises:
        InputError: an unknown predictor.
    """
    known = [c.predictor.name for c in RECIPES]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"No predictor named {unknown[0]!r}; there are {', '.join(known)}.")
    wanted = set(names)
    for whole, parts in COMPOSED.items():
        if set(parts) <= wanted or (whole in composed and wanted & set(parts)):
            wanted.add(whole)
        elif whole in wanted and whole not in composed:
            wanted |= set(parts)
    return [c for c in RECIPES if not names or c.predictor.name in wanted]


def _written(
    predictor: Predictor,
    output: Path,
    record: TrainingRecord,
    documents: Mapping[str, str],
) -> Trained:
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as place:
        folder = Path(place) / output.name
        predictor.save(folder)
        record.write(folder)
        for name, text in documents.items():
            (folder / name).write_text(text)
        manifest = seal(folder, datetime.now(UTC).date().isoformat())
        if output.exists():
            shutil.rmtree(output)
        folder.rename(output)
    return Trained(output, manifest, record)
