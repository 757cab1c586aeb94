"""Cloud instance types: their names, their spec sheets, and search patterns."""

from importlib.resources import files

import pandas as pd
import pytest

from forerun.data.cloud_instances import READ_SHARE, cloud_instance, matching, virtual_processors
from forerun.data.device import DeviceCatalog
from forerun.data.errors import UnanswerableQuery, UnknownDevice
from forerun.data.processor_cores import CORES

CATALOG = DeviceCatalog.load()
TABLE = pd.read_parquet(
    str(files("forerun.data") / "llm_tables" / "llm_cloud_runs" / "machines.parquet")
).set_index("instance")
PLAIN = TABLE[TABLE["gpu"].isna() & TABLE["read_gbs"].notna()]


def test_an_instance_type_is_the_whole_machine_as_measured():
    own, facts = CATALOG.get("aws/m7i.48xlarge"), TABLE.loc["aws/m7i.48xlarge"]
    assert (own.kind, own.compute_units, own.memory_nodes) == ("cpu", 96, facts["memory_nodes"])
    assert own.memory_gib == facts["memory_gib"] == 768
    assert own.memory_bandwidth_gbs == pytest.approx(facts["read_gbs"] / READ_SHARE)
    core = CORES["sapphire-rapids"]
    assert own.peak("bf16") == pytest.approx(96 * core.bf16 * core.clock_ghz / 1e3)
    assert virtual_processors(own) == 192


@pytest.mark.parametrize("name", ["aws/m7i.4xlarge", "AWS/M7i.4xlarge", "aws-m7i-4xlarge"])
def test_case_and_punctuation_do_not_matter_and_names_are_canonical(name):
    assert CATALOG.get(name) == CATALOG.get("aws/m7i.4xlarge")
    assert CATALOG.get(CATALOG.get(name).name) == CATALOG.get(name)


def test_every_type_without_gpus_of_known_cores_is_a_device_or_says_why_not():
    for name in PLAIN.index[::25]:
        try:
            assert CATALOG.get(name).title == name
        except UnanswerableQuery as error:
            assert name in str(error)


def test_a_pattern_finds_exactly_its_types_smallest_first():
    found = matching("aws/m7i.*")
    assert set(found) == {name for name in PLAIN.index if name.startswith("aws/m7i.")}
    assert PLAIN.loc[found, "vcpus"].is_monotonic_increasing
    assert "aws/m7i-flex.large" in PLAIN.index and "aws/m7i-flex.large" not in found
    assert matching("AZURE/standard_d?s_v6") == matching("azure/Standard_D?s_v6") != []


def test_types_with_gpus_match_no_pattern_and_their_error_names_the_gpu():
    assert TABLE.loc["aws/g6.xlarge", "gpu"] == "L4"
    with pytest.raises(UnanswerableQuery, match="1 L4: name that GPU"):
        CATALOG.get("aws/g6.xlarge")
    with pytest.raises(ValueError, match="no instance type matches"):
        matching("aws/g6.*")


def test_an_unknown_type_is_one_line_with_near_names():
    with pytest.raises(UnknownDevice) as fault:
        CATALOG.get("aws/m7i.5xlarge")
    assert set(fault.value.did_you_mean) <= set(TABLE.index)
    assert all(name.startswith("aws/m7i.") for name in fault.value.did_you_mean)
    assert cloud_instance("l4") is None is virtual_processors(CATALOG.get("l4"))
