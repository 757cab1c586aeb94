"""The store: acknowledged means on disk, memory is bounded, a refusal keeps nothing."""

import json
from dataclasses import replace
from threading import Thread

import pytest

from forerun.data.errors import UnknownGraph
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


@pytest.mark.parametrize("digest", ["", "0" * 32, "../" * 10 + "aa", "A" * 32, "\x00" * 32])
def test_what_is_no_digest_of_ours_is_unknown(tmp_path, digest):
    with pytest.raises(UnknownGraph):
        GraphStore(tmp_path, 1).get(digest)
