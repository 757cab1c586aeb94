"""The store: acknowledged means on disk, memory is bounded, a refusal keeps nothing."""

import json
from dataclasses import replace
from threading import Thread

import pytest

from forerun.data import file_store
from forerun.data.errors import DiskFull, UnknownGraph
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.places import StoreFull
from tests.service.conftest import GRAPH

MANY = [replace(GRAPH, parameter_elements=count) for count in range(1, 9)]


def test_memory_holds_so_many_operators_and_the_disk_the_rest(tmp_path):
    store = GraphStore(tmp_path, 100, operators_in_memory=3 * len(GRAPH))
    digests = [store.put(graph) for graph in MANY]
    assert [store.held(d) is not None for d in digests] == [False] * 5 + [True] * 3
    assert store.get(digests[0]) == MANY[0]
    assert store.held(digests[5]) is None, "the longest unused left"
    assert all(store.get(d) == graph for d, graph in zip(digests, MANY, strict=True))


def test_a_graph_larger_than_the_memory_is_still_answered_from(tmp_path):
    store = GraphStore(tmp_path, 100, operators_in_memory=1)
    assert store.get(store.put(GRAPH)) == GRAPH


def test_uploads_at_once_are_counted_once(tmp_path):
    store = GraphStore(tmp_path, len(MANY))
    threads = [Thread(target=lambda g=graph: store.put(g)) for graph in MANY * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.iterdir())) == len(MANY)
    with pytest.raises(StoreFull):
        store.put(GRAPH)


def test_a_disk_that_refuses_leaves_nothing_behind(tmp_path, monkeypatch):
    store = GraphStore(tmp_path, 1)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_store.os, "fsync", full)
    with pytest.raises(DiskFull):
        store.put(GRAPH)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert store.get(store.put(GRAPH)) == GRAPH, "the refused one took no place"


def test_what_is_acknowledged_is_on_disk_with_its_name(tmp_path, synced):
    digest = GraphStore(tmp_path, 1).put(GRAPH)
    assert synced == [(tmp_path / f"{digest}.json").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", None])
def test_a_damaged_file_counts_as_absent_until_the_graph_is_uploaded_again(tmp_path, damage):
    digest = GraphStore(tmp_path, 1).put(GRAPH)
    path = tmp_path / f"{digest}.json"
    other = json.dumps(MANY[0].to_json()).encode()  # whole, and of another digest
    path.write_bytes(other if damage is None else damage)
    store = GraphStore(tmp_path, 1)
    with pytest.raises(UnknownGraph):
        store.get(digest)
    store.put(GRAPH)
    assert GraphStore(tmp_path, 1).get(digest) == GRAPH


def test_a_file_that_is_damaged_while_its_graph_is_in_memory_is_mended_too(tmp_path):
    store = GraphStore(tmp_path, 1)
    digest = store.put(GRAPH)
    (tmp_path / f"{digest}.json").write_text("{")
    store.put(GRAPH)
    assert GraphStore(tmp_path, 1).get(digest) == GRAPH


def test_two_stores_of_one_folder_keep_no_more_than_one(tmp_path):
    one, other = GraphStore(tmp_path, 1), GraphStore(tmp_path, 1)
    one.put(MANY[0])
    with pytest.raises(StoreFull):
        other.put(MANY[1])
    assert other.put(MANY[0]) == MANY[0].digest


@pytest.mark.parametrize("digest", ["", "0" * 32, "../" * 10 + "aa", "A" * 32, "\x00" * 32])
def test_what_is_no_digest_of_ours_is_unknown(tmp_path, digest):
    with pytest.raises(UnknownGraph):
        GraphStore(tmp_path, 1).get(digest)
