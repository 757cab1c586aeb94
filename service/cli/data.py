"""`forerun data`: which datasets there are, fetch one, describe it."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.output import print_json, progress, screen

app = typer.Typer(help="Datasets: list, pull, describe.", no_args_is_help=True)


@app.command("list")
def list_datasets(
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Datasets that can be pulled, and which are here."""
    from forerun.data.bundle import bundle_folder
    from forerun.data.datasets import DATASETS

    rows = [
        {
            "name": cls.name,
            "title": cls.title,
            "licence": cls.licence,
            "here": bundle_folder(cls.name).is_dir(),
        }
        for cls in DATASETS
    ]
    if json:
        print_json({"datasets": rows})
        return
    for row in rows:
        here = "here" if row["here"] else "not pulled"
        screen().print(f"[bold]{row['name']}[/bold] ({here}, {row['licence']}): {row['title']}")


@app.command("pull")
def pull(
    name: Annotated[str, typer.Argument(help="dataset")],
) -> None:
    """Fetch upstream files at the pinned commit, check them, and write the tidy bundle."""
    from forerun.data.datasets import dataset

    bundle = dataset(name).pull()
    counts = ", ".join(f"{t} {len(bundle.table(t)):,}" for t in bundle.tables())
    progress(f"{name}: {counts} rows in {bundle.folder}")


@app.command("describe")
def describe(
    name: Annotated[str, typer.Argument(help="dataset")],
    data: Annotated[
        Path | None, typer.Option(help="folder of a bundle; the pulled one else")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """The datasheet, tables, and rows that ingestion checks flag."""
    from forerun.data.bundle import find
    from forerun.data.datasets import dataset

    source = dataset(name)
    bundle = find(name, data)
    flags = source.flags(bundle)
    found = Counter(flags["flag"])
    tables = {table: len(bundle.table(table)) for table in bundle.tables()}
    if json:
        print_json({"name": name, "digest": bundle.digest, "rows": tables, "flags": found})
        return
    out = screen()
    out.print(bundle.datasheet or f"[bold]{source.title}[/bold]")
    for table, rows in tables.items():
        out.print(f"{table}: {rows:,} rows")
    for flag, rows in found.items():
        out.print(f"[yellow]flagged[/yellow] {flag}: {rows:,} rows")
