"""timm's networks by name: the benchmark's graphs again, without weights; refusals are one line."""

import pandas as pd
import pytest

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.features import model_zoo
from forerun.features.model_zoo import build, networks_of, versions, zoo_calls, zoo_graph

REFERENCE_TIMM = "1.0.31"
"""The version whose networks equal the reference table; others may define some differently."""
NETWORKS = [("resnet18", 224), ("vit_tiny_patch16_224", 224), ("skresnet18", 224)]


def test_each_timed_network_is_traced_once():
    bench = pd.DataFrame(
        {"model": ["b", "a", "b", "b"], "img_size": [224, 224, 288, 224], "device": [*"wxyz"]}
    )
    assert networks_of(bench) == [("a", 224), ("b", 224), ("b", 288)]


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(model_zoo, "find_spec", lambda name: None)
    for call in (versions, lambda: build("resnet18", 224), lambda: zoo_calls("resnet18", 224)):
        with pytest.raises(MissingExtra, match=r"pip install 'forerun\[zoo\]'"):
            call()


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network[0])
def test_rows_equal_the_reference_table(network, reference):
    timm = pytest.importorskip("timm", reason="needs the zoo extra")
    if timm.__version__ != REFERENCE_TIMM:
        pytest.skip(f"timm {timm.__version__} may define networks differently")
    name, size = network
    chosen = [("model", "==", name), ("img_size", "==", size)]
    table = pd.read_parquet(reference / "timm_bench" / "graphs.parquet", filters=chosen)
    made = pd.DataFrame(zoo_calls(name, size))
    expected = table[list(made.columns)].reset_index(drop=True)
    pd.testing.assert_frame_equal(made, expected, check_dtype=False)


def test_a_graph_of_a_network_is_that_of_any_module():
    pytest.importorskip("timm", reason="needs the zoo extra")
    graph = zoo_graph("resnet18", 224, batch_size=8)
    assert (graph.source, graph.batch_size) == ("torch_export", 8)
    assert graph.parameter_elements == pytest.approx(11.69e6, rel=0.002), "as published"


def test_unknown_names_and_other_sources_are_refused():
    pytest.importorskip("timm", reason="needs the zoo extra")
    with pytest.raises(UnreadableModel, match="Unknown model"):
        build("resnet_of_nobody", 224)
    with pytest.raises(UnreadableModel, match="own architectures"):
        build("hf-hub:timm/resnet18", 224)
