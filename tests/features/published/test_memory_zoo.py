"""Graphs of networks of memory tables: those that come with the package, and that they trace."""

import pytest

from forerun.data.datasets.published_memory import PublishedMemory
from forerun.features.published.memory_zoo import memory_networks
from forerun.features.published.zoo import graph_table, read_graphs
from tests.zoo import needs_zoo


@pytest.fixture(scope="module")
def packaged():
    dataset = PublishedMemory()
    return dataset.tidy(dataset.packaged())["graphs"]


def test_every_network_is_packaged_with_its_source(packaged):
    known = memory_networks()
    assert packaged["graph"].tolist() == list(known)
    for name, configuration in zip(packaged["graph"], packaged["configuration"], strict=True):
        assert configuration == known[name].configuration


def test_attention_is_one_operator_so_that_how_it_runs_is_an_option(packaged):
    for name, graph in read_graphs(packaged).items():
        if "sam" not in name:
            assert "attention" in {operator.kind for operator in graph.operators}, name


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("llama_3.2_3b-768", 3213),
        ("llama_3.1_70b-8192", 70554),
        ("vit_huge_patch14-224", 631),
        ("bert_large_classification-512", 335),
        ("stable_diffusion_1.5-512", 1066),
    ],
)
def test_parameters_are_as_many_as_published(packaged, name, millions):
    graph = read_graphs(packaged)[name]
    assert graph.parameter_elements / 1e6 == pytest.approx(millions, rel=0.005)


@needs_zoo
def test_a_network_traces_to_what_is_packaged(packaged):
    name = "bert_base_mlm-256-sum"
    table = graph_table([name], memory_networks(), marks=True)
    assert read_graphs(table)[name].digest == read_graphs(packaged)[name].digest
