"""What every dataset promises, written once; a dataset's test says which class it is about."""

import re

import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets import DATASETS
from forerun.data.datasets.dataset import Dataset
from forerun.data.datasets.packaged import MeasuredDataset, PackagedDataset
from forerun.data.quality import FLAGS, row_weights
from forerun.data.upstream.downloads import RawFiles
from tests.contracts.tiny_upstream import tiny_upstream


class DatasetContract:
    """Subclass it, and set `cls`."""

    cls: type[Dataset]

    @pytest.fixture
    def raw(self, tmp_path):
        return tiny_upstream(self.cls.name, tmp_path / "upstream")

    @pytest.fixture(scope="class")
    @classmethod
    def tidied(cls, tmp_path_factory):
        """Upstream files and their tables, which all tests of a class share."""
        raw = tiny_upstream(cls.cls.name, tmp_path_factory.mktemp("upstream"))
        return raw, cls.cls().tidy(raw)

    @pytest.fixture
    def tables(self, tidied):
        return {name: frame.copy() for name, frame in tidied[1].items()}

    @pytest.fixture(scope="class")
    @classmethod
    def bundle(cls, tidied, tmp_path_factory):
        """A bundle that all tests of a class read, and none writes to."""
        dataset, (raw, tables) = cls.cls(), tidied
        return Bundle.write(
            tmp_path_factory.mktemp("bundle") / "bundle",
            dataset.name,
            tables,
            documents=dataset.documents(raw),
            as_csv=dataset.csv_tables,
        )

    def test_it_is_listed(self):
        assert self.cls in DATASETS

    def test_it_says_where_it_is_from_and_under_which_licence(self):
        for field in ("name", "title", "licence", "citation", "published"):
            assert getattr(self.cls, field)
        if issubclass(self.cls, MeasuredDataset):
            assert self.cls.origin.startswith("forerun collect ")
        if issubclass(self.cls, PackagedDataset):
            assert self.cls.origin
            return
        assert re.fullmatch(r"[0-9a-f]{40}", self.cls.upstream.commit)
        assert self.cls.upstream.files
        for path, checksum in self.cls.upstream.files.items():
            assert not path.startswith("/")
            assert re.fullmatch(r"[0-9a-f]{64}", checksum)

    def test_tidy_tables_satisfy_their_schemas(self, tables):
        self.cls().validate(tables)

    def test_a_bundle_read_back_satisfies_the_schemas(self, bundle):
        self.cls().validate({name: bundle.table(name) for name in bundle.tables()})

    def test_the_datasheet_names_source_licence_and_tables(self, tables):
        sheet = self.cls().datasheet(tables)
        packaged = issubclass(self.cls, PackagedDataset)
        source = self.cls.origin if packaged else self.cls.upstream.commit
        for part in (source, self.cls.licence, *tables):
            assert part in sheet

    def left_out(self, raw):
        """Files that are missing, one at a time: all, where each is read in a way of its own."""
        return raw.paths

    def test_files_that_are_not_there_are_passed_over(self, tidied):
        raw, whole = tidied
        for path in self.left_out(raw):
            rest = RawFiles(raw.folder, tuple(p for p in raw.paths if p != path))
            for name, frame in self.cls().tidy(rest).items():
                assert len(frame) <= len(whole[name])

    def test_a_bundle_of_held_out_rows_alone_is_held_out(self, bundle, tmp_path):
        dataset = self.cls()
        split = next(s for s in dataset.splits(bundle) if s.train.any())
        tables = {name: bundle.table(name) for name in bundle.tables()}
        tables[split.table] = tables[split.table][split.held_out].reset_index(drop=True)
        rest = Bundle.write(tmp_path / "rest", dataset.name, tables, as_csv=dataset.csv_tables)
        mine = [s for s in dataset.splits(rest) if s.protocol == split.protocol]
        assert mine
        assert not mine[0].train.any()
        assert mine[0].held_out.sum() == split.held_out.sum()

    def test_flags_point_at_rows_and_give_weights(self, bundle):
        findings = self.cls().flags(bundle)
        assert set(findings["flag"]) <= set(FLAGS)
        rows = max(len(bundle.table(name)) for name in bundle.tables())
        weights = row_weights(findings, rows)
        assert ((weights > 0) & (weights <= 1)).all()
