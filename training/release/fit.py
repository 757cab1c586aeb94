"""Fit every predictor on all its training rows and seal them as one artifact."""

import json
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
from forerun.models.artifact.sealed_folder import Manifest, check, load_part, read_content, seal
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
from forerun.models.router import Chosen
from forerun.models.serving.power import ServingPower
from forerun.training.protocols.architectures.nas_latency import NasLatencyExaminer
from forerun.training.protocols.benchmark_suites.lambda_bench import LambdaBenchExaminer
from forerun.training.protocols.benchmark_suites.mlperf_inference import MlperfInferenceExaminer
from forerun.training.protocols.benchmark_suites.ncpp import NcppExaminer
from forerun.training.protocols.colocation.contention import ContentionExaminer
from forerun.training.protocols.hls_designs.hlsyn import HLSynExaminer
from forerun.training.protocols.hls_designs.wa_hls4ml import WaHls4mlExaminer
from forerun.training.protocols.memory.gpumemnet import GpuMemNetExaminer
from forerun.training.protocols.memory.published_memory import PublishedMemoryExaminer
from forerun.training.protocols.networks.deepbench import CONVOLUTIONS, DeepBenchExaminer
from forerun.training.protocols.networks.neusight import NeuSightExaminer
from forerun.training.protocols.networks.onnxruntime_cpu import OnnxruntimeCpuExaminer
from forerun.training.protocols.networks.published_networks import PublishedNetworksExaminer
from forerun.training.protocols.networks.timm_bench import TimmBenchExaminer
from forerun.training.protocols.power.mlenergy import MlEnergyExaminer
from forerun.training.protocols.power.power_networks import DiffusionPower, ZeusNetworkPower
from forerun.training.protocols.power.torch_op_energy import TorchOpEnergyExaminer
from forerun.training.protocols.power.zeus_powercap import ZeusPowerCapExaminer
from forerun.training.protocols.protocol import Examiner
from forerun.training.tracking.record import TrainingRecord

Progress = Callable[[str], None]
Documents = Callable[[TrainingRecord], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Course:
    """One predictor and the datasets it is trained on.

    Attributes:
        predictor: unfitted.
        examiner: of the dataset that it is judged by first.
        others: of further datasets, whose training rows are added.
    """

    predictor: Predictor
    examiner: Examiner
    others: tuple[Examiner, ...] = ()

    @property
    def examiners(self) -> tuple[Examiner, ...]:
        """All, the first one first."""
        return (self.examiner, *self.others)


COURSES: tuple[Course, ...] = (
    Course(CpuLatency(), OnnxruntimeCpuExaminer()),
    Course(NetworkBoost(), TimmBenchExaminer()),
    Course(OperatorBoost(), NeuSightExaminer(), (DeepBenchExaminer(CONVOLUTIONS, ("fp32",)),)),
    Course(NetworkLatency(), PublishedNetworksExaminer()),
    Course(OperatorPower(), TorchOpEnergyExaminer(), (ZeusNetworkPower(), DiffusionPower())),
    Course(ArchitectureLatency(), NasLatencyExaminer()),
    Course(DesignBoost(), HLSynExaminer()),
    Course(BenchmarkBoost(), WaHls4mlExaminer()),
    Course(BenchmarkBoost(), NcppExaminer()),
    Course(BenchmarkHistory(), MlperfInferenceExaminer()),
    Course(BenchmarkHistory(), LambdaBenchExaminer()),
    Course(Memory(), GpuMemNetExaminer()),
    Course(CalibratedMemory(), PublishedMemoryExaminer()),
    Course(ColocationBoost(), ContentionExaminer()),
    Course(ServingPower(), MlEnergyExaminer()),
    Course(PowerCap(), ZeusPowerCapExaminer()),
)
"""In the order of preference in which the fitted predictors are asked.

The predictors of `COMPOSED` take in those that they are made of, which are fitted before them.

Of deepbench only convolutions train, which NeuSight has of one window alone: its products, of
libraries of 2015 to 2017, made those of newer GPUs that are left out worse (docs/protocols.md).
"""


DEVICE_TIMES = (NetworkBoost.name, OperatorBoost.name)
"""Predictors that `NetworkLatency` is composed of."""
COMPOSED: Mapping[str, tuple[str, ...]] = {
    NetworkLatency.name: DEVICE_TIMES,
    CalibratedMemory.name: (Memory.name,),
}
"""Predictor -> those that it is composed of."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A sealed artifact and what went into it.

    Attributes:
        folder: the artifact.
        manifest: version and hashes.
        record: digests, keys and numbers of the training rows.
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
    """Fit, compose, save and seal; what stood in `output` is replaced once all is done.

    Args:
        output: folder of the artifact.
        names: predictors to fit; all when empty. The composed artifact holds these alone, and
            those of `base`.
        base: artifact whose predictors are kept where they are not fitted anew.
        data: dataset -> folder of its bundle, in place of the pulled one.
        documents: from what was taught to further files that are sealed with it: name -> text
            (model card, scores).
        progress: takes a line for people.

    Raises:
        InputError: an unknown predictor.
        BadArtifact: `base` is damaged.
        MissingData: a bundle is not here; the message names the command that fetches it.
    """
    courses = courses_of(names, composable(base))
    names_of_data = [examiner.dataset for c in courses for examiner in c.examiners]
    bundles = {name: find(name, (data or {}).get(name)) for name in names_of_data}
    catalog = DeviceCatalog.load()
    parts = _parts(base, {c.predictor.name for c in courses})
    record = TrainingRecord() if base is None else TrainingRecord.read(base)
    fitted: list[Predictor] = []
    for course in COURSES:
        before = next((part for part in parts if part.name == course.predictor.name), None)
        if before is not None:
            parts.remove(before)
        if course in courses:
            parts_of_rows = []
            for examiner in course.examiners:
                bundle = bundles[examiner.dataset]
                rows = examiner.teaching(bundle, catalog)
                # Part of a bundle that another predictor is trained on whole changes no record.
                if examiner is course.examiner or not record.knows(bundle):
                    record = record.with_rows(bundle, rows)
                parts_of_rows.append(rows)
            taught = sum(parts_of_rows[1:], parts_of_rows[0])
            sources = " and ".join(examiner.dataset for examiner in course.examiners)
            progress(f"{course.predictor.name}: fitting on {len(taught):,} rows of {sources}")
            unfitted, fitted = _composed(course.predictor, fitted)
            fitted.append(unfitted.fit(taught))
        elif before is not None:
            fitted.append(before)
    return _written(Chosen(tuple(fitted)), output, record, documents(record))


def _parts(base: Path | None, fitted_anew: Collection[str]) -> list[Predictor]:
    """Predictors of `base` that are kept; those fitted anew may be of an earlier version."""
    if base is None:
        return []
    check(base)
    folders = read_content(base, Chosen.name)["parts"] if _is_chosen(base) else [""]
    kept = []
    for name in folders:
        kind = name.partition("-")[2]
        if kind not in fitted_anew:
            kept.append(name)
        else:
            parts = COMPOSED.get(kind, ())
            kept += [f"{name}/{part}" for part in parts if part not in fitted_anew]
    return [load_part(base / name) for name in kept]


def _composed(whole: Predictor, fitted: Sequence[Predictor]) -> tuple[Predictor, list[Predictor]]:
    """A predictor around those that it is composed of, and what else was fitted."""
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
    """Predictors of `COMPOSED` whose parts an artifact holds, alone or composed already."""
    if base is None:
        return frozenset()
    check(base)
    folders = read_content(base, Chosen.name)["parts"] if _is_chosen(base) else []
    kinds = {name.partition("-")[2] for name in folders}
    return frozenset(
        whole for whole, parts in COMPOSED.items() if whole in kinds or set(parts) <= kinds
    )


def _is_chosen(folder: Path) -> bool:
    content = json.loads((folder / "predictor.json").read_text())
    return bool(content["name"] == Chosen.name)


def courses_of(names: Sequence[str], composed: Collection[str] = ()) -> list[Course]:
    """The courses of these names; what is composed of a predictor is fitted with it.

    Args:
        names: predictors asked for; all when empty.
        composed: predictors of `COMPOSED` whose parts an earlier artifact holds, so that those not
            asked for need not be fitted again.

    Raises:
        InputError: an unknown predictor.
    """
    known = [c.predictor.name for c in COURSES]
    strange = [name for name in names if name not in known]
    if strange:
        raise InputError(f"No predictor named {strange[0]!r}; there are {', '.join(known)}.")
    wanted = set(names)
    for whole, parts in COMPOSED.items():
        if set(parts) <= wanted or (whole in composed and wanted & set(parts)):
            wanted.add(whole)
        elif whole in wanted and whole not in composed:
            wanted |= set(parts)
    return [c for c in COURSES if not names or c.predictor.name in wanted]


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
