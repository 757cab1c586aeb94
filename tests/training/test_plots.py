"""Plots are valid images of the given rows; rows that show nothing are refused."""

import subprocess
import sys

import numpy as np
import pytest

from forerun.training.plots import (
    error_by_shots,
    parity,
)

rng = np.random.default_rng(0)
ROWS = 1500
MEASURED = np.exp(rng.normal(0, 2, ROWS))
PREDICTED = MEASURED * np.exp(rng.normal(0, 0.1, ROWS))
GROUPS = [("bmm", "linear", "softmax")[i % 3] for i in range(ROWS)]
CURVES = {
    "ours": {0: (30.0, None), 5: (12.0, 1.5), 20: (6.0, 0.5)},
    "constant": {0: (38.0, None), 5: (38.0, 0.1), 20: (38.0, 0.1)},
}


def pixels(path):
    from matplotlib.image import imread

    return imread(path)[..., :3]


def share_of_colour(path, hexadecimal):
    rgb = np.array([int(hexadecimal[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return float((np.abs(pixels(path) - rgb).max(axis=2) < 0.02).mean())


@pytest.mark.parametrize("draw", [
    lambda path: parity(path, MEASURED, PREDICTED, GROUPS),
    lambda path: parity(path, MEASURED, PREDICTED, GROUPS, metric_name="utilisation"),
    lambda path: parity(path, [1.0], [1.0], ["alone"], title="One row"),
    lambda path: error_by_shots(path, CURVES, [("them", 10.0)]),
    lambda path: error_by_shots(path, {"r": {20: (0.9, 0.1)}}, score="r", higher_is_better=True),
])  # fmt: skip
def test_a_figure_is_written_where_asked(tmp_path, draw):
    first = draw(tmp_path / "new" / "one.png")
    assert first == tmp_path / "new" / "one.png"
    height, width, _ = pixels(first).shape
    assert width > 900 and height > 500
    assert pixels(first).min() < 0.5 and pixels(first).max() == 1.0


@pytest.mark.parametrize("draw", [
    lambda path: parity(path, [1.0, 2.0], [1.0, 3.0], ["a", "b"]),
    lambda path: error_by_shots(path, CURVES, [("them", 10.0)]),
])  # fmt: skip
def test_a_figure_is_the_same_each_time(tmp_path, draw):
    assert draw(tmp_path / "one.png").read_bytes() == draw(tmp_path / "two.png").read_bytes()


def test_more_groups_than_colours_still_make_a_readable_picture(tmp_path):
    many = [f"task {i % 40}" for i in range(ROWS)]
    crowded = parity(tmp_path / "many.png", MEASURED, PREDICTED, many)
    few = parity(tmp_path / "few.png", MEASURED, PREDICTED, GROUPS)
    assert pixels(crowded).shape == pixels(few).shape
    assert share_of_colour(crowded, "#666666") > 0.0003, "the others have a colour"


@pytest.mark.parametrize("draw", [
    lambda path: parity(path, [], [], []),
    lambda path: parity(path, [0.0], [1.0], ["a"]),
    lambda path: parity(path, [1.0], [1.0], []),
    lambda path: parity(path, [1.0, 2.0], [1.0], ["a"]),
])  # fmt: skip
def test_rows_that_show_nothing_are_refused(tmp_path, draw):
    with pytest.raises(ValueError, match=r"needs|length"):
        draw(tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_drawing_does_not_change_global_styles(tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    error_by_shots(tmp_path / "a.png", CURVES)
    assert dict(mpl.rcParams) == before


def test_importing_figures_does_not_import_matplotlib():
    code = "import sys, forerun.training.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_curve_has_a_band_only_where_a_standard_error_was_measured(tmp_path):
    one_seed = {"ours": {k: (value, None) for k, (value, _) in CURVES["ours"].items()}}
    several = {"ours": {k: (value, 4.0) for k, (value, _) in CURVES["ours"].items()}}
    band = "#CCE3F0"  # the first colour at a fifth of its strength on white
    assert share_of_colour(error_by_shots(tmp_path / "band.png", several), band) > 0.02
    assert share_of_colour(error_by_shots(tmp_path / "none.png", one_seed), band) < 0.001


def test_an_empty_curve_is_refused(tmp_path):
    with pytest.raises(ValueError, match="error_by_shots"):
        error_by_shots(tmp_path / "none.png", {"ours": {}})
