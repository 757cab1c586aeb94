"""Graphs of published networks: those that come with the package, and that they trace the same."""

import json

import pytest

from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.features.published.zoo import (
    graph_table,
    networks,
    read_graphs,
)
from tests.zoo import needs_zoo


@pytest.fixture(scope="module")
def packaged():
    dataset = PublishedNetworks()
    return dataset.tidy(dataset.packaged())["graphs"]


def test_every_network_of_the_zoo_is_packaged_with_its_source(packaged):
    assert packaged["graph"].tolist() == list(networks())
    known = networks()
    for name, configuration in zip(packaged["graph"], packaged["configuration"], strict=True):
        assert configuration == known[name].configuration


def test_attention_is_fused_where_the_name_says_so(packaged):
    kinds = {
        name: {operator.kind for operator in graph.operators}
        for name, graph in read_graphs(packaged).items()
    }
    assert "attention" in kinds["bert_base-128-sdpa"]
    assert "attention" not in kinds["bert_base-128-eager"]
    assert "softmax" in kinds["bert_base-128-eager"]


@needs_zoo
@pytest.mark.parametrize("name", ["resnet50-224", "bert_base-128-sdpa"])
def test_a_network_traces_to_what_is_packaged(packaged, name):
    content = packaged.set_index("graph").loc[name, "content"]
    traced = read_graphs(graph_table([name]))[name]
    assert traced.digest == read_graphs(packaged)[name].digest
    assert traced.to_json() == json.loads(content)


@needs_zoo
def test_a_table_of_graphs_reads_back(packaged):
    table = graph_table(["resnet50_hf-224"])
    assert table["graph"].tolist() == ["resnet50_hf-224"]
    assert read_graphs(table)["resnet50_hf-224"] == read_graphs(packaged)["resnet50_hf-224"]
