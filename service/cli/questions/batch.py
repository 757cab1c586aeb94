"""`forerun batch`: answer all questions of a file."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from forerun.data.errors import InputError
from forerun.data.file_store import draft_of
from forerun.service.cli.options import EngineOption, engine_of
from forerun.service.cli.output import progress


def batch(
    questions: Path,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    engine: EngineOption = "local",
) -> None:
    """Answer every question in a file, in order, one JSON object per line.

    A question that cannot be answered gets a problem in its place, and the exit code is then 2. The
    file of answers is written once all of them are known.

    Args:
        questions: file with a request of POST /v1/predict on each line, as JSON
        output: file of the answers [standard output]
        engine: where work runs: local, or ray for tasks of a Ray cluster
    """
    from forerun.service.cli.questions import shards
    from forerun.training.engines.jobs import Job

    if not questions.is_file():
        raise InputError(f"{questions} is not a file; give one with a question on each line.")
    if output is not None and output.exists() and output.samefile(questions):
        raise InputError(
            "The answers would overwrite the questions: name another file with --output."
        )
    total = problems = 0
    with (
        questions.open(encoding="utf-8", errors="surrogateescape") as lines,
        engine_of(engine) as where,
        _written(output) as file,
    ):
        expected = shards.identity()
        jobs = (
            Job(f"lines {shard[0][0]} to {shard[-1][0]}", (shard, expected))
            for shard in shards.shards(lines)
        )
        for answers, own_problems in where.results(shards.answered, jobs, progress):
            file.writelines(answer + b"\n" for answer in answers)
            total, problems = total + len(answers), problems + own_problems
    progress(f"{total - problems:,} of {total:,} questions are answered")
    if not total:
        raise InputError(f"{questions} holds no question.")
    if problems:
        raise typer.Exit(2)


@contextmanager
def _written(output: Path | None) -> Iterator[BinaryIO]:
    """A file that is there as a whole at the end of the context, or standard output."""
    if output is None:
        with nullcontext(sys.stdout.buffer) as file:
            yield file
        return
    is_other = output.exists() and not output.is_file()  # such as a pipe, which none replaces
    try:
        with (
            nullcontext(output) if is_other else draft_of(output) as place,
            place.open("wb") as file,
        ):
            yield file
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}.") from None
