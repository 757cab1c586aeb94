"""An imported table as a dataset, identified in `bundle.json`, with the standard protocols."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from forerun.data.bundle import FACTS, Bundle, home
from forerun.data.columns import Names, Positions
from forerun.data.datasets.dataset import Dataset
from forerun.data.device import Device
from forerun.data.errors import BadTable, MissingData
from forerun.data.lazy import pa, pd
from forerun.data.markdown import markdown
from forerun.data.own_tables.tidy import GROUPS, Description, text_keys
from forerun.data.quality import counts
from forerun.data.schema import number, text
from forerun.data.split import Split, fold_of, same_values
from forerun.data.upstream.downloads import RawFiles

FACT: Final = "own_table"
"""Key of `bundle.json` that marks the bundle of an imported table."""
RUNS, GRAPHS, FINDINGS, DEVICES = "runs", "graphs", "findings", "devices"
FOLDS: Final = 5
LARGEST_LEFT_OUT: Final = 8
"""A key with at most this many values holds out each value in turn; otherwise `FOLDS` folds."""


class OwnTable(Dataset):
    """A table that was imported by `forerun data import`.

    Args:
        description: what its bundle holds.
    """

    def __init__(self, description: Description) -> None:
        self.description = description
        self.name = description.name
        self.title = f"imported table, layout {description.layout}"
        self.licence = "as the imported file"
        self.citation = "own measurements"
        self.published = "nothing"

    def pull(self, **_: object) -> Bundle:
        """There is nothing to pull.

        Raises:
            MissingData: always.
        """
        raise MissingData(f"{self.name} was imported; `forerun data import` replaces its rows.")

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """No tables: the rows were imported."""
        return {}

    def tables(self) -> Mapping[str, "pa.DataFrameSchema"]:
        """Schema of `runs`, of the graphs that they name, and of the findings about them."""
        runs: dict[str, Any] = {n: pa.Column(None, nullable=True) for n in GROUPS}
        runs |= {name: number(above=0, nullable=True) for name in self.description.metrics}
        runs |= {name: pa.Column(None, nullable=True) for name in self.description.settings}
        findings = {"row": number("int64", low=0), "flag": text(), "why": text()}
        return {
            RUNS: pa.DataFrameSchema(runs),
            GRAPHS: pa.DataFrameSchema({"digest": text(), "graph": text()}),
            FINDINGS: pa.DataFrameSchema(findings),
        }

    def splits(self, bundle: Bundle) -> list[Split]:
        """`random_groups`, `unseen_device` and `unseen_model`, as far as the rows have groups.

        Rows of the same question are held out together, and rows that share a graph are one model.
        """
        runs = bundle.table(RUNS)
        questions = [name for name in self.description.question_columns if name in runs]
        for name in questions:
            # Other spellings of a name and numbers within rounding error count as equal.
            runs[name] = same_values(runs[name])
        keys = {
            "random_groups": ("question", text_keys(runs, questions)),
            "unseen_device": ("device", text_keys(runs, ["device"])),
            "unseen_model": ("model_group", model_groups(runs)),
        }
        splits = []
        for protocol, (key, values) in keys.items():
            most = FOLDS if key == "question" else LARGEST_LEFT_OUT
            fold = folds(values, most)
            for held in range(int(fold.max()) + 1 if fold.max() else 0):
                out = fold == held
                splits.append(
                    Split(
                        f"{protocol}/{held}",
                        RUNS,
                        ~out,
                        out,
                        (key,),
                        tuple(questions),
                        {key: values},
                    )
                )
        return splits

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows that the ingestion checks found."""
        return bundle.table(FINDINGS)


def folds(values: Names, most: int) -> Positions:
    """Fold of each of n rows, by its value: one fold per value, or `FOLDS` beyond `most` values.

    Values are assigned to folds in the order of a hash of their names. So folds differ by at most
    one value, and a setting that repeats regularly in the names is spread over all folds.
    """
    names, group = np.unique(values, return_inverse=True)
    if len(names) <= most:
        return group
    order = np.argsort([fold_of(str(name), 2**62) for name in names])
    rank = np.empty(len(names), dtype=np.intp)
    rank[order] = np.arange(len(names))
    return rank[group] % FOLDS


def model_groups(runs: "pd.DataFrame") -> Names:
    """Model of each row, shape (n,); models that share a name or a graph are the same."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    model = text_keys(runs, ["model"])
    if "workload" not in runs:
        return model
    workload = text_keys(runs, ["workload"])
    labels = np.where(model == "", workload, model)
    _, name = np.unique(labels, return_inverse=True)
    _, graph = np.unique(workload, return_inverse=True)
    size = int(name.max() + graph.max() + 2)
    edges = coo_array((np.ones(len(name)), (name, graph + name.max() + 1)), shape=(size, size))
    _, component = connected_components(edges, directed=False)
    return np.asarray(component[name].astype(np.str_))


def write_bundle(
    description: Description,
    runs: "pd.DataFrame",
    graphs: Mapping[str, Mapping[str, Any]],
    devices: Sequence[Device],
    findings: "pd.DataFrame",
    datasheet: str,
    source: str,
) -> Bundle:
    """Write an imported table into the user's folder of bundles, replacing an earlier one.

    Args:
        description: what the table holds.
        runs: its rows.
        graphs: digest -> graph from `OperatorGraph.to_json`.
        devices: spec sheets of the devices in the rows.
        findings: doubtful rows.
        datasheet: text of README.md.
        source: name of the imported file.

    Raises:
        BadTable: the rows do not match the schema.
    """
    tables = {RUNS: runs, FINDINGS: findings}
    if graphs:
        texts = [json.dumps(graph, sort_keys=True) for graph in graphs.values()]
        tables[GRAPHS] = pd.DataFrame({"digest": list(graphs), "graph": texts})
    OwnTable(description).validate(tables)
    sheets = {device.name: device.model_dump(mode="json") for device in devices}
    return Bundle.write(
        home() / "bundles" / description.name,
        description.name,
        tables,
        documents={DEVICES: sheets},
        datasheet=datasheet,
        facts={FACT: asdict(description), "source": source, "licence": "as the imported file"},
    )


def imported_tables() -> dict[str, OwnTable]:
    """The imported tables in the user's folder of bundles, by name."""
    folder = home() / "bundles"
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.name.startswith(".") and (path / FACTS).is_file():
            fact = Bundle(path.name, path).facts.get(FACT)
            if fact is not None:
                found[path.name] = OwnTable(_description(fact, path.name))
    return found


def _description(fact: Any, name: str) -> Description:
    try:
        listed = {key: tuple(fact[key]) for key in ("metrics", "settings")}
        return Description(name, fact["layout"], **listed)
    except (KeyError, TypeError) as error:
        raise BadTable(
            f"{FACTS} of the bundle {name} is damaged: {error}; import it again."
        ) from None


def datasheet_of(
    description: Description,
    runs: "pd.DataFrame",
    findings: "pd.DataFrame",
    columns: Mapping[str, str],
    source: str,
) -> str:
    """Text of the bundle's README.md: source, columns, counts by group, doubtful rows.

    Args:
        description: what the table holds.
        runs: its rows.
        findings: doubtful rows.
        columns: column of the imported file -> how it was interpreted.
        source: name of the imported file.
    """
    return markdown(
        "forerun.data.datasets",
        "imported.md",
        name=description.name,
        source=source,
        runs=runs,
        columns=columns,
        groups={
            name: sorted(set(text_keys(runs, [name])) - {""}) for name in GROUPS if name in runs
        },
        metrics={name: runs[name].dropna() for name in description.metrics},
        findings=counts(findings),
    )
