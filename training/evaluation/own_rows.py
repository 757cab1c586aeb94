"""A folder of one's own rows: names of its tables and columns, and which rows are left out.

Nothing is dropped without a word: rows that a protocol cannot use are counted by reason.
"""

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.errors import BadTable, MissingData
from forerun.training.evaluation.predictions import Answered
from forerun.training.protocols import DatasetProtocols


def check_tables(judge: DatasetProtocols, bundle: Bundle) -> None:
    """Refuse a folder whose tables or columns are called otherwise, naming the right ones.

    Raises:
        MissingData: none of the tables that are evaluated is there.
        BadTable: a table lacks a column.
    """
    if not judge.reads:
        return
    there = bundle.tables()
    if not set(judge.reads) & set(there):
        raise MissingData(
            f"{bundle.folder} has no table that `forerun evaluate {judge.dataset}` reads: it wants "
            f"{' or '.join(f'{name}.parquet (or .csv)' for name in judge.reads)}, and there is "
            f"{', '.join(there)}.{_close(there, list(judge.reads))}"
        )
    for table, wanted in judge.reads.items():
        if table not in there:
            continue
        columns = [str(name) for name in bundle.table(table).columns]
        missing = [name for name in wanted if name not in columns]
        if missing:
            raise BadTable(
                f"{bundle.folder / table} lacks the column{'s' * (len(missing) > 1)} "
                f"{', '.join(missing)}; it needs {', '.join(wanted)} and has "
                f"{', '.join(columns)}.{_close(columns, missing)}"
            )


def _close(given: Sequence[str], wanted: Sequence[str]) -> str:
    """Which of the names given may be meant by which wanted one."""
    pairs = [(difflib.get_close_matches(name, given, 1), name) for name in wanted]
    said = [f"{found[0]} to {name}" for found, name in pairs if found and found[0] not in wanted]
    return f" Rename {', '.join(said)}?" if said else ""


def unanswered(answered: Sequence[Answered]) -> dict[str, int]:
    """Rows of each reason why they were judged by nothing although they were measured."""
    found: dict[str, int] = {}
    for one in answered:
        if one.seed != answered[0].seed:
            continue
        measured = np.isfinite(one.columns["measured"])
        silent = int((measured & ~np.isfinite(one.columns["predicted"])).sum())
        if silent:
            reason = f"{one.task.name}: {one.predictor} gives no {one.task.metric} for them"
            found[reason] = found.get(reason, 0) + silent
    return found


def nothing_evaluated(result: dict[str, Any]) -> str | None:
    """Why a result holds no score at all, in one line; None where it holds one."""
    if any(task["n"] for task in result["tasks"]):
        return None
    reasons = "; ".join(f"{count:,} rows: {why}" for why, count in result["left_out"].items())
    return f"Nothing could be evaluated. {reasons or 'The folder holds no row to judge'}."
