"""`forerun data`: list, fetch and describe datasets."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli.output import print_json, progress, progress_bar, screen, working

if TYPE_CHECKING:
    from forerun.data.bundle import Bundle

app = typer.Typer(help="Datasets: list, pull, describe.", no_args_is_help=True)


@app.command("list")
def list_datasets(
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """List the datasets that can be pulled, and say which are on this machine."""
    from forerun.data.bundle import bundle_folder
    from forerun.data.datasets import all_datasets

    rows = [
        {
            "name": cls.name,
            "title": cls.title,
            "licence": cls.licence,
            "here": bundle_folder(cls.name).is_dir(),
        }
        for cls in all_datasets()
    ]
    if json:
        print_json({"datasets": rows})
        return
    for row in rows:
        here = "here" if row["here"] else "not pulled"
        screen().print(f"[bold]{row['name']}[/bold] ({here}, {row['licence']}): {row['title']}")


@app.command("pull")
def pull(
    name: Annotated[str, typer.Argument(help="name of the dataset")],
    workers: Annotated[
        int, typer.Option(help="processes that trace networks, for a dataset that needs it", min=1)
    ] = 1,
) -> None:
    """Fetch upstream files at the pinned commit, check them, and write a tidy bundle.

    If the `zoo` extra is installed, the networks of timm_bench are then traced into its table of
    graphs. A network takes about 0.3 s and is stored at once, so an interrupted pull can resume.
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
    from forerun.data.bundle import home
    from forerun.data.datasets.networks.timm_bench import TimmBench
    from forerun.features.readers.model_zoo import is_installed, networks_of, versions, zoo_calls
    from forerun.features.readers.trace_journal import TraceJournal, trace_missing

    if not is_installed():
        progress("no graphs table: it is traced from timm; pip install 'forerun[zoo]', pull again")
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


@app.command("describe")
def describe(
    name: Annotated[str, typer.Argument(help="name of the dataset")],
    data: Annotated[Path | None, typer.Option(help="folder of a bundle [the pulled one]")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Print the datasheet, the tables, and the rows that ingestion checks flag."""
    from forerun.data.bundle import find
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
