"""Runs whose power is asked: which boards carry the same chip."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.models.power.law import silicon

CATALOG = DeviceCatalog.load()


def test_boards_that_differ_in_memory_and_power_limit_carry_one_chip() -> None:
    board = CATALOG.get("a100-sxm-80gb")
    assert silicon(board.model_copy(update={"memory_gib": 40.0, "tdp_w": 300.0})) == silicon(board)


@pytest.mark.parametrize("field", ["compute_units", "boost_clock_mhz"])
def test_more_units_or_a_faster_clock_are_another_chip(field: str) -> None:
    board = CATALOG.get("a100-sxm-80gb")
    assert silicon(board.model_copy(update={field: 2 * getattr(board, field)})) != silicon(board)


def test_the_key_holds_the_fp32_peak_and_without_one_the_highest() -> None:
    board = CATALOG.get("a100-sxm-80gb")
    assert silicon(board)[2] == pytest.approx(np.log(board.peak_tflops["fp32"]), abs=1e-6)
    others = {name: peak for name, peak in board.peak_tflops.items() if name != "fp32"}
    key = silicon(board.model_copy(update={"peak_tflops": others}))
    assert key[2] == pytest.approx(np.log(max(others.values())), abs=1e-6)
