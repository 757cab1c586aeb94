"""What was computed from model files: found by content, never after a change, always whole."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forerun.data.file_store import CLOCK_STEP_NS
from forerun.features.readers import MAX_BYTES
from forerun.service.stores import model_file_cache
from forerun.service.stores.model_file_cache import TextCache, cached, stamp_of

KEY, OTHER = "1" * 64, "2" * 64


def written(path, text):
    """A file that changed long ago, whose content is not in flux."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    before = path.stat().st_mtime_ns - 100 * CLOCK_STEP_NS
    os.utime(path, ns=(before, before))
    return path


@pytest.fixture
def model(tmp_path):
    return written(tmp_path / "model.onnx", "a network")


@pytest.fixture
def ask(tmp_path):
    """Compute from a file, and say how often something was computed."""
    calls = []

    def call(source, inputs=(), load=str):
        def compute():
            calls.append(source)
            return source.read_text()

        assert cached(tmp_path, source, inputs, compute, dump=str, load=load) == source.read_text()
        return len(calls)

    return call


def test_a_text_is_found_again_by_its_key_alone(tmp_path):
    TextCache(tmp_path).put(KEY, "a\r\nline\n")
    assert TextCache(tmp_path).get(KEY) == "a\r\nline\n"
    assert TextCache(tmp_path).get(OTHER) is None
    (tmp_path / KEY).rename(tmp_path / OTHER)
    assert TextCache(tmp_path).get(OTHER) is None


@pytest.mark.parametrize("damaged", [lambda b: b[:-1], lambda b: b"", lambda b: b"\xff" + b])
def test_a_damaged_entry_counts_as_absent_and_is_replaced(tmp_path, damaged):
    cache = TextCache(tmp_path)
    cache.put(KEY, "text")
    path = tmp_path / KEY
    path.write_bytes(damaged(path.read_bytes()))
    assert cache.get(KEY) is None
    cache.put(KEY, "text")
    assert cache.get(KEY) == "text"


def test_the_least_recently_used_leave_first(tmp_path):
    cache = TextCache(tmp_path, room=300)
    for number in range(3):
        cache.put(str(number), "x" * 20)
        os.utime(tmp_path / str(number), ns=(number, number))
    assert cache.get("0") is not None
    cache.put("3", "x" * 20)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "2", "3"}


def test_the_number_of_entries_is_bounded_and_drafts_that_were_left_count(tmp_path):
    cache = TextCache(tmp_path, most=2)
    os.utime(written(tmp_path / ".left.part", ""), ns=(1, 1))
    for number in range(3):
        cache.put(str(number), "")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "file").touch()
    cache = TextCache(tmp_path / "file" / "cache")
    cache.put(KEY, "text")
    assert cache.get(KEY) is None


def test_a_disk_that_fills_up_leaves_no_draft(tmp_path, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    TextCache(tmp_path).put(KEY, "text")
    assert list(tmp_path.iterdir()) == []


def test_entries_are_readable_by_their_owner_alone(tmp_path):
    TextCache(tmp_path).put(KEY, "text")
    assert (tmp_path / KEY).stat().st_mode & 0o077 == 0


def test_writers_at_the_same_time_leave_a_whole_entry(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: TextCache(tmp_path, most=3).put(str(n % 4), "x" * n), range(200)))
    cache = TextCache(tmp_path)
    texts = [cache.get(path.name) for path in tmp_path.iterdir()]
    assert texts
    assert None not in texts


def test_drafts_of_writers_at_work_are_no_entries(tmp_path):
    drafts = [written(tmp_path / f".{number}.part", "") for number in range(3)]
    TextCache(tmp_path, most=1).put(KEY, "text")
    assert all(draft.exists() for draft in drafts)
    assert TextCache(tmp_path).get(KEY) == "text"


def test_an_equal_file_elsewhere_is_not_computed_again(ask, model, tmp_path):
    assert ask(model) == ask(model) == 1
    assert ask(written(tmp_path / "elsewhere" / "model.onnx", "a network")) == 1


def test_another_content_name_or_input_is_computed_anew(ask, model, tmp_path):
    ask(model)
    assert ask(model, {"batch_size": 2}) == 2
    assert ask(written(model, "another network")) == 3
    assert ask(written(tmp_path / "other.onnx", "a network")) == 4


def test_a_change_of_the_installation_is_computed_anew(ask, model, tmp_path, monkeypatch):
    ask(model)
    monkeypatch.setattr(model_file_cache.sys, "path", [str(tmp_path / "site-packages")])
    (tmp_path / "site-packages").mkdir()
    assert ask(model) == 2
    monkeypatch.setattr(model_file_cache, "__file__", str(tmp_path / "a/b/c.py"))
    assert ask(model) == 3


def test_a_file_in_flux_or_of_another_package_or_too_large_is_not_kept(ask, model, tmp_path):
    model.touch()
    assert ask(model) < ask(model)
    other = written(tmp_path / "model.theirs", "a network")
    assert ask(other) < ask(other)
    with model.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    assert cached(tmp_path, model, (), lambda: "large", dump=str, load=str) == "large"
    assert not (tmp_path / "cache").exists()


def test_a_file_that_changes_while_it_is_read_is_not_kept(model, tmp_path):
    def compute():
        written(model, "another network")
        return "a network"

    cached(tmp_path, model, (), compute, dump=str, load=str)
    written(model, "a network")
    assert cached(tmp_path, model, (), lambda: "anew", dump=str, load=str) == "anew"


def test_a_value_that_its_text_does_not_restore_is_not_kept(ask, model):
    assert ask(model, load=lambda text: text[1:]) == 1
    assert ask(model, load=lambda text: text[1:]) == 2


def test_a_stamp_changes_with_every_file_also_of_the_same_size(tmp_path):
    stamps = [stamp_of(tmp_path / "devices")]
    for name, text in (("devices/a", "1"), ("devices/a", "2"), ("devices/deep/b", "3")):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        draft = tmp_path / "draft"
        draft.write_text(text)
        draft.replace(tmp_path / name)
        stamps.append(stamp_of(tmp_path / "devices"))
    assert len(set(stamps)) == len(stamps)
    assert stamp_of(tmp_path / "devices") == stamps[-1]
