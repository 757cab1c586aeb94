"""What every dataset whose rows come with the package promises besides."""

import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from tests.contracts.dataset_contract import DatasetContract


class PackagedContract(DatasetContract):
    """Subclass it, and set `cls`, what its datasheet says and its table in the reference."""

    datasheet_says = "Traps"
    reference_table = ""

    @pytest.fixture(scope="class")
    @classmethod
    def packaged(cls):
        return cls.cls().tidy(cls.cls().packaged())

    def test_the_packaged_rows_are_valid(self, packaged):
        self.cls().validate(packaged)

    def test_a_pull_writes_the_packaged_rows(self, packaged, tmp_path):
        bundle = self.cls().pull(folder=tmp_path / "pulled")
        assert set(bundle.tables()) == set(packaged)
        assert self.datasheet_says in bundle.datasheet

    def test_the_packaged_rows_are_the_reference(self, packaged, reference):
        if not self.reference_table:
            pytest.skip("the reference bundles do not have it")
        theirs = Bundle.open(reference / self.cls.name).table(self.reference_table)
        mine = packaged[self.reference_table]
        pd.testing.assert_frame_equal(mine, theirs[list(mine)])
