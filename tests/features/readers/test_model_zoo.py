"""timm's networks by name: the benchmark's graphs again, without weights; refusals are one line."""

import pandas as pd
import pytest

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.features.readers import model_zoo
from forerun.features.readers.model_zoo import build, networks_of, versions, zoo_calls, zoo_graph
from tests.zoo import needs_zoo

REFERENCE_TIMM = "1.0.31"
"""The version whose networks equal the reference table; others may define some differently."""
NETWORKS = [("resnet18", 224), ("vit_tiny_patch16_224", 224), ("convit_tiny", 224)]


def test_each_network_timed_in_inference_is_traced_once():
    sizes = [224, 224, 288, 224, 224]
    bench = pd.DataFrame({"model": [*"babbc"], "img_size": sizes, "device": [*"wxyzw"]})
    bench["phase"] = ["inference"] * 4 + ["training"]
    assert networks_of(bench) == [("a", 224), ("b", 224), ("b", 288)]


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(model_zoo, "find_spec", lambda name: None)
    for call in (versions, lambda: build("resnet18", 224), lambda: zoo_calls("resnet18", 224)):
        with pytest.raises(MissingExtra, match="scripts/install zoo"):
            call()


@needs_zoo
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network[0])
def test_rows_equal_the_reference_table(network, reference):
    if versions()["timm"] != REFERENCE_TIMM:
        pytest.skip(f"timm {versions()['timm']} may define networks differently")
    name, size = network
    chosen = [("model", "==", name), ("img_size", "==", size)]
    table = pd.read_parquet(reference / "timm_bench" / "graphs.parquet", filters=chosen)
    made = pd.DataFrame(zoo_calls(name, size))
    expected = table[list(made.columns)].reset_index(drop=True)
    pd.testing.assert_frame_equal(made, expected, check_dtype=False)


@needs_zoo
def test_a_graph_of_a_network_is_that_of_any_module():
    graph = zoo_graph("resnet18", 224, batch_size=8)
    assert (graph.source, graph.batch_size) == ("torch_export", 8)
    assert graph.parameter_elements == pytest.approx(11.69e6, rel=0.002), "as published"


@needs_zoo
def test_unknown_names_and_other_sources_are_refused():
    with pytest.raises(UnreadableModel, match="Unknown model"):
        build("resnet_of_nobody", 224)
    with pytest.raises(UnreadableModel, match="own architectures"):
        build("hf-hub:timm/resnet18", 224)
