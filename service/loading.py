"""Load the predictor: from a folder, the registry's champion, or the bundled one."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.data.errors import BadArtifact, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.models.artifact.sealed_folder import (
    LoadedPredictor,
    bundled,
    load_sealed,
    sealed_version,
)
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import Scope
from forerun.service.champion import Champion, ask, fetched, keep, kept
from forerun.service.log import log
from forerun.service.settings import Settings
from forerun.service.stores.devices import DeviceStore, devices_of
from forerun.service.stores.graphs import graphs_of

if TYPE_CHECKING:
    from forerun.service.adaptation.predictor_in_use import Adaptation


def load_predictors(settings: Settings, scope: Scope | None = None) -> LoadedPredictor:
    """The predictor that the settings select, by default the bundled one.

    A registry is asked for its champion first; where it does not answer in time, the champion that
    was fetched last is loaded.

    Args:
        settings: which predictor.
        scope: what questions will be about; predictors that cannot answer are not loaded.

    Raises:
        BadArtifact: the artifact is damaged.
    """
    folder = _folder(settings)
    return bundled(scope) if folder is None else load_sealed(folder, scope)


def load_at_once(settings: Settings) -> LoadedPredictor:
    """The predictor that the settings select, without asking the registry.

    With a registry, it is the champion that was fetched last, or the bundled predictor if there is
    none or if it is damaged.

    Raises:
        BadArtifact: the artifact that the settings name, or the bundled one, is damaged.
    """
    if settings.predictor_folder is not None:
        return load_sealed(settings.predictor_folder)
    champion = None if settings.registry_uri is None else kept(settings)
    if champion is not None:
        try:
            return load_version(champion.version, settings)
        except BadArtifact as error:
            log().error("the champion is damaged; the bundled predictors answer", why=str(error))
    return bundled()


def load_version(version: str | None, settings: Settings) -> LoadedPredictor:
    """A version that was fetched from the registry, or the bundled predictor for None.

    Raises:
        BadArtifact: the artifact is damaged.
    """
    return bundled() if version is None else load_sealed(fetched(version, settings))


def adaptation_here(
    settings: Settings, graph_named: Callable[[str], OperatorGraph] | None = None
) -> "tuple[Adaptation, DeviceStore]":
    """The predictor adapted to this user's measurements, for a command-line process.

    Args:
        settings: the predictor and the folder of measurements.
        graph_named: digest -> graph; it is tried before the user's uploaded graphs.

    Returns:
        The adaptation, and the store of devices.

    Raises:
        BadArtifact: the artifact is damaged.
    """
    from forerun.service.adaptation.predictor_in_use import adaptation_of

    devices = devices_of(settings)
    uploads = graphs_of(settings)

    def named(digest: str) -> OperatorGraph:
        if graph_named is not None:
            with suppress(UnknownGraph):
                return graph_named(digest)
        return uploads.get(digest)

    return adaptation_of(settings, load_predictors(settings), devices, named), devices


def training_record(settings: Settings) -> TrainingRecord:
    """The training record of the predictor in use; empty where the artifact has none."""
    with artifact_in_use(settings) as folder:
        return TrainingRecord.read(folder)


def versions_at_hand(settings: Settings) -> frozenset[str]:
    """Versions of the predictors that the settings select, without asking the registry.

    Raises:
        BadArtifact: the artifact has no readable manifest.
    """
    champion = None if settings.registry_uri is None else kept(settings)
    if settings.predictor_folder is not None:
        return frozenset({sealed_version(settings.predictor_folder)})
    if champion is not None and champion.version is not None:
        tried = champion.candidate if max(settings.canary_share, settings.shadow_share) else None
        return frozenset(filter(None, (champion.version, tried)))
    with as_file(files("forerun.models") / "pretrained") as pretrained:
        return frozenset({sealed_version(pretrained)})


@contextmanager
def artifact_in_use(settings: Settings) -> Iterator[Path]:
    """Folder of the predictor that the settings select, by default the bundled one."""
    folder = _folder(settings)
    if folder is not None:
        yield folder
        return
    with as_file(files("forerun.models") / "pretrained") as pretrained:
        yield pretrained


def _folder(settings: Settings) -> Path | None:
    """The folder that the settings select, after asking the registry; None for the bundled one."""
    if settings.predictor_folder is not None or settings.registry_uri is None:
        return settings.predictor_folder
    champion = _asked(settings)
    keep(champion, settings)
    return champion.folder(settings)


def _asked(settings: Settings) -> Champion:
    """What the registry says now; asked on a thread, since a notebook has an event loop here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, ask(settings)).result()
