"""`forerun train`: fit the predictors on pulled data, judge them, seal and track them."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.output import print_json, progress


def train(
    predictors: Annotated[list[str] | None, typer.Argument(help="all when absent")] = None,
    output: Annotated[Path, typer.Option(help="folder of the artifact")] = Path("predictor"),
    data: Annotated[
        Path | None, typer.Option(help="folder of bundles by name; the pulled ones else")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="artifact whose other predictors are kept as they are")
    ] = None,
    judge: Annotated[bool, typer.Option(help="run the protocols for the model card")] = True,
    protocol: Annotated[list[str] | None, typer.Option(help="judge these; repeat")] = None,
    track: Annotated[bool, typer.Option(help="log the run in MLflow and register it")] = True,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Fit on all training rows; the model card quotes errors on rows that the fits did not see."""
    from forerun.training.release.pipeline import release

    made = release(
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
        print_json(made)
    else:
        typer.echo(f"{made['folder']}: version {made['version']}")
