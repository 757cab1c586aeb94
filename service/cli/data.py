"""`forerun data`: list, fetch and describe datasets."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.data.bundle import Bundle, bundle_folder, find, home
from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.commands import DescribedCommands
from forerun.service.cli.output import print_json, progress, progress_bar, screen, working
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence


app = DescribedCommands(help="Datasets: list, pull, import, describe.", no_args_is_help=True)


@app.command("list")
def list_datasets(json: o.Json = False) -> None:
    """List the datasets that can be pulled, and say which are on this machine.

    Imported tables are listed with them.

    Args:
        json: print one JSON object
    """
    from forerun.data.datasets import known_datasets

    rows = [
        {
            "name": source.name,
            "title": source.title,
            "licence": source.licence,
            "here": bundle_folder(source.name).is_dir(),
        }
        for source in known_datasets()
    ]
    if json:
        print_json({"datasets": rows})
        return
    for row in rows:
        here = "here" if row["here"] else "not pulled"
        screen().print(f"[bold]{row['name']}[/bold] ({here}, {row['licence']}): {row['title']}")


@app.command("pull")
def pull(name: str, workers: Annotated[int, typer.Option(min=1)] = 1) -> None:
    """Fetch upstream files at the pinned commit, check them, and write a tidy bundle.

    If the `zoo` extra is installed, the networks of timm_bench are then traced into its table of
    graphs. A network takes about 0.3 s and is stored at once, so an interrupted pull can resume.

    Args:
        name: name of the dataset
        workers: processes that trace networks, for a dataset that needs it
    """
    from forerun.data.datasets import dataset
    from forerun.data.datasets.networks.timm_bench import TimmBench

    with working(f"pulling {name}"):
        bundle = dataset(name).pull()
    if name == TimmBench.name:
        bundle = _with_graphs(bundle, workers)
    counts = ", ".join(f"{t} {len(bundle.table(t)):,}" for t in bundle.tables())
    progress(f"{name}: {counts} rows in {bundle.folder}")


def _with_graphs(bundle: "Bundle", workers: int) -> "Bundle":
    """Add the graphs of its networks to a bundle; without timm, print what is missing."""
    from forerun.data.datasets.networks.timm_bench import TimmBench
    from forerun.features.readers.model_zoo import (
        TraceJournal,
        is_installed,
        networks_of,
        trace_missing,
        versions,
        zoo_calls,
    )

    if not is_installed():
        progress("no graphs table: it is traced from timm; `scripts/install zoo`, then pull again")
        return bundle
    made_by = versions()
    folder = "-".join(f"{package}-{number}" for package, number in made_by.items())
    journal = TraceJournal(home() / "traces" / folder)
    keys = networks_of(bundle.table("bench"))
    missing = [key for key in keys if not journal.has(key)]
    failed: list[str] = []
    with progress_bar("tracing networks", len(missing)) as step:
        for (model, size), why in trace_missing(missing, journal, zoo_calls, workers=workers):
            failed += [f"{model}@{size}"] if why else []
            step()
    if failed:
        names = ", ".join(sorted(failed))
        progress(f"{len(failed)} of {len(keys)} networks are none of timm's now: {names}")
    tables = {"graphs": journal.table(keys)}
    source = TimmBench()
    source.validate(tables)
    sheet = source.datasheet({"bench": bundle.table("bench")} | tables)
    facts = {"graphs": {**made_by, "not_traced": sorted(failed)}}
    return bundle.with_tables(tables, datasheet=sheet, facts=facts)


@app.command("import")
def import_rows(
    table: Path,
    name: Annotated[str, typer.Option()],
    meanings: Annotated[list[str] | None, typer.Option("--map")] = None,
    rest: str | None = None,
    json: o.Json = False,
) -> None:
    """Import your own measurements as a dataset to train on and to evaluate.

    Columns are recognised by their names and units (device, batch, latency_us, memory_gib, ...);
    --map says what the others hold, or a terminal asks. Rows name graphs in a column of model files
    (paths relative to the table), or plain columns describe them. Doubtful rows are counted.

    Args:
        table: your measurements, .csv or .parquet
        name: name of the dataset
        meanings: THEIRS=OURS: what a column holds; may be repeated
        rest: what all other columns are: setting (a feature) or ignored
        json: print one JSON object
    """
    import sys

    from forerun.service.own_tables.importing import facts_of, import_table

    given = _pairs(meanings or [])
    ask = _ask if sys.stdin.isatty() and not json else None
    imported = import_table(table, name, Settings.load(), given=given, rest=rest, ask=ask)
    if json:
        print_json(facts_of(imported))
        return
    out = screen()
    for column, meaning in imported.columns.items():
        out.print(f"{column}: {meaning}", markup=False)
    for flag, rows in imported.flags.items():
        out.print(f"[yellow]flagged[/yellow] {flag}: {rows:,} rows")
    out.print(f"{name}: {imported.rows:,} rows in {imported.bundle.folder}", markup=False)


def _pairs(texts: list[str]) -> dict[str, str]:
    """Column -> meaning of options such as `time=latency_ms`."""
    for text in texts:
        if "=" not in text:
            raise InputError(f"--map takes THEIRS=OURS, such as time=latency_ms, not {text!r}.")
    return {theirs.strip(): ours.strip() for theirs, _, ours in (t.rpartition("=") for t in texts)}


def _ask(column: str, examples: "Sequence[str]") -> str:
    """What the user types for a column: a meaning, or nothing to leave it out."""
    shown = ", ".join(examples)
    text = f"column {column!r} ({shown}): metric with unit, device, workload, setting [ignored]"
    return str(typer.prompt(text, default="", show_default=False, err=True)).strip()


@app.command("describe")
def describe(name: str, data: Path | None = None, json: o.Json = False) -> None:
    """Print the datasheet, the tables, and the rows that ingestion checks flag.

    Args:
        name: name of the dataset
        data: folder of a bundle [the pulled one]
        json: print one JSON object
    """
    from forerun.data.datasets import dataset

    source = dataset(name)
    bundle = find(name, data)
    flags = source.flags(bundle)
    counts = Counter(flags["flag"])
    tables = {table: len(bundle.table(table)) for table in bundle.tables()}
    if json:
        print_json({"name": name, "digest": bundle.digest, "rows": tables, "flags": counts})
        return
    out = screen()
    out.print(bundle.datasheet or f"[bold]{source.title}[/bold]")
    for table, rows in tables.items():
        out.print(f"{table}: {rows:,} rows")
    for flag, rows in counts.items():
        out.print(f"[yellow]flagged[/yellow] {flag}: {rows:,} rows")
