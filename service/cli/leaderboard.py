"""`forerun leaderboard`: scores of predictors, baselines and published figures."""

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.commands import DescribedCommands
from forerun.service.cli.options import EngineOption, PredictorOption, ProtocolOption, engine_of
from forerun.service.cli.output import print_json, progress, screen, table
from forerun.training.leaderboard.entries import (
    Entry,
    Leaderboard,
    Ranked,
    Section,
    score_text,
    value_text,
)

if TYPE_CHECKING:
    from forerun.training.leaderboard.entry_folder import VerifiedEntry


MOST_NAMED = 3
"""Most datasets that the name of a run in MLflow lists."""
app = DescribedCommands()


@app.callback(invoke_without_command=True)
def leaderboard(
    ctx: typer.Context,
    dataset: list[str] | None = None,
    protocol: ProtocolOption = None,
    predictor: PredictorOption = None,
    shots: str | None = None,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    fresh: Annotated[bool, typer.Option("--fresh")] = False,
    data: Path | None = None,
    html: Path | None = None,
    curves: Path | None = None,
    track: bool = True,
    engine: EngineOption = "local",
    json: o.Json = False,
) -> None:
    """Print scores of predictors, baselines and published figures, each with its command.

    Without --fresh no evaluation is run: the printed results are stored or came with the bundled
    predictors. With --fresh, missing results are evaluated; an interrupted run can resume.

    Args:
        ctx: the context of the command
        dataset: only this one; repeatable
        protocol: only this one; repeatable
        predictor: score this predictor alone, not whole answers; repeatable
        shots: numbers of support rows of the test device, such as 0,5,10,20
        seeds: with --fresh: number of fits to average
        fresh: run evaluations that are not stored
        data: with --fresh: folder of bundles by name
        html: write a self-contained HTML page to this file
        curves: draw error over support rows into this folder
        track: with --fresh: log the run in MLflow
        engine: where work runs: local, or ray for tasks of a Ray cluster
        json: print one JSON object
    """
    if ctx.invoked_subcommand is not None:
        return
    from forerun.training.leaderboard.runs import Plan, run
    from forerun.training.leaderboard.store import ResultStore, stored

    counts = _counts(shots)
    names = (tuple(dataset or ()), tuple(protocol or ()), tuple(predictor or ()))
    store = ResultStore.default()
    if fresh:
        plan = Plan(*names, shots=counts or (0,), seeds=seeds, data=data)
        with engine_of(engine) as where:
            run(plan, store, progress, where)
    board = stored(store).only(*names, counts)
    _check(board, names)
    with TemporaryDirectory() as index:
        files = _write(board, html, curves, Path(index) if fresh and track else None)
        if fresh and track:
            _track(board, files)
    print_json(board.to_json()) if json else _show(board)


@app.command("verify")
def verify_entry(folder: Path, data: Path | None = None, json: o.Json = False) -> None:
    """Check an entry: it has the held-out rows, and its scores follow from its predictions.

    Args:
        folder: entry.yaml and predictions.csv or .parquet
        data: folder of the dataset's bundle [the pulled one]
        json: print one JSON object
    """
    from forerun.training.leaderboard.entry_folder import verify

    _entry(verify(folder, data), "verified", json)


@app.command("add")
def add_entry(folder: Path, data: Path | None = None, json: o.Json = False) -> None:
    """Verify an entry and store its scores, so that the leaderboard lists them.

    Args:
        folder: entry.yaml and predictions.csv or .parquet
        data: folder of the dataset's bundle [the pulled one]
        json: print one JSON object
    """
    from forerun.training.leaderboard.entry_folder import add
    from forerun.training.leaderboard.store import ResultStore

    _entry(add(folder, ResultStore.default(), data), "added", json)


def _entry(verified: "VerifiedEntry", done: str, json: bool) -> None:
    """Print the scores of an entry."""
    entries = [entry for _, of_run in verified.runs for entry in of_run]
    if json:
        print_json({"entries": [entry.to_json() for entry in entries]})
        return
    for entry in entries:
        place = " ".join(filter(None, (entry.task, entry.device, entry.metric)))
        typer.echo(f"{place}: {entry.score} {value_text(entry)} of {entry.n:,} rows")
    typer.echo(f"{done}: {verified.facts.system} on {verified.facts.dataset}")


def _counts(text: str | None) -> tuple[int, ...]:
    try:
        counts = tuple(int(word) for word in (text or "").split(",") if word.strip())
    except ValueError:
        counts = (-1,)
    if any(count < 0 for count in counts):
        raise InputError(f"--shots takes numbers of rows such as 0,5,10,20, not {text!r}.")
    return counts


def _check(board: "Leaderboard", names: tuple[tuple[str, ...], ...]) -> None:
    """Refuse a name without stored results, rather than print an empty table."""
    known: tuple[set[str | None], ...] = (
        {entry.dataset for entry in board.entries},
        {name for e in board.entries for name in (e.protocol, e.task.partition("/")[0])},
        {entry.predictor for entry in board.entries if entry.kind == "ours"},
    )
    for what, wanted, stored_names in zip(
        ("dataset", "protocol", "predictor"), names, known, strict=True
    ):
        missing = [name for name in wanted if name not in stored_names]
        if missing:
            raise InputError(
                f"No result of {what} {missing[0]!r} under these options; --fresh evaluates it."
            )


def _write(
    board: "Leaderboard", html: Path | None, curves: Path | None, tracked: Path | None
) -> list[Path]:
    """Write the page and the plots, where requested or where they are to be logged."""
    from forerun.service.http.pages.leaderboard import leaderboard_file
    from forerun.training.leaderboard.learning_curves import draw

    files = []
    if html is not None or tracked is not None:
        file = html or (tracked or Path()) / "leaderboard.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(leaderboard_file(board), encoding="utf-8")
        files.append(file)
    folder = curves or (tracked if find_spec("matplotlib") else None)
    if folder is not None:
        pictures = draw(board, folder)
        if curves is not None and not pictures:
            progress("no predictor has results at two numbers of shots: no curve to draw")
        files += pictures
    return files


def _track(board: "Leaderboard", files: list[Path]) -> None:
    from forerun.training.leaderboard.runs import track

    if find_spec("mlflow") is None:
        progress("not logged: MLflow comes with the train extra (--no-track says nothing of it)")
        return
    names = board.datasets()
    listed = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} datasets"
    progress(f"logged in MLflow as run {track(board, files, f'leaderboard of {listed}')}")


def _show(board: "Leaderboard") -> None:
    out = screen()
    for dataset in board.datasets():
        out.print(f"[bold]{dataset}[/bold]")
        for section in board.sections():
            if section.dataset == dataset:
                out.print(_table(section))
        out.print()


def _table(section: "Section") -> object:
    from rich.markup import escape

    index = f"{section.task}, {section.device or 'all devices'}, {section.metric}"
    figures = (section.score, "shots", "seeds", "n", "median", "Spearman", "coverage 90")
    rows = table(
        "", "predictor", *figures, left=("predictor",), title=escape(index), title_justify="left"
    )
    rows.add_column("printed by, or cited from")
    for row in section.rows:
        entry = row.entry
        rows.add_row(
            "" if row.rank is None else str(row.rank),
            escape(_name(row)),
            value_text(entry),
            "" if entry.cited else str(entry.shots),
            "" if entry.seeds is None else str(entry.seeds),
            "" if entry.n is None else f"{entry.n:,}",
            score_text("median_ape", entry.median_ape),
            score_text("spearman", entry.spearman),
            score_text("coverage_90", entry.coverage_90),
            escape(" · ".join(text for text in (*_origin(entry), entry.citation) if text)),
        )
    return rows


def _origin(entry: "Entry") -> tuple[str | None, ...]:
    """What prints an entry again: its command, and the code and Python it was made with."""
    python = entry.environment.get("python")
    if python is None:
        return (entry.command,)
    return entry.command, f"code {(entry.commit or 'unknown')[:12]}", f"Python {python}"


def _name(row: "Ranked") -> str:
    kind = "" if row.entry.kind == "ours" else f" ({row.entry.kind})"
    return f"{row.entry.predictor}{kind}{f' [{row.note}]' if row.note else ''}"
