"""`forerun pipeline`: what a pipeline of stages carries."""

from pathlib import Path

import typer

from forerun.data.errors import BadRequest, why_unreadable
from forerun.service.cli import options as o
from forerun.service.cli.output import show_answer, working


def pipeline(
    context: typer.Context, file: Path, *, explain: o.Explain = False, json: o.Json = False
) -> None:
    """Predict the rate, latency and power of stages with links, and what limits them.

    Args:
        context: the options as they were typed
        file: question as to POST /v1/pipeline, in YAML or JSON
        explain: print the limits of the answer too
        json: print one JSON object
    """
    import yaml

    from forerun.service.python.pipelines import Pipeline, answered

    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadRequest(f"{file} cannot be read: {why_unreadable(error)}.") from None
    if not isinstance(given, dict):
        raise BadRequest(f"{file} holds no object; give one with `stages` and `links`.")
    with working("predicting stages"):
        out = answered(given)
    show_answer(Pipeline, file.name, out, explain=explain, json=json, context=context)
