"""The report on a fleet of 1,000 GPUs over a week."""

import numpy as np

from forerun.data.language_models.traces import named_trace
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.training.reports import fleet


def test_a_week_has_the_trace_stretched_to_each_of_its_days() -> None:
    trace = named_trace("splitwise_code")
    week = fleet.week_of(trace)
    assert len(week) == 7 * len(trace) and (np.diff(week.arrival_s) >= 0).all()
    assert week.arrival_s[-1] - week.arrival_s[0] == 7 * 86_400
    days, counts = np.unique(week.arrival_s[:-1] // 86_400, return_counts=True)
    assert days.tolist() == list(range(7))
    assert np.abs(counts - len(trace)).max() <= 1
    third = week.take(slice(3 * len(trace), 4 * len(trace)))
    assert (third.input_tokens == trace.input_tokens).all()


def test_the_busiest_window_needs_all_gpus(monkeypatch) -> None:
    """In windows of four hours, with few requests replayed."""
    monkeypatch.setattr(fleet, "WINDOW_S", 14_400.0)
    monkeypatch.setattr(fleet, "REPLAYED", 2_000)
    in_use = InUse(bundled(Scope(frozenset({"llm_deployment", "llm_serving"}))))
    cells = list(fleet.row("splitwise_conv", "h100-sxm-80gb", in_use))
    assert len(cells) == len(fleet.COLUMNS.split("|")) - 1
    devices, most = int(cells[0].split()[0]), int(cells[0].split()[-1])
    assert 940 <= devices * most <= 1000
    assert cells[2] == "0.0 %" and abs(int(cells[3].replace(",", "")) - 2_000) < 200
    hours, energy = (float(cell.split()[0]) for cell in cells[6:8])
    assert 0 < energy <= hours < 100
