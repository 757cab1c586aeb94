"""Boosters evaluated by LightGBM's C library: as its Python package, which is not imported."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import lightgbm
import numpy as np
import pytest

from forerun.models.gradient_boosting.bags import LEAVES, LoadedBooster, leaf_counts

MATRIX = np.random.default_rng(0).normal(size=(300, 4))
SETTINGS = {"verbosity": -1, "num_leaves": 7, "min_data_in_leaf": 5, "num_threads": 1}


@pytest.fixture(scope="module")
def theirs():
    target = MATRIX[:, 0] ** 2 + MATRIX[:, 1]
    return lightgbm.train(SETTINGS, lightgbm.Dataset(MATRIX, label=target), num_boost_round=9)


@pytest.fixture(scope="module")
def ours(theirs):
    return LoadedBooster(theirs.model_to_string())


@pytest.mark.parametrize(
    "matrix",
    [
        *(MATRIX[:rows] for rows in (0, 1, 3, 8, 9, 300)),
        *(MATRIX[20:50:7], np.asfortranarray(MATRIX), np.asfortranarray(MATRIX[:5])),
    ],
)
def test_predictions_are_equal_in_every_bit(ours, theirs, matrix):
    expected = theirs.predict(matrix) if len(matrix) else np.zeros(0)
    assert ours.predict(matrix).tobytes() == expected.tobytes()


def test_a_missing_value_goes_where_the_package_sends_it(ours, theirs):
    gaps = np.where(MATRIX > 1.0, np.nan, MATRIX)
    assert ours.predict(gaps).tobytes() == theirs.predict(gaps).tobytes()
    alone = np.concatenate([ours.predict(gaps[row : row + 1]) for row in range(len(gaps))])
    assert alone.tobytes() == theirs.predict(gaps).tobytes()


@pytest.mark.parametrize("count", [1, 4])
def test_rows_of_several_threads_do_not_mix(ours, theirs, count):
    parts = [*MATRIX.reshape(-1, count, MATRIX.shape[1])] * 20
    with ThreadPoolExecutor(8) as pool:
        found = np.concatenate(list(pool.map(ours.predict, parts)))
    assert found.tolist() == theirs.predict(MATRIX).tolist() * 20


def test_leaves_and_their_outputs_are_equal(ours, theirs):
    reached = theirs.predict(MATRIX, pred_leaf=True)
    np.testing.assert_array_equal(ours.predict(MATRIX, LEAVES).reshape(reached.shape), reached)
    counts = leaf_counts(theirs.model_to_string())
    assert counts == [tree["num_leaves"] for tree in theirs.dump_model()["tree_info"]]
    for tree, outputs in enumerate(ours.leaf_outputs(counts)):
        assert outputs.tolist() == [
            theirs.get_leaf_output(tree, leaf) for leaf in range(counts[tree])
        ]


@pytest.mark.parametrize("text", ["", "nonsense", "tree\nversion=v4\n"])
def test_what_is_no_booster_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        LoadedBooster(text)


@pytest.mark.parametrize("rows", [1, 2])
def test_another_number_of_features_is_refused(ours, rows):
    with pytest.raises(ValueError, match="features"):
        ours.predict(MATRIX[:rows, :3])


def test_what_single_rows_need_is_freed_with_the_booster(theirs):
    text = theirs.model_to_string()
    found = {float(LoadedBooster(text).predict(MATRIX[:1])[0]) for _ in range(200)}
    assert found == {float(theirs.predict(MATRIX[:1])[0])}


def test_the_python_package_is_not_imported(theirs, tmp_path):
    (tmp_path / "booster.txt").write_text(theirs.model_to_string())
    code = (
        "import sys, numpy\n"
        "from pathlib import Path\n"
        "from forerun.models.gradient_boosting.bags import LoadedBooster\n"
        "LoadedBooster(Path(sys.argv[1]).read_text()).predict(numpy.zeros((2, 4)))\n"
        "assert not {'lightgbm', 'sklearn', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "booster.txt")], check=True)
