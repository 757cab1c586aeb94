"""Types of arrays: with dimensions where they are checked, otherwise numpy's."""

import subprocess
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.shapes import Bool, Float64, Int, Shaped, Text, elements_of

PLAIN = """
import sys
import numpy as np
from numpy.typing import NDArray
from forerun.data.shapes import Bool, Float64, Int, Shaped, Text, elements_of

assert Float64[np.ndarray, "n d"] == NDArray[np.float64]
assert elements_of(Text[np.ndarray, " n"]) is np.str_
assert elements_of(Int[np.ndarray, " n"] | None) is None
assert "jaxtyping" not in sys.modules
"""


def test_elements_are_those_of_the_annotation():
    assert elements_of(Float64[np.ndarray, "n d"]) is np.float64
    assert elements_of(Bool[np.ndarray, " n"]) is np.bool_
    assert elements_of(Int[np.ndarray, " n"]) is np.integer
    assert elements_of(Text[np.ndarray, " n"]) is np.str_
    assert elements_of(Shaped[np.ndarray, " n"]) is Any
    assert elements_of(NDArray[np.float64]) is np.float64
    assert elements_of(float) is None


def test_texts_are_texts():
    assert isinstance(np.array(["a", "bcd"]), Text[np.ndarray, " n"])
    assert not isinstance(np.array([1.0]), Text[np.ndarray, " n"])


def test_commands_have_plain_types_also_when_tests_start_them():
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
