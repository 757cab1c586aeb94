"""What pods ask for in their annotations, and devices of nodes by their labels."""

import json

import pytest
from msgspec import Raw, convert

from forerun.data.errors import BadRequest
from forerun.service.http.kubernetes.extender import ClusterNode, Pod
from forerun.service.http.kubernetes.nodes import (
    devices_of,
    devices_on,
    requested_devices,
    requested_slice,
)
from forerun.service.http.kubernetes.pods import placed_by, residents_of
from forerun.service.http.schemas import RankIn
from tests.devices import CATALOG
from tests.service.http.kubernetes.requests import device_of, named, pod


def placed(**annotations: str):
    given = {name.replace("_", "-"): text for name, text in annotations.items()}
    return placed_by(convert(pod(given), Pod))


def test_annotations_are_fields_of_a_network():
    found = placed(graph="resnet50", batch_size="64", precision="amp").ranking
    asked = RankIn.model_validate(found)
    assert asked.workload.kind == "network"
    assert (asked.workload.graph, asked.workload.batch_size) == ("resnet50", 64)
    assert asked.workload.precision == "amp"


def test_a_workload_may_be_given_whole():
    operator = {"kind": "relu", "input_shapes": [[8]], "output_shapes": [[8]]}
    text = json.dumps({"kind": "kernel", "operator": operator})
    asked = RankIn.model_validate(placed(workload=text).ranking)
    assert asked.workload.operator.kind == "relu"


def test_options_of_the_placement_are_no_fields_of_the_workload():
    found = placed(
        graph="resnet50",
        objective="energy_j",
        risk="value",
        software='{"runtime": "compiled"}',
        power_limit_w="200",
        max_latency_ms="40",
        max_power_w="300",
        max_peak_memory_mib="8000",
        must_fit="false",
        in_domain_only="true",
    )
    asked = RankIn.model_validate(found.ranking)
    assert (asked.objective, asked.risk, asked.software.runtime) == (
        "energy_j",
        "value",
        "compiled",
    )
    assert asked.operation.power_limit_w == 200
    limits = asked.limits
    assert (limits.latency_ms, limits.power_w, limits.peak_memory_mib) == (40, 300, 8000)
    assert (limits.must_fit, limits.in_domain_only) == (False, True)


@pytest.mark.parametrize("digest", ["12345678", "1e5", "true", "null"])
def test_a_digest_that_looks_like_a_number_stays_a_text(digest):
    assert placed(graph=digest).ranking["workload"]["graph"] == digest


def test_a_pod_without_annotations_asks_for_nothing():
    found = placed()
    assert (found.ranking, found.speed) == (None, None)
    assert placed_by(convert({"metadata": {}}, Pod)) == found


def test_a_program_is_given_by_name_or_with_its_profile():
    assert placed(program="redis").speed.program.name == "redis"
    found = placed(program='{"name": "a", "threads": 4}', min_relative_speed="0.8").speed
    assert (found.program.threads, found.min_relative_speed) == (4, 0.8)
    assert [
        one.name for one in residents_of({"forerun.dev/residents": '["a", {"name": "b"}]'})
    ] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"max_latency_ms": "40"}, "forerun.dev/graph"),
        ({"workload": "7"}, "forerun.dev/workload"),
        ({"min_relative_speed": "0.8"}, "program"),
        ({"program": "a", "min_relative_speed": "1.5"}, "min_relative_speed"),
    ],
)
def test_what_does_not_fit_is_named(annotations, named):
    with pytest.raises(BadRequest, match=named):
        placed(**annotations)


@pytest.mark.parametrize("text", ["{}", "7", '[{"threads": 1}]'])
def test_residents_that_are_no_programs_are_refused(text):
    with pytest.raises(BadRequest):
        residents_of({"forerun.dev/residents": text})


PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("label", "text", "name"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", "a100-sxm-80gb"),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", "a100-sxm-40gb"),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", "h100-sxm-80gb"),
        ("nvidia.com/gpu.product", "NVIDIA-H100-PCIe", "h100-pcie-80gb"),
        ("nvidia.com/gpu.product", "Tesla-T4-SHARED", "t4"),
        ("nvidia.com/gpu.product", "Tesla-V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", "mi300x"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", "a100-sxm-40gb"),
        ("cloud.google.com/gke-accelerator", "nvidia-l4", "l4"),
        ("karpenter.k8s.aws/instance-gpu-name", "a10g", "a10g"),
        ("forerun.dev/device", "l40s", "l40s"),
    ],
)
def test_labels_of_node_labellers_name_the_device(label, text, name):
    assert device_of({label: text}).name == name


def test_the_own_label_comes_before_all_others():
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "forerun.dev/device": "l4"}
    assert device_of(labels).name == "l4"


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.product": "NVIDIA-Z9000"}])
def test_a_node_without_a_known_product_has_no_device(labels):
    assert device_of(labels) is None


def test_the_labels_of_all_nodes_are_looked_up_together():
    labels = ["NVIDIA-Z9000", "NVIDIA-Z9001", "Tesla-T4", "NVIDIA-L4"]
    nodes = [
        ClusterNode(str(number), {PRODUCT: labels[number % len(labels)]}, {}, Raw())
        for number in range(100)
    ]
    asked = []
    found = devices_of(nodes, None, lambda names: asked.append(names) or named(names))
    assert asked == [{*labels}]
    assert {name: device.name for name, device in found.items()} == {
        node.name: {"Tesla-T4": "t4", "NVIDIA-L4": "l4"}[node.labels[PRODUCT]]
        for node in nodes
        if "Z900" not in node.labels[PRODUCT]
    }


def test_the_memory_that_a_node_states_counts_where_it_is_another_than_the_sheets():
    product = {"nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}
    usual, larger = (
        device_of({**product, "nvidia.com/gpu.memory": m}) for m in ("97871", "147456")
    )
    assert usual == CATALOG.get("gh200-96gb")
    assert larger.memory_gib == 144.0
    assert larger.name != usual.name
    assert larger.memory_bandwidth_gbs == usual.memory_bandwidth_gbs


def test_a_slice_has_its_part_of_each_figure_and_no_power():
    whole = CATALOG.get("a100-sxm-80gb")
    own = device_of({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"})
    assert own.memory_gib == 39.25
    assert own.memory_bandwidth_gbs == whole.memory_bandwidth_gbs / 2
    assert own.peak("fp16") == pytest.approx(whole.peak("fp16") * 42 / 108)
    assert own.compute_units == 42
    assert own.tdp_w is None
    assert "mig" in own.name


@pytest.mark.parametrize(
    ("resource", "amount", "profile", "gib"),
    [
        ("nvidia.com/mig-1g.10gb", "1", "1g.10gb", 9.75),
        ("nvidia.com/gpumem", "4096", "4096mib", 4),
        ("volcano.sh/vgpu-memory-percentage", "50", "50pct", 40),
        ("nvidia.com/gpumem", "163840", "163840mib", None),
    ],
)
def test_a_pods_container_says_which_slice_or_share_it_uses(resource, amount, profile, gib):
    asked = convert(pod({}, {"nvidia.com/gpu": "1", resource: amount}), Pod)
    assert requested_slice(asked) == profile
    assert requested_slice(convert(pod({}, {"nvidia.com/gpu": "1"}), Pod)) is None
    own = device_of({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, profile)
    assert (own and own.memory_gib) == gib
    assert own is None or CATALOG.get(own.name) == own


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ([{"nvidia.com/gpu": "2"}, {"cpu": "4"}, {"nvidia.com/gpu": 1}], 3),
        ([{"amd.com/gpu": "1"}], 1),
        ([{"nvidia.com/mig-1g.10gb": "2"}], 2),
        ([{"nvidia.com/gpu": "0"}], None),
        ([{"nvidia.com/gpu": "1k"}, None], None),
        ([], None),
    ],
)
def test_devices_of_all_containers_of_a_pod_are_counted(limits, count):
    containers = [{"resources": {"limits": own}} for own in limits]
    given = convert({"metadata": {}, "spec": {"containers": containers}}, Pod)
    assert requested_devices(given) == count
    assert requested_devices(convert({"metadata": {}}, Pod)) is None


@pytest.mark.parametrize(
    ("labels", "count"),
    [
        ({"nvidia.com/gpu.count": "8", "karpenter.k8s.aws/instance-gpu-count": "4"}, 8),
        ({"cloud.google.com/gke-accelerator-count": "2"}, 2),
        ({"karpenter.k8s.aws/instance-gpu-count": "4"}, 4),
        ({"nvidia.com/gpu.count": "some"}, None),
        ({}, None),
    ],
)
def test_labels_count_the_devices_of_a_node(labels, count):
    assert devices_on(ClusterNode("a", labels, {}, Raw())) == count
