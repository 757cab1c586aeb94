"""MLPerf results: upstream records, the parts that texts name, and the training rounds."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.mlperf_inference import (
    CLOSED,
    MlperfInference,
    accelerator,
    accelerator_key,
    device_keys,
    round_numbers,
    share_in_use,
)
from forerun.data.device import DeviceCatalog
from tests.contracts.dataset_contract import DatasetContract


class TestMlperfInference(DatasetContract):
    cls = MlperfInference

    def test_a_result_listed_twice_counts_once(self, tables):
        rows = tables[CLOSED]
        run = ["round", "platform", "model", "scenario", "result", "power_result"]
        assert not rows.duplicated(run).any()

    def test_power_in_separate_rows_is_joined_to_the_run(self, tables):
        rows = tables[CLOSED]
        joined = rows[(rows["round"] == "v3.0") & (rows["scenario"] == "Offline")]
        assert joined["power_result"].notna().all()
        assert set(rows["result_units"]) == {"Samples/s", "Queries/s", "Latency (ms)"}

    def test_training_for_a_round_uses_earlier_rounds(self, bundle):
        number = round_numbers(bundle.table(CLOSED)["round"])
        later = [s for s in MlperfInference().splits(bundle) if s.protocol.startswith("later")]
        assert [s.protocol for s in later] == ["later_rounds/v3.0", "later_rounds/v3.1"]
        for split in later:
            assert number[split.train].max() < number[split.held_out].min()


def test_rounds_have_an_order():
    assert round_numbers(["v2.1", "v3.0", "v10.2", "soon"])[:3].tolist() == [201, 300, 1002]
    assert np.isnan(round_numbers(["soon"])).all()


@pytest.mark.parametrize(
    ("text", "key", "share"),
    [
        ("NVIDIA H100-SXM-80GB", "h100-sxm-80gb", 1.0),
        ("Virtualized NVIDIA L40S", "l40s", 1.0),
        ("NVIDIA L40-PCIE-48GB", "l40", 1.0),
        ("NVIDIA A100-SXM-80GB (1x1g.10gb MIG)", "a100-sxm-80gb", 1 / 7),
        ("NVIDIA A30 (4x1g.6gb MIG)", "a30", 1.0),
        ("AMD MI300X-NPS1-SPX-192GB-750W", "mi300x", 1.0),
        ("QUALCOMM Cloud AI 100 PCIe/HHHL Pro", "cloud-ai-100-pro", 1.0),
        ("-", "amd-epyc-7742", 1.0),
        (float("nan"), "amd-epyc-7742", 1.0),
    ],
)
def test_part_and_share_are_parsed_from_text(text, key, share):
    assert accelerator_key(text, "AMD EPYC 7742") == key
    assert share_in_use(text) == pytest.approx(share)


def test_a_part_without_figures_is_still_a_device():
    catalog = DeviceCatalog.load()
    assert accelerator("l4", False, catalog).has_sheet
    assert not accelerator("rbln-atom", False, catalog).has_sheet


def test_most_rows_of_the_reference_have_a_spec_sheet(reference):
    rows = Bundle.open(reference / "mlperf_inference").table(CLOSED)
    catalog = DeviceCatalog.load()
    keys = device_keys(rows)
    known = {key: accelerator(key, False, catalog).has_sheet for key in np.unique(keys)}
    assert np.mean([known[key] for key in keys]) > 0.8
