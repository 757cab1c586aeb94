"""`forerun llm`: what a language model costs to serve."""

from typing import ClassVar

import typer

from forerun.service.cli.commands import ForerunGroup


class _LlmGroup(ForerunGroup):
    NAMES: ClassVar = {
        "estimate": "llm.estimate:estimate",
        "plan": "llm.plan:plan",
        "replay": "llm.replay:replay",
        "support": "llm.estimate:support",
    }


app = typer.Typer(
    cls=_LlmGroup,
    rich_markup_mode=None,
    help="What a language model costs to serve.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """What a language model costs to serve."""
