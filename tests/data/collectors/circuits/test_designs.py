"""Plans of circuits name each design once, and the packaged one has families of several designs."""

import re
from collections import Counter

import pytest

from forerun.data.collectors.circuits.tools import SOURCES, Plan
from forerun.data.errors import BadTable


def test_the_packaged_plan_has_hundreds_of_designs_in_families():
    plan = Plan.read()
    families = Counter(design.family for design in plan.designs)
    assert len(plan.designs) >= 400
    assert len(families) >= 25
    assert min(families.values()) >= 4
    assert len(plan.seeds) == 5
    assert {"processor"} <= set(families)


def test_every_module_of_the_plan_is_in_the_package_with_its_parameters():
    text = "\n".join(path.read_text() for path in SOURCES)
    for design in Plan.read().designs:
        head = re.search(rf"module {design.module} #\((.*?)\) \(", text, re.S)
        assert head, design.module
        known = set(re.findall(r"(\w+) = ", head.group(1)))
        assert set(design.parameters) <= known, design.name


def test_a_grid_is_every_combination(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        "seeds: [1]\nmodules:\n"
        "  - {module: a, family: f, grids: [{W: [1, 2], N: [3]}, {W: [9]}]}\n"
        "  - {module: own, sources: [own.v]}\n"
    )
    plan = Plan.read(path)
    assert [design.name for design in plan.designs] == ["a-w1-n3", "a-w2-n3", "a-w9", "own"]
    assert plan.designs[0].parameters == {"W": 1, "N": 3}
    assert {design.family for design in plan.designs} == {"f", "own"}
    assert plan.designs[-1].sources == (tmp_path / "own.v",)


@pytest.mark.parametrize(
    "content, why",
    [
        ("seeds: []\nmodules: []", "seeds"),
        ("seeds: [1]\nmodules: [{module: a}, {module: a}]", "a is given twice"),
        ("seeds: [1\n", "expected"),
        ("seeds: [1]\nmodules: [{modul: a}]", "modul"),
        ("seeds: [1]\nmodules: [{module: a; shell}]", "pattern"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(tmp_path, content, why):
    path = tmp_path / "plan.yaml"
    path.write_text(content)
    with pytest.raises(BadTable, match=why) as refused:
        Plan.read(path)
    assert str(path) in str(refused.value)
