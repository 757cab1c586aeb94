"""`forerun train`: fit predictors on pulled data, evaluate them, and save and register them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.service.cli import options as o
from forerun.service.cli.options import EngineOption, ProtocolOption, engine_of
from forerun.service.cli.output import print_json, progress, working


def train(
    predictors: Annotated[list[str] | None, typer.Argument()] = None,
    table: list[str] | None = None,
    output: Path = Path("predictor"),
    data: Path | None = None,
    base: Path | None = None,
    alone: Annotated[bool, typer.Option("--alone")] = False,
    evaluate: bool = True,
    protocol: ProtocolOption = None,
    accept: str = "",
    track: bool = True,
    engine: EngineOption = "local",
    json: o.Json = False,
) -> None:
    """Fit predictors on all training rows; the model card reports errors on held-out rows.

    If only some are named, the others are copied from the artifact in use. The predictor of an
    imported table comes before all others for the devices in that table.

    Args:
        predictors: predictors, or imported tables [all predictors]
        table: imported table to fit a predictor on; repeatable
        output: folder of the artifact to write
        data: folder of bundles by name [the pulled ones]
        base: artifact from which other predictors are copied [the one in use]
        alone: copy no other predictors
        evaluate: run the evaluation protocols for the model card
        protocol: only this one; repeatable
        accept: reason to accept that slices of tables get worse; without it they must not
        track: log the run in MLflow and register it
        engine: where work runs: local, or ray for tasks of a Ray cluster
        json: print one JSON object
    """
    from forerun.training.release.pipeline import release

    names = tuple(dict.fromkeys((*(predictors or ()), *(table or ()))))
    with _kept(names, base, alone) as kept, engine_of(engine) as where, working("training"):
        released = release(
            output,
            names=names,
            base=kept,
            data=data,
            evaluate=evaluate,
            accepted=accept,
            protocols=tuple(protocol or ()),
            track=track,
            progress=progress,
            engine=where,
        )
    _show(released, json)


def _show(released: dict[str, Any], json: bool) -> None:
    if json:
        print_json(released)
        return
    for line in released["unjudged"]:
        typer.echo(f"change not known: {line}")
    typer.echo(f"{released['folder']}: version {released['version']}")


def _kept(
    names: Sequence[str], base: Path | None, alone: bool
) -> AbstractContextManager[Path | None]:
    """Folder of the artifact whose other predictors are kept: the given one, or that in use."""
    from forerun.data.errors import InputError
    from forerun.service.loading import artifact_in_use
    from forerun.service.settings import Settings

    if alone and base is not None:
        raise InputError("--alone copies no predictors and --base copies them; give one of them.")
    merged = bool(names) and not alone and base is None
    return artifact_in_use(Settings.load()) if merged else nullcontext(base)
