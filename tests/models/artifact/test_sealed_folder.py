"""Sealed folders: changed, missing and executable files are refused."""

import json
from pathlib import Path

import pytest

from forerun.data.errors import BadArtifact
from forerun.models.artifact.sealed_folder import (
    check,
    load_predictor,
    seal,
)
from forerun.models.baselines.constant import Constant
from forerun.models.benchmark_suites.history import BenchmarkHistory
from forerun.models.catalog import Scope
from forerun.models.router import Router


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "constant"
    Constant({"latency_ms": 3.5}).save(target)
    seal(target, "2026-01-01")
    return target


def test_a_sealed_predictor_loads(folder):
    assert load_predictor(folder) == Constant({"latency_ms": 3.5})


def test_the_version_depends_on_content_not_on_the_day(folder, tmp_path):
    other = tmp_path / "other"
    Constant({"latency_ms": 3.5}).save(other)
    assert seal(other, "2027-12-31").version == check(folder).version
    Constant({"latency_ms": 3.6}).save(other)
    assert seal(other, "2027-12-31").version != check(folder).version


def test_a_changed_file_is_refused(folder):
    path = folder / "predictor.json"
    path.write_text(path.read_text().replace("3.5", "9.5"))
    with pytest.raises(BadArtifact, match=r"predictor\.json is missing, changed"):
        load_predictor(folder)


def test_only_files_that_a_scope_reads_are_hashed_and_all_are_listed(tmp_path):
    folder = tmp_path / "router"
    Router((Constant({"latency_ms": 3.5}), BenchmarkHistory())).save(folder)
    sealed = seal(folder, "2026-01-01")
    networks = Scope(frozenset({"network"}))
    left_out, read = (
        next(folder.glob(f"*-{name}/*")) for name in ("benchmark_history", "constant")
    )
    text = left_out.read_text()
    left_out.write_text(f"{text} ")
    assert check(folder, networks) == sealed
    for scope in (None, Scope(frozenset({"benchmark"}))):
        with pytest.raises(BadArtifact, match="is missing, changed"):
            check(folder, scope)
    left_out.unlink()
    with pytest.raises(BadArtifact, match="is missing, changed"):
        check(folder, networks)
    left_out.write_text(text)
    extra = left_out.parent / "extra.txt"
    extra.write_text("tree")
    with pytest.raises(BadArtifact, match=r"extra\.txt"):
        check(folder, networks)
    extra.unlink()
    read.write_text(f"{read.read_text()} ")
    with pytest.raises(BadArtifact, match="is missing, changed"):
        check(folder, networks)


def test_an_unlisted_file_is_refused(folder):
    (folder / "extra.txt").write_text("tree")
    with pytest.raises(BadArtifact, match=r"extra\.txt"):
        load_predictor(folder)


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.pt", "run.py"])
def test_a_file_that_could_run_code_is_refused(folder, name):
    (folder / name).write_bytes(b"\x80\x04.")
    with pytest.raises(BadArtifact, match="is not allowed in an artifact"):
        seal(folder, "2026-01-01")


def test_a_link_out_of_the_folder_is_refused(folder):
    (folder / "link.txt").symlink_to("/etc/hostname")
    with pytest.raises(BadArtifact, match="is not allowed in an artifact"):
        check(folder)


def test_an_unknown_predictor_is_refused(folder):
    path = folder / "predictor.json"
    content = json.loads(path.read_text()) | {"name": "oracle"}
    path.write_text(json.dumps(content))
    seal(folder, "2026-01-01")
    with pytest.raises(BadArtifact, match="'oracle'"):
        load_predictor(folder)


def test_a_folder_without_manifest_is_refused(tmp_path):
    with pytest.raises(BadArtifact, match=r"manifest\.json"):
        load_predictor(tmp_path)
