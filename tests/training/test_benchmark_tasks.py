"""Protocols of wa_hls4ml and ncpp: training rows, held-out rows, and tasks on a new folder."""

import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.hls_designs.wa_hls4ml import WaHls4ml
from forerun.data.device import DeviceCatalog
from forerun.training.protocols.hls_designs.wa_hls4ml import WaHls4mlProtocols
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


def tiny(dataset, folder) -> Bundle:
    tables = dataset.tidy(tiny_upstream(dataset.name, folder / "upstream"))
    return Bundle.write(folder / "bundle", dataset.name, tables)


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    return tiny(WaHls4ml(), tmp_path_factory.mktemp("wa_hls4ml"))


def test_failed_layers_are_no_training_rows_and_labels_are_not_settings(layers):
    train = WaHls4mlProtocols().training_rows(layers, CATALOG)
    assert len(train) == 15
    names = {name for q in train.queries for name, _ in q.workload.settings}
    assert names == {
        *("d_in", "d_out", "precision_bits", "reuse_factor", "strategy", "multipliers")
    }
