"""Upstream files are fetched by commit, checked by checksum, and skipped by name where absent."""

import functools
import gzip
import hashlib
import http.server
import json
import threading

import pytest

from forerun.data.errors import DamagedData, MissingData
from forerun.data.upstream.downloads import RawFiles, SkippedFiles, Upstream

FILES = {"a/plain.csv": b"x,y\n1,2\n", "b/with space & é.csv": b"z\n" * 99, "gone.csv": b"never"}
THERE = tuple(sorted(set(FILES) - {"gone.csv"}))
ROOT = ("owner", "repo", "c0ffee")


class Made(Upstream):
    """An upstream whose checksums are those of `FILES`."""

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
def served(tmp_path, monkeypatch):
    """The files over HTTP on this machine; returns the base URL and the folder served."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("FORERUN_MIRROR", raising=False)
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
        yield f"http://127.0.0.1:{server.server_port}", folder.joinpath(*ROOT)
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


def test_a_partial_file_is_right_when_the_mirrors_manifest_says_so(upstream, local, tmp_path):
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
    base, _ = served
    upstream = Made(*ROOT, checksums="none.json", base_url=base, retries=0)
    assert "with%20space%20%26%20%C3%A9.csv" in upstream.url(THERE[1])
    with pytest.warns(SkippedFiles, match="gone"):
        raw = upstream.fetch(tmp_path / "cache")
    assert [raw.read(path) for path in raw.paths] == [FILES[path] for path in THERE]


def test_a_second_fetch_reads_the_cache(served, tmp_path):
    base, folder = served
    upstream = Made(*ROOT, checksums="none.json", base_url=base, retries=0)
    with pytest.warns(SkippedFiles):
        upstream.fetch(tmp_path / "cache")
    for path in THERE:
        (folder / path).unlink()
    with pytest.warns(SkippedFiles):
        assert upstream.fetch(tmp_path / "cache").paths == THERE


@pytest.mark.filterwarnings("ignore")
def test_a_download_that_is_not_what_it_was_is_refused(served, tmp_path):
    base, folder = served
    (folder / THERE[0]).write_bytes(b"changed upstream")
    upstream = Made(*ROOT, checksums="none.json", base_url=base, retries=0)
    with pytest.raises(DamagedData, match=r"plain\.csv"):
        upstream.fetch(tmp_path / "cache")


@pytest.mark.filterwarnings("ignore")
def test_without_a_network_the_message_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("FORERUN_MIRROR", raising=False)
    upstream = Made(*ROOT, checksums="none.json", base_url="http://127.0.0.1:1", retries=0)
    with pytest.raises(MissingData, match="FORERUN_MIRROR=DIR"):
        upstream.fetch(tmp_path / "cache")


def test_a_pattern_matches_across_folders(tmp_path):
    raw = RawFiles(tmp_path, ("a/b/c.csv", "a/d.json"))
    assert raw.matching("a/*.csv") == ["a/b/c.csv"]
    with pytest.raises(MissingData, match=r"No file a/d\.json"):
        raw.read("a/d.json")
