"""A plan is found by its path, and by name where it comes with the package."""

from pathlib import Path

import pytest

from forerun.data.collectors.plans import packaged_plans, plan_file
from forerun.data.errors import MissingData


def test_every_packaged_plan_is_found_by_name_in_the_package():
    assert packaged_plans() == ("cpu-onnxruntime", "cpu-standard", "quick", "short", "standard")
    for name in packaged_plans():
        assert plan_file(Path(name)).is_file()
        assert "collectors" in plan_file(Path(name)).parts


def test_a_file_of_the_same_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quick").write_text("victims: []\n")
    assert plan_file(Path("quick")) == Path("quick")


def test_a_name_is_no_path_into_the_package(tmp_path):
    with pytest.raises(MissingData, match=r"No plan .*quick: give a .yaml file, or one of"):
        plan_file(tmp_path / "quick")
    with pytest.raises(MissingData):
        plan_file(Path("../plans/quick"))
