"""A bundle is read from its files, hashed by its values, and replaced all or nothing."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.bundle import Bundle, bundle_folder, find, home, table_digest
from forerun.data.errors import BadTable, InputError, MissingData

ROWS = pd.DataFrame({"name": ["a", "b", "c"], "n": [1, 2, 3], "ms": [0.5, np.nan, 2.5]})


@pytest.fixture
def bundle(tmp_path):
    return Bundle.write(
        tmp_path / "made",
        "made",
        {"rows": ROWS, "more": ROWS},
        documents={"models": {"x": [1]}},
        datasheet="# made\n",
        facts={"licence": "MIT"},
        as_csv=("more",),
    )


def test_a_file_in_place_of_the_home_is_named(monkeypatch, tmp_path):
    file = tmp_path / "home"
    file.write_text("")
    monkeypatch.setenv("FORERUN_HOME", str(file))
    with pytest.raises(InputError, match="which is a file; set it to a folder"):
        home()


def test_what_is_written_is_read(bundle):
    assert bundle.tables() == ("more", "rows")
    pd.testing.assert_frame_equal(bundle.table("rows"), ROWS)
    pd.testing.assert_frame_equal(bundle.table("more"), ROWS)
    assert bundle.document("models") == {"x": [1]}
    assert bundle.datasheet == "# made\n"
    assert bundle.facts["licence"] == "MIT"
    assert bundle.facts["digest"] == bundle.digest
    assert bundle.facts["rows"] == {"rows": 3, "more": 3}
    assert bundle.has("rows")
    assert not bundle.has("models")


def test_a_table_is_added_and_everything_else_stays(bundle):
    before = bundle.digest
    made = bundle.with_tables({"graphs": ROWS.head(2)}, facts={"graphs": {"timm": "1.0"}})
    assert made.folder == bundle.folder
    assert made.tables() == ("graphs", "more", "rows")
    assert (made.folder / "more.csv").is_file(), "a table keeps its format"
    assert made.document("models") == {"x": [1]}
    assert made.datasheet == "# made\n"
    assert made.facts["licence"] == "MIT"
    assert made.facts["graphs"] == {"timm": "1.0"}
    assert made.facts["rows"] == {"graphs": 2, "more": 3, "rows": 3}
    assert made.facts["digest"] == made.digest != before
    again = made.with_tables({"graphs": ROWS.head(1)}, datasheet="# anew\n")
    assert (len(again.table("graphs")), again.datasheet) == (1, "# anew\n")


def test_a_missing_table_is_named_with_the_existing_ones(bundle):
    with pytest.raises(MissingData, match=r"no table 'ops'.*it has more, rows"):
        bundle.table("ops")


def test_a_missing_document_is_named(bundle):
    with pytest.raises(MissingData, match=r"no document ops\.json"):
        bundle.document("ops")


def test_a_damaged_file_is_named(bundle):
    for path in bundle.folder.iterdir():
        path.write_bytes(b"{damaged")
    with pytest.raises(BadTable, match=r"rows\.parquet"):
        bundle.table("rows")
    with pytest.raises(BadTable, match=r"models\.json"):
        bundle.document("models")
    with pytest.raises(BadTable, match=r"bundle\.json"):
        _ = bundle.facts


def test_open_takes_the_name_from_the_facts_else_from_the_folder(bundle, tmp_path):
    assert Bundle.open(bundle.folder).name == "made"
    (bundle.folder / "bundle.json").unlink()
    moved = bundle.folder.rename(tmp_path / "moved")
    assert Bundle.open(moved).name == "moved"
    assert Bundle.open(moved, "other").name == "other"
    assert Bundle.open(moved).facts == {}


def test_a_folder_without_tables_is_not_a_bundle(tmp_path):
    with pytest.raises(MissingData, match="holds no table"):
        Bundle.open(tmp_path)
    with pytest.raises(MissingData, match="No folder"):
        Bundle.open(tmp_path / "nowhere")


def test_the_digest_does_not_depend_on_format_order_or_width():
    digest = table_digest(ROWS)
    assert table_digest(ROWS.iloc[::-1]) == digest
    assert table_digest(ROWS[["ms", "name", "n"]]) == digest
    assert table_digest(ROWS.astype({"name": "category", "n": "Int32"})) == digest
    assert table_digest(ROWS.astype({"name": "string"}).set_index(pd.Index([7, 8, 9]))) == digest


@given(
    row=st.integers(0, 2), column=st.sampled_from(["name", "n", "ms"]), seed=st.integers(5, 10**6)
)
def test_the_digest_depends_on_every_value(row, column, seed):
    changed = ROWS.copy()
    changed.loc[row, column] = str(seed) if column == "name" else seed
    assert table_digest(changed) != table_digest(ROWS)


def test_values_swapped_between_rows_change_the_digest():
    swapped = ROWS.assign(n=[2, 1, 3])
    assert table_digest(swapped) != table_digest(ROWS)


def test_the_digest_of_a_bundle_covers_tables_and_documents(bundle, tmp_path):
    same = Bundle.write(
        tmp_path / "again",
        "made",
        {"more": ROWS, "rows": ROWS},
        documents={"models": {"x": [1]}},
        datasheet="another text",
    )
    other = Bundle.write(
        tmp_path / "other", "made", {"more": ROWS, "rows": ROWS}, documents={"models": {"x": [2]}}
    )
    assert same.digest == bundle.digest != other.digest


def test_writing_replaces_the_old_bundle_whole(bundle):
    again = Bundle.write(bundle.folder, "made", {"rows": ROWS.head(1)})
    assert again.tables() == ("rows",)
    assert len(again.table("rows")) == 1
    assert [p.name for p in bundle.folder.parent.iterdir()] == ["made"]


def test_a_bundle_left_aside_by_a_killed_replacement_is_found(bundle, monkeypatch, tmp_path):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    folder = bundle_folder("made")
    folder.parent.mkdir(parents=True)
    bundle.folder.rename(folder.with_name(".made.old"))
    pd.testing.assert_frame_equal(find("made").table("rows"), ROWS)
    assert folder.is_dir()


def test_find_says_how_to_get_a_dataset(monkeypatch, tmp_path):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    assert home() == tmp_path
    with pytest.raises(MissingData, match="forerun data pull neusight"):
        find("neusight")


def test_find_prefers_the_given_folder(bundle, monkeypatch, tmp_path):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    assert find("other", bundle.folder) == Bundle("other", bundle.folder)


def test_home_is_in_the_users_cache_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("FORERUN_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".cache" / "forerun"
