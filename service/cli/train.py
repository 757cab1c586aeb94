"""`forerun train`: fit predictors on pulled data, evaluate them, and save and register them."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.output import print_json, progress, working


def train(
    predictors: Annotated[
        list[str] | None, typer.Argument(help="names of predictors [all]")
    ] = None,
    output: Annotated[Path, typer.Option(help="folder of the artifact to write")] = Path(
        "predictor"
    ),
    data: Annotated[
        Path | None, typer.Option(help="folder of bundles by name [the pulled ones]")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="artifact from which all other predictors are copied")
    ] = None,
    judge: Annotated[
        bool, typer.Option(help="run the evaluation protocols for the model card")
    ] = True,
    protocol: Annotated[
        list[str] | None, typer.Option(help="only this protocol; may be repeated")
    ] = None,
    track: Annotated[bool, typer.Option(help="log the run in MLflow and register it")] = True,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Fit predictors on all training rows; the model card has errors on held-out rows."""
    from forerun.training.release.pipeline import release

    with working("training"):
        released = release(
            output,
            names=tuple(predictors or ()),
            base=base,
            data=data,
            judge=judge,
            protocols=tuple(protocol or ()),
            track=track,
            progress=progress,
        )
    if json:
        print_json(released)
    else:
        typer.echo(f"{released['folder']}: version {released['version']}")
