"""Plain data comes out of pickles; anything that could run does not."""

import io
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import DamagedData
from forerun.data.upstream.plain_files import plain_data

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=4)
    | st.tuples(inner, inner),
    max_leaves=12,
)  # fmt: skip


@given(PLAIN, st.sampled_from([2, 4]))
def test_plain_data_is_what_was_pickled(content, protocol):
    assert plain_data(pickle.dumps(content, protocol=protocol), "x") == content


def test_numbers_of_numpy_become_floats():
    # Saved by numpy 1, as upstream's files are.
    content = pickle.dumps({(0, 1): np.float64(0.25)}, protocol=2)
    old = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert plain_data(old, "x") == {(0, 1): 0.25}


def test_a_file_of_torch_is_read_without_torch():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([1.5, 2.5], protocol=2))
        archive.writestr("archive/version", "3")
    assert plain_data(packed.getvalue(), "x.pt") == [1.5, 2.5]


class Evil:
    def __reduce__(self):
        return print, ("ran",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_what_could_run_is_refused_and_does_not_run(protocol, capsys):
    with pytest.raises(DamagedData, match="which is no plain data"):
        plain_data(pickle.dumps([Evil()], protocol=protocol), "x.pickle")
    assert not capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02]q\x00", b"\x80\x02a.", b"}."])
def test_a_damaged_file_says_so(content):
    if content == b"}.":
        assert plain_data(content, "x") == {}
        return
    with pytest.raises(DamagedData, match="x is no whole pickle"):
        plain_data(content, "x")
