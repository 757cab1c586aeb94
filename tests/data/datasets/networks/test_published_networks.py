"""Published tables come with the package, and their rows are interpreted without guessing."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.datasets.networks.published_networks import (
    PublishedNetworks,
    chips,
    families,
    micro_batch,
    reasons,
    step_ms,
)
from tests.contracts.tiny_published import V100, published_rows, published_table
from tests.data.datasets.packaged_contract import PackagedContract

WARMED_UP = {"batch_size_per_gpu": 8.0, "micro_batch_per_gpu": 8.0, "throughput": 1000.0}


class TestPublishedNetworks(PackagedContract):
    cls = PublishedNetworks
    reference_table = "table"

    def test_a_family_is_left_out_with_all_its_variants(self, bundle, splits):
        assert set(splits) == {
            *("unseen_model/resnet", "unseen_model/efficientnet"),
            *("unseen_device/a100", "unseen_device/v100"),
        }
        table = bundle.table("table")
        assert set(table["model"][splits["unseen_model/resnet"].held_out]) == {"ResNet50-v1.5"}
        assert set(table["gpu"][splits["unseen_device/v100"].held_out]) == {"v100-sxm-16gb"}

    def test_each_of_the_packaged_rows_has_a_source(self, packaged):
        dataset, table = PublishedNetworks(), packaged["table"]
        assert len(table) == 5240
        assert table["source_commit"].str.fullmatch(r"[0-9a-f]{40}").all()
        sources = dataset.documents(dataset.packaged())["sources"]["sources"]
        assert set(table["source_repo"]) == {one["repository"] for one in sources}


def test_time_follows_from_throughput_because_averages_of_latency_include_warm_up():
    table = published_table({**WARMED_UP, "latency_avg_ms": 99.0})
    np.testing.assert_allclose(step_ms(table), [8.0])


def test_latency_is_used_if_no_throughput_is_printed():
    table = published_table({"throughput": None, "throughput_unit": None, "latency_avg_ms": 9.0})
    np.testing.assert_allclose(step_ms(table), [9.0])


def test_throughput_is_shared_among_the_gpus():
    table = published_table({**WARMED_UP, "gpu_count": 4.0})
    np.testing.assert_allclose(step_ms(table), [32.0])


def test_accumulated_batches_are_timed_by_the_micro_batch():
    row = {"batch_size_per_gpu": 2048.0, "micro_batch_per_gpu": 8.0, "throughput": 10.0}
    np.testing.assert_allclose(step_ms(published_table(row)), [800.0])


def test_efficientnet_trains_at_the_batch_of_its_configuration_file():
    missing = {"batch_size_per_gpu": None, "micro_batch_per_gpu": None, "phase": "training"}
    table = published_table(
        {**missing, "model": "EfficientNet-WideSE-B4"},
        {**missing, **V100, "model": "EfficientNet-B0"},
        {**missing, "model": "EfficientNet-B0", "phase": "inference"},
    )
    np.testing.assert_allclose(micro_batch(table), [128.0, 128.0, np.nan])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"kind": "served"}, "served by Triton"),
        ({"framework": "mxnet"}, "neither PyTorch nor TensorRT"),
        ({"phase": "generation"}, "generates tokens or images"),
        ({"runtime": "torch.compile max-autotune"}, "runtime is not modelled"),
        ({"precision": "bf16+sparse"}, "precision is not modelled"),
        ({"gpu_count": 8.0}, "number of GPUs unknown or several: communication"),
        ({"throughput_unit": "tok/s"}, "throughput does not count items"),
        ({"model": "SSD300-v1.1-ResNet50"}, "data loading is inside the timed region"),
        (
            {"model": "BERT-large", "sequence_or_image": "512", "phase": "training"},
            "sequences are shorter than the printed length",
        ),
        (
            {"framework": "pytorch (transformers)", "gpu": "a100-sxm-40gb", "precision": "fp32"},
            "faster than the printed precision can be",
        ),
        ({"micro_batch_per_gpu": None}, "batch size is not printed"),
        ({"throughput": None, "latency_avg_ms": None}, "no time"),
        ({}, ""),
    ],
)
def test_excluded_rows_have_a_reason(row, why):
    assert reasons(published_table(row)).tolist() == [why]


def test_a_row_printed_twice_counts_once():
    assert reasons(published_rows())[-1] == "repeats a row above"


def test_a_single_gpu_row_far_below_an_eighth_of_eight_gpus_is_excluded():
    training = {**WARMED_UP, "phase": "training"}
    table = published_table(
        {**training, "throughput": 100.0},
        {**training, "throughput": 1700.0, "gpu_count": 8.0},
        {**training, "throughput": 100.0, "precision": "tf32"},
        {**training, "throughput": 790.0, "gpu_count": 8.0, "precision": "tf32"},
    )
    assert reasons(table)[0] == "contradicts the row of eight GPUs"
    assert reasons(table)[2] == ""


@pytest.mark.parametrize(
    ("models", "family"),
    [
        (("ResNet50-v1.5", "ResNet-50", "SE-ResNeXt101-32x4d"), "resnet"),
        (("EfficientNet-B0", "EfficientNet-WideSE-B4"), "efficientnet"),
        (("ViT-B/16", "BEiT-B/16", "deit", "vit_msn", "data2vec-vision-base"), "vit"),
        (("BERT-large", "bert-base-uncased", "albert-base-v2"), "bert"),
        (("DETR-R50", "Conditional-DETR-R50"), "detr"),
    ],
)
def test_variants_of_an_architecture_are_one_family(models, family):
    assert set(families(pd.Series(models))) == {family}


def test_memory_sizes_and_form_factors_of_a_chip_count_as_one_chip():
    names = ["v100-sxm-16gb", "v100-sxm-32gb", "v100", "a100", "a100-sxm-40gb", "rtx2060"]
    assert chips(pd.Series(names)).tolist() == ["v100"] * 3 + ["a100"] * 2 + ["rtx2060"]
