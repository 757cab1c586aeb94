"""Packed tables lose no digit and equal the tidy tables; missing ones are explained."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets import dataset
from forerun.data.datasets.language_models.pack import (
    FROM,
    JOINED,
    PACKED,
    few_tokens,
    half_of_the_curves,
    main,
    missing_where_zero,
    ordered,
    packed,
    write_packed,
)
from forerun.data.datasets.language_models.splitwise import Splitwise
from forerun.data.errors import MissingData

MOST_BYTES = 14_000_000


def test_values_are_kept_to_the_last_bit(tmp_path):
    random = np.random.default_rng(0)
    large = pd.DataFrame({"size": random.integers(1, 9, 40_000), "why": "some text"})
    large["time_ms"] = random.random(len(large)).astype(np.float32)
    small = pd.DataFrame({"time_s": [0.3, np.nan, 0.1], "name": ["b", None, "a"]})
    write_packed({"large": large, "small": small}, tmp_path)
    found = Bundle.open(tmp_path)
    expected = large.sort_values(["size", "time_ms"], ignore_index=True)
    pd.testing.assert_frame_equal(found.table("large"), expected, check_exact=True)
    pd.testing.assert_frame_equal(found.table("small"), small, check_exact=True)


def test_half_of_the_curves_are_kept_completely_without_exact_repeats():
    shapes = pd.DataFrame({"hidden_size": np.arange(400)})
    table = shapes.merge(pd.DataFrame({"num_tokens": [1, 2, 4]}), how="cross")
    table["latency_ms"] = np.linspace(1.0, 2.0, len(table))
    kept = half_of_the_curves(pd.concat([table, table.iloc[:9]]))
    assert set(kept.groupby("hidden_size").size()) == {3}
    assert 150 < kept["hidden_size"].nunique() < 250
    pd.testing.assert_frame_equal(kept, half_of_the_curves(table))


def test_tokens_beyond_64_are_kept_in_steps_of_16():
    tokens = pd.DataFrame({"input": range(1, 130), "kv_cache": 0})
    assert few_tokens(tokens)["input"].tolist() == [*range(1, 65), 80, 96, 112, 128]


def test_a_zero_for_not_measured_becomes_missing():
    rule = missing_where_zero("power")
    assert rule(pd.DataFrame({"power": [0.0, 0.5]}))["power"].isna().tolist() == [True, False]


def test_all_tables_together_stay_small():
    folders = {dataset(name).packaged().folder for name in PACKED}
    assert len(folders) == len(PACKED)
    files = [path for folder in folders for path in folder.iterdir()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def test_each_datasheet_names_licence_source_and_tables():
    for name, tables in PACKED.items():
        source = dataset(name)
        sheet = source.packaged().text("README.md")
        assert source.licence.split()[0].rstrip(",") in sheet.partition("## Tables")[0]
        for table in tables:
            assert f"`{table}`" in sheet


def test_an_installation_without_the_tables_says_where_they_are(monkeypatch):
    monkeypatch.setattr(Splitwise, "room", "nowhere")
    with pytest.raises(MissingData, match=r"a clone of the repository has them,.* --data DIR"):
        Splitwise().packaged()


def test_an_installation_with_some_of_the_tables_says_where_the_others_are(monkeypatch):
    monkeypatch.setattr(Splitwise, "columns_of", {**Splitwise.columns_of, "left_out": {}})
    with pytest.raises(MissingData, match="a clone of the repository has them"):
        Splitwise().packaged()


def test_the_command_packs_the_named_datasets(tmp_path):
    runs = pd.DataFrame({"peak_power_frac_tdp": [0.0], "avg_power_frac_tdp": [0.5]})
    Bundle.write(tmp_path / "in" / "splitwise", "splitwise", {"perf_model": runs})
    main([str(tmp_path / "in"), str(tmp_path / "out"), "splitwise"])
    found = Bundle.open(tmp_path / "out" / "splitwise").table("perf_model")
    assert found["peak_power_frac_tdp"].isna().all()


@pytest.mark.parametrize("name", PACKED)
def test_the_packaged_tables_are_those_of_the_reference(name, reference):
    mine = Bundle.open(dataset(name).packaged().folder)
    assert mine.tables() == tuple(sorted({*PACKED[name], *JOINED.get(name, ())}))
    for table, expected in packed(name, reference).items():
        assert (reference / FROM.get(name, name)).is_dir()
        pd.testing.assert_frame_equal(
            mine.table(table), ordered(expected), check_exact=True, obj=f"{name}.{table}"
        )
