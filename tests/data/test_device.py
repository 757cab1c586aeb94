"""Spec sheets, the device catalogue and its lookup, GPU slices, list prices, and metrics."""

import csv
import itertools
import json
import math
import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forerun.data.device import (
    FALLBACK_PRECISIONS,
    ONLY_FOR,
    PRECISIONS,
    Device,
    DeviceCatalog,
    lookup_key,
)
from forerun.data.device_slices import profiles_of, slice_of
from forerun.data.errors import InputError, UnknownDevice, UnknownPrecision
from forerun.data.facts import facts_of
from forerun.data.list_prices import list_price
from forerun.data.metrics import METRICS, metric
from forerun.data.named.synthesis import HX8K, VCU1525, VU13P
from tests.devices import CATALOG
from tests.every import for_every

REPOSITORY = Path(__file__).parents[2]
SHEETS = yaml.safe_load((REPOSITORY / "data" / "devices.yaml").read_text(encoding="utf-8"))

REQUIRED = """
    p4 p40 p100-pcie-16gb v100-pcie-16gb v100-pcie-32gb v100-sxm2-16gb v100-sxm2-32gb t4
    a10 a10g a30 a40 a100-pcie-40gb a100-sxm-40gb a100-pcie-80gb a100-sxm-80gb rtx-a6000
    rtx-6000-ada l4 l40 l40s h100-pcie-80gb h100-sxm-80gb h100-nvl-94gb gh200-96gb
    h200-sxm-141gb h200-nvl-141gb b200-sxm-180gb b300-sxm-288gb gb200-186gb gb300-279gb
    gtx-1080-ti rtx-2080-ti rtx-3060 rtx-3070 rtx-3080 rtx-3090 rtx-3090-ti rtx-4070 rtx-4080
    rtx-4090 rtx-5080 rtx-5090 rtx-pro-6000-workstation rtx-pro-6000-max-q rtx-pro-6000-server
    mi100 mi210 mi250 mi250x mi300a mi300x mi325x mi350x mi355x jetson-agx-orin-64gb
    jetson-orin-nx-16gb jetson-orin-nano-8gb tpu-v4 tpu-v5e tpu-v5p tpu-v6e core-i9-10940x
    core-i7-12700h xeon-platinum-8480-plus xeon-platinum-8380 epyc-7763 epyc-9654
"""

FACTS = facts_of(__file__)
DATASET_NAMES = FACTS["dataset_names"]

# Peaks that fall where they should rise with a narrower precision, and why.
MATRIX_FP64 = "matrix cores do fp64 twice as fast as the vector units do fp32"
NOT_MONOTONE = {
    ("mi210", "fp64", "fp32"): MATRIX_FP64,
    ("mi250", "fp64", "fp32"): MATRIX_FP64,
    ("mi250x", "fp64", "fp32"): MATRIX_FP64,
}
HALVES_DIFFER = {
    "mi100": "CDNA runs bf16 at half the fp16 rate",
    "xeon-platinum-8480-plus": "AMX has bf16 and no fp16",
}

# Rows of accelerators_checked.csv by our name.
CHECKED = FACTS["checked"]
WHOLE_MODULE = "the row is the module, our device one of its two dies"
CHECKED_EXCEPTIONS = {
    ("MI250X", column): WHOLE_MODULE
    for column in (
        "fp32_tflops",
        "fp16_tensor_tflops_dense",
        "mem_gb",
        "mem_bw_gb_s",
        "tdp_w",
        "sms_or_cus",
        "l2_mb",
    )
}
CHECKED_COLUMNS = {
    "fp32_tflops": lambda device: device.peak_tflops.get("fp32"),
    "tf32_tensor_tflops_dense": lambda device: device.peak_tflops.get("tf32"),
    "fp16_tensor_tflops_dense": lambda device: device.peak_tflops.get("fp16"),
    "fp8_tensor_tflops_dense": lambda device: device.peak_tflops.get("fp8"),
    "mem_gb": lambda device: device.memory_gib,
    "mem_bw_gb_s": lambda device: device.memory_bandwidth_gbs,
    "tdp_w": lambda device: device.tdp_w,
    "sms_or_cus": lambda device: device.compute_units,
    "l2_mb": lambda device: device.l2_mib,
}


def sheet(**changes):
    given_figures = {
        "name": "my-board",
        "vendor": "me",
        "kind": "gpu",
        "memory_bandwidth_gbs": 100.0,
        "peak_tflops": {"fp32": 1.0},
    }
    return Device.model_validate(given_figures | changes)


class TestTheCatalog:
    def test_is_large_and_has_the_required_devices(self):
        assert len(CATALOG) >= 45
        assert set(REQUIRED.split()) <= set(CATALOG.names())

    def test_names_are_unique_and_every_device_answers_to_all_its_names(self):
        assert len(set(CATALOG.names())) == len(CATALOG)
        for device in CATALOG:
            for label in (device.name, device.title, *device.aliases):
                assert CATALOG.get(label) is device

    def test_every_source_id_is_in_the_table_and_is_used(self):
        used = {block["source"] for block in SHEETS["devices"]}
        for block in SHEETS["devices"]:
            used |= set(block.get("figure_sources", {}).values())
        used = {source for source in used if not source.startswith("derived: ")}
        assert used == set(SHEETS["sources"])

    def test_figure_sources_name_figures_of_their_device(self):
        for block, device in zip(SHEETS["devices"], CATALOG, strict=True):
            known = set(device.figures()) | {"peak_tflops"}
            assert set(block.get("figure_sources", {})) <= known, device.name


class TestEverySheet:
    @for_every("device", CATALOG)
    def test_every_figure_is_positive_and_has_a_source(self, device):
        assert device.origin == "catalog"
        assert set(device.sources) == set(device.figures())
        for figure, value in device.figures().items():
            assert value > 0, figure
            assert math.isfinite(value), figure
            assert len(device.sources[figure]) > 20, figure

    @for_every("device", CATALOG)
    def test_peaks_rise_as_precision_narrows(self, device):
        ladder = [
            (precision, device.peak_tflops[precision])
            for precision in ("fp64", "fp32", "tf32", "fp16", "fp8", "fp4")
            if precision in device.peak_tflops
        ]
        for (wide, slower), (narrow, faster) in itertools.pairwise(ladder):
            if (device.name, wide, narrow) in NOT_MONOTONE:
                assert slower > faster, "the exception is stale"
            else:
                assert slower <= faster * 1.001, f"{wide} over {narrow}"

    @for_every("device", CATALOG)
    def test_fp16_and_bf16_run_at_the_same_rate(self, device):
        if {"fp16", "bf16"} <= set(device.peak_tflops):
            same = device.peak_tflops["fp16"] == device.peak_tflops["bf16"]
            assert same is (device.name not in HALVES_DIFFER)

    @for_every("device", CATALOG)
    def test_figures_are_of_a_size_that_hardware_has(self, device):
        assert 10 <= device.memory_bandwidth_gbs <= 10_000
        assert device.memory_gib is None or 2 <= device.memory_gib <= 300
        assert device.tdp_w is None or 10 <= device.tdp_w <= 1500
        assert device.boost_clock_mhz is None or 500 <= device.boost_clock_mhz <= 6000
        assert device.year is not None
        assert 2015 <= device.year <= 2025
        # FLOP per byte where arithmetic and traffic take equally long.
        ridge = max(device.peak_tflops.values()) * 1e3 / device.memory_bandwidth_gbs
        assert 10 <= ridge <= 3000

    @for_every("device", CATALOG)
    def test_vector_rate_of_nvidia_gpus_is_lanes_times_clock(self, device):
        if device.vendor != "nvidia" or None in (device.boost_clock_mhz, device.compute_units):
            return
        sixty_four = device.architecture in ("volta", "turing") or device.name.startswith(
            ("p100", "a100", "a800", "a30")
        )
        lanes = 64 if sixty_four else 128
        expected = device.compute_units * lanes * 2 * device.boost_clock_mhz / 1e6
        assert device.peak_tflops["fp32"] == pytest.approx(expected, rel=0.05)

    @for_every("device", CATALOG)
    def test_survives_json(self, device):
        assert Device.model_validate_json(device.model_dump_json()) == device


class TestLookup:
    @for_every("name, expected", DATASET_NAMES.items())
    def test_finds_the_names_that_datasets_and_tools_use(self, name, expected):
        assert CATALOG.get(name).name == expected

    @given(st.sampled_from(list(CATALOG)), st.data())
    def test_ignores_case_spaces_and_punctuation(self, device, data):
        label = data.draw(st.sampled_from((device.name, device.title, *device.aliases)))
        # A trade mark in brackets is one token, and so is a clock at the end.
        tokens = [token for token in re.split(r"[^A-Za-z0-9]+", label) if token]
        if "(" in label or "@" in label:
            tokens = [device.name]
        separators = st.text(alphabet=" -_./,", max_size=2)
        spelled = "".join(
            data.draw(separators) + "".join(data.draw(st.sampled_from((c.lower(), c.upper()))))
            for token in tokens
            for c in token
        )
        assert CATALOG.get(spelled) is device

    @given(st.text(max_size=40))
    def test_a_key_is_its_own_key(self, name):
        key = lookup_key(name)
        assert re.fullmatch(r"[a-z0-9]*", key)
        assert len(key) <= len(name.lower())

    @pytest.mark.parametrize(
        ("typo", "meant"),
        [
            ("rtx 4091", "rtx-4090"),
            ("h100 sxn", "h100-sxm-80gb"),
            ("NVIDIA GeForce RTX 4091", "nvidia geforce rtx 4090"),
            ("mi300y", "mi300x"),
            ("h101", "h100-sxm-80gb"),
        ],
    )
    def test_suggests_similar_names(self, typo, meant):
        with pytest.raises(UnknownDevice, match=re.escape(meant)) as caught:
            CATALOG.get(typo)
        assert meant in caught.value.did_you_mean
        assert all(CATALOG.get(name) for name in caught.value.did_you_mean)

    @pytest.mark.parametrize(
        "name",
        [
            *("", " ", "-", "gpu", "nvidia", "NVIDIA_H100_80GB_HBM3_TP"),
            # Slices that do not exist.
            *("a100-sxm-80gb-mig-9g-90gb", "no-gpu-mig-1g-10gb", "mi300x-mig-1g-24gb"),
            *("h100-sxm-80gb-mig-5g-80gb", "a100-sxm-80gb-mig-3g-20gb", "a30-mig-3g-12gb"),
            *("h100-sxm-80gb-mig-3g-40gb+me", "h200-mig-1g-18gb+gfx", "h100-mig-3c-2g-20gb"),
            *("l4-mig-1g-5gb", "rtx-4090-mig-1g-5gb", "rtx-a3000-mig-1g-6gb"),
            *("l40s-96q", "l40s-0q", "rtx-4090-12c", "mi300x-24c", "epyc-9654-24c"),
        ],
    )
    def test_guesses_nothing(self, name):
        with pytest.raises(UnknownDevice):
            CATALOG.get(name)

    @pytest.mark.parametrize("chip", [VCU1525, VU13P, HX8K], ids=lambda chip: chip.name)
    def test_says_what_a_chip_without_a_sheet_is_known_for(self, chip):
        with pytest.raises(UnknownDevice, match="has no spec sheet; it is known only for") as error:
            CATALOG.get(chip.name.upper())
        assert ONLY_FOR[chip.name] in str(error.value)
        assert error.value.did_you_mean == []


class TestPeak:
    @pytest.mark.parametrize(
        ("name", "precision", "tflops"),
        [
            ("a100", "fp16", 312),
            ("a100", "fp8", 312),
            ("rtx-3090", "fp16", 71.2),
            ("rtx-4090", "bf16", 165.2),
            ("rtx-5090", "fp16", 209.5),
            ("h100", "fp8", 1979),
            ("p4", "fp16", 5.5),
            ("t4", "bf16", 8.1),
            ("t4", "tf32", 8.1),
            ("v100", "int8", 125),
            ("tpu-v5e", "fp8", 197),
            ("b200", "fp4", 9000),
        ],
    )
    def test_is_dense_and_falls_back_to_what_frameworks_do(self, name, precision, tflops):
        assert CATALOG.get(name).peak(precision) == pytest.approx(tflops, rel=2e-3)

    def test_matrix_cores_in_true_fp32_count_for_matrix_work_only(self):
        mi100 = CATALOG.get("mi100")
        assert mi100.peak("fp32") == 23.1
        assert mi100.peak("fp32", matrix=True) == 46.1
        assert mi100.peak("tf32", matrix=True) == 46.1
        assert mi100.peak("fp16", matrix=True) == mi100.peak("fp16")
        a100 = CATALOG.get("a100")
        assert a100.peak("fp32", matrix=True) == a100.peak("fp32") == 19.5

    @pytest.mark.parametrize(("name", "precision"), [("tpu-v5e", "fp32"), ("p4", "fp64")])
    def test_is_an_error_without_a_sensible_substitute(self, name, precision):
        with pytest.raises(UnknownPrecision, match=precision):
            CATALOG.get(name).peak(precision)

    def test_substitutes_never_narrow_what_was_asked(self):
        bits = {"fp64": 64, "fp32": 32, "tf32": 19, "fp16": 16, "bf16": 16}
        bits |= {"fp8": 8, "int8": 8, "fp4": 4}
        assert set(FALLBACK_PRECISIONS) == set(PRECISIONS) == set(bits)
        for asked, substitutes in FALLBACK_PRECISIONS.items():
            assert all(bits[substitute] > bits[asked] for substitute in substitutes)


class TestRegistering:
    def test_a_small_sheet_is_enough(self):
        board = sheet()
        assert (board.origin, board.title, board.memory_gib) == ("registered", "my-board", None)

    @pytest.mark.parametrize(
        "changes",
        [
            {"memory_bandwidth_gbs": 0},
            {"memory_bandwidth_gbs": None},
            {"memory_bandwidth_gbs": math.inf},
            {"memory_bandwidth_gbs": 1e300},
            {"memory_gib": True},
            {"memory_gib": 5e-324},
            {"compute_units": 10**400},
            {"peak_tflops": {}},
            {"peak_tflops": {"fp32": 0}},
            {"peak_tflops": {"fp12": 1}},
            {"tdp_w": 0},
            {"tdp_w": math.nan},
            {"compute_units": 1.5},
            {"name": "My Board"},
            {"aliases": ["--"]},
            {"sources": {"tdp_w": "the vendor"}},
            {"colour": "green"},
        ],
    )
    def test_refuses_zeros_blanks_and_strangers(self, changes):
        with pytest.raises(ValidationError):
            sheet(**changes)

    def test_gives_a_new_catalog_and_leaves_the_old_alone(self):
        board = sheet(aliases=["My First Board"])
        grown = CATALOG.with_device(board)
        assert grown.get("my first board") is board
        assert len(grown) == len(CATALOG) + 1
        with pytest.raises(UnknownDevice):
            CATALOG.get("my-board")

    def test_the_same_name_replaces(self):
        grown = CATALOG.with_device(sheet()).with_device(sheet(tdp_w=75))
        assert grown.get("my-board").tdp_w == 75
        assert len(grown) == len(CATALOG) + 1

    def test_a_name_that_means_another_device_is_refused(self):
        with pytest.raises(InputError, match="a100-sxm-80gb"):
            CATALOG.with_device(sheet(aliases=["A100"]))

    def test_a_list_of_devices_in_one_name_is_reported_as_such(self):
        with pytest.raises(UnknownDevice, match="lists several devices in one name") as raised:
            CATALOG.get("l4, t4")
        assert raised.value.did_you_mean == ["l4", "t4"]
        with pytest.raises(UnknownDevice, match="No device named 'nothing, here'"):
            CATALOG.get("nothing, here")

    def test_a_device_is_frozen_and_can_be_a_key(self):
        board = sheet()
        with pytest.raises(ValidationError):
            board.tdp_w = 5.0
        assert {board: 1}[sheet()] == 1

    def test_every_field_says_what_it_is(self):
        for name, prop in Device.model_json_schema()["properties"].items():
            assert len(prop["description"]) > 8, name


class TestAgainstTheReference:
    @pytest.fixture
    def read(self, reference):
        def rows(path):
            if not (reference / path).exists():
                pytest.skip(f"the reference bundles have no {path}")
            with (reference / path).open(newline="", encoding="utf-8") as lines:
                return list(csv.DictReader(lines))

        return rows

    def test_agrees_with_the_checked_accelerators(self, read):
        rows = read("gpu_specs/accelerators_checked.csv")
        assert {row["name"] for row in rows} == set(CHECKED)
        for row in rows:
            device = CATALOG.get(CHECKED[row["name"]])
            for column, figure in CHECKED_COLUMNS.items():
                if not row[column] or (row["name"], column) in CHECKED_EXCEPTIONS:
                    continue
                ours, theirs = figure(device), float(row[column])
                # Sheets round to two digits, and B200 is quoted with 7.7 and 8 TB/s.
                assert ours == pytest.approx(theirs, rel=0.04), (row["name"], column)

    def test_halving_a_module_gives_its_die(self, read):
        rows = {row["name"]: row for row in read("gpu_specs/accelerators_checked.csv")}
        die = CATALOG.get("mi250x")
        for name, column in CHECKED_EXCEPTIONS:
            whole = float(rows[name][column])
            assert CHECKED_COLUMNS[column](die) * 2 == pytest.approx(whole, rel=0.01)

    def test_knows_the_devices_of_neusight_and_their_figures(self, read):
        for row in read("neusight/devices.csv"):
            if row["device_key"].endswith("_TP"):
                continue  # two GPUs written as one
            device = CATALOG.get(row["device"])
            assert CATALOG.get(row["device_key"]) is device
            assert device.memory_bandwidth_gbs == pytest.approx(float(row["mem_bw_gbs"]), rel=0.03)
            # T4: what programs see with error correction, 15 of 16 GiB.
            assert device.memory_gib == pytest.approx(float(row["mem_gb"]), rel=0.07)
            matrix = device.peak("fp32", matrix=True) * 1e3
            assert matrix == pytest.approx(float(row["fp32_gflops_mm"]), rel=0.04)

    def test_agrees_with_the_serving_tables_on_peaks(self, read):
        for row in read("aiconfigurator/gpu_specs.csv"):
            device = CATALOG.get(row["system"])
            bf16 = float(row["bf16_dense_flops"]) / 1e12
            assert device.peak("bf16") == pytest.approx(bf16, rel=0.01), row["system"]
            assert device.tdp_w == float(row["power_w"])
            memory = float(row["mem_capacity_B"]) / 2**30
            # L40S: the table writes what is left for programs, 45 of 48 GiB.
            assert device.memory_gib == pytest.approx(memory, rel=0.07), row["system"]


@pytest.mark.parametrize(("name", "units"), [("a30", 4), ("rtx-pro-6000-server", 4), ("h20", 8)])
def test_slices_of_every_profile_are_in_proportion(name, units):
    """Fractions of memory and of compute units are those of NVIDIA's guide."""
    whole = CATALOG.get(name)
    for profile in profiles_of(whole):
        own = slice_of(whole, profile)
        share = 1.0 if profile[0] == "7" else int(profile[0]) / units
        assert own.compute_units == round(share * whole.compute_units)
        assert own == CATALOG.get(own.name) == CATALOG.get(f"{name}-mig-{profile}")


@pytest.mark.parametrize(
    ("name", "gib"),
    [  # of different profiles, from the smallest to the largest
        ("a30", (5.81, 11.69, 23.44)),
        ("a100-sxm-40gb", (4.75, 9.62, 19.5, 39.25)),
        ("a100-sxm-80gb", (9.5, 19.5, 39.25, 78.75)),
        ("h100-sxm-80gb", (9.75, 19.62, 39.5, 79.25)),
        ("h200-sxm-141gb", (16.0, 32.25, 69.5, 140.0)),
        ("gh200-96gb", (11.0, 23.0, 46.5, 93.0)),
        ("b200-sxm-180gb", (20.5, 44.25, 90.0, 180.0)),
    ],
)
def test_slices_have_the_memory_that_nvidia_smi_lists(name, gib):
    """B200: the two largest are in no listing that is known here, and in proportion."""
    whole = CATALOG.get(name)
    found = {slice_of(whole, profile).memory_gib for profile in profiles_of(whole)}
    assert tuple(sorted(found)) == gib


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("a100-pcie-40gb", (14, 14, 14, 28, 42, 56, 98)),
        ("h100-pcie-80gb", (14, 14, 14, 30, 46, 62, 114)),
        ("h100-sxm-80gb", (16, 16, 26, 32, 60, 64, 132)),
        ("h200-sxm-141gb", (16, 16, 26, 32, 60, 64, 132)),
        ("b200-sxm-180gb", (18, 18, 30, 36, 70, 72, 148)),
    ],
)
def test_slices_have_the_compute_units_that_nvidia_smi_lists(name, units):
    whole = CATALOG.get(name)
    slices = [slice_of(whole, profile) for profile in profiles_of(whole)]
    assert tuple(own.compute_units for own in slices) == units
    for own in slices:
        share = own.compute_units / whole.compute_units
        assert own.peak("bf16") == pytest.approx(share * whole.peak("bf16"))
        assert own.interconnect_gbs is None


def test_every_gpu_with_a_row_of_profiles_has_slices_of_each():
    """The largest is the whole GPU, but for the A100, where one of eight parts is not used, and
    for the memory that the driver keeps.
    """
    divided = [own for own in CATALOG if profiles_of(own)]
    assert len(divided) == 21
    for whole in divided:
        slices = [slice_of(whole, profile) for profile in profiles_of(whole)]
        largest = max(own.memory_gib for own in slices)
        assert 0.95 * whole.memory_gib <= largest <= whole.memory_gib
        share = max(own.compute_units for own in slices) / whole.compute_units
        assert share == pytest.approx(98 / 108 if whole.compute_units == 108 else 1.0)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        *[(name, None) for name in ("grace", "m4-max", "m2-ultra", "raspberry-pi-4", "snapdragon")],
        *[("dgx-spak", "dgx-spark"), ("spark", "dgx-spark"), ("threadripper", None)],
        *[("orin", "jetson-orin-nx-16gb"), ("5090-ti", "rtx-5070-ti"), ("mi300", "mi300x")],
        *[("h20-141", "h20"), ("xeon", "xeon-gold-6330"), ("p100-sxm", "p100-sxm2-16gb")],
    ],
)
def test_a_name_is_suggested_where_its_words_are_similar_and_none_where_nothing_is(name, nearest):
    with pytest.raises(UnknownDevice, match=r"`forerun devices add SHEET\.yaml` adds") as error:
        CATALOG.get(name)
    assert next(iter(error.value.did_you_mean), None) == nearest
    assert all(map(CATALOG.find, error.value.did_you_mean))
    assert ("and none of a similar name" in str(error.value)) == (nearest is None)


def test_a_product_is_its_chip():
    assert CATALOG.get("NVIDIA DGX Spark").name == CATALOG.get("dgx-spark").name == "gb10"
    assert CATALOG.get("grace-hopper").name == "gh200-96gb"


def test_a_profile_that_a_gpu_lacks_is_refused_with_those_that_it_has():
    with pytest.raises(UnknownDevice, match=r"it has 1g\.10gb, .* 3g\.40gb, 4g\.40gb") as error:
        CATALOG.get("h100-sxm-80gb-mig-5g-80gb")
    assert not error.value.did_you_mean
    with pytest.raises(UnknownDevice, match="cannot be divided into MIG slices"):
        CATALOG.get("l4-mig-1g-5gb")


@pytest.mark.parametrize("name", ["1g.18gb", "mig-1g.18gb", "nvidia.com/mig-1g.18gb"])
def test_a_profile_alone_is_refused_with_the_gpus_that_have_it(name):
    with pytest.raises(UnknownDevice, match="give the GPU of the slice too") as error:
        CATALOG.get(name)
    named = re.findall(r"\S+-mig-1g-18gb", str(error.value))
    assert named == ["h200-sxm-141gb-mig-1g-18gb", "h200-nvl-141gb-mig-1g-18gb"]


@pytest.mark.parametrize("profile", ["", "8g.80gb", "1g", "all", "1g.80gb0", "7g.160gb", "1g.1gb"])
def test_an_unknown_profile_is_not_a_device(profile):
    assert slice_of(CATALOG.get("h100-sxm-80gb"), profile) is None


@pytest.mark.parametrize(
    ("name", "gpu", "profile"),
    [
        ("A100-SXM4-80GB MIG 1g.10gb", "a100-sxm-80gb", "1g.10gb"),
        ("a100-sxm-80gb-mig-1g-10gb", "a100-sxm-80gb", "1g.10gb"),
        ("h100-sxm-80gb-mig-3g-40gb", "h100-sxm-80gb", "3g.40gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "h100-sxm-80gb", "1g.10gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED", "h100-sxm-80gb", "1g.10gb"),
        ("nvidia_a100-sxm4-40gb_1g.5gb", "a100-sxm-40gb", "1g.5gb"),
        ("h100-sxm-80gb-mig-1g.10gb.me", "h100-sxm-80gb", "1g.10gb"),
        ("a30-mig-1g-6gb", "a30", "1g.6gb"),
        ("a100-sxm-40gb-mig-1g-5gb", "a100-sxm-40gb", "1g.5gb"),
    ],
)
def test_a_slice_is_named_by_gpu_and_profile_and_has_the_stated_memory(name, gpu, profile):
    own = CATALOG.get(name)
    assert own == slice_of(CATALOG.get(gpu), profile) == CATALOG.get(own.name)
    assert own.memory_gib == pytest.approx(float(re.findall(r"\d+", profile)[-1]), rel=0.06)


@pytest.mark.parametrize(
    ("name", "gpu", "gib"),
    [
        ("NVIDIA L40S-12Q", "l40s", 12),
        ("GRID A100-20C", "a100-pcie-40gb", 20),
        ("GRID-A100DX-40C", "a100-sxm-80gb", 40),
        ("NVIDIA H100XM-80C", "h100-sxm-80gb", 80),
        ("GRID V100DX-16Q", "v100-sxm2-32gb", 16),
        ("NVIDIA RTX Pro 6000 Blackwell DC-24Q", "rtx-pro-6000-server", 24),
        ("rtx-4090-6144mib", "rtx-4090", 6),
        ("t4-50pct", "t4", 8),
    ],
)
def test_a_vgpu_is_the_whole_gpu_with_its_share_of_the_memory(name, gpu, gib):
    """Names are from NVIDIA's vGPU types reference; by time slicing, each gets all else in turn."""
    own, whole = CATALOG.get(name), CATALOG.get(gpu)
    assert own.memory_gib == gib
    assert own.figures() | {"memory_gib": whole.memory_gib, "node_devices": 0} == (
        whole.figures() | {"node_devices": 0}
    )
    assert own == CATALOG.get(own.name)
    assert gpu in own.caveats[-1]


def test_a_vgpu_with_its_own_compute_units_is_a_slice():
    assert CATALOG.get("GRID A100DX-3-40C") == CATALOG.get("a100-sxm-80gb-mig-3g-40gb")


def test_an_instance_s_price_is_divided_by_its_devices() -> None:
    price = list_price("h100-sxm-80gb")
    assert price is not None
    assert price.usd_per_device_hour == pytest.approx(55.04 / 8)
    assert price.source == "list price, Amazon EC2 on demand, us-east-1, 2025-06: p5.48xlarge"


def test_every_price_is_of_a_device_in_the_catalog_once() -> None:
    text = (files("forerun.data") / "list_prices.json").read_text(encoding="utf-8")
    names = [str(row["device"]) for row in json.loads(text)["instances"]]
    assert len(set(names)) == len(names)
    assert set(names) <= set(DeviceCatalog.load().names())


def test_a_device_without_a_list_price_has_none() -> None:
    assert list_price("rtx-4090") is None


UNITS = {"ms": "ms", "mib": "MiB", "w": "W", "j": "J"}


def test_names_are_unique_and_end_in_their_unit():
    assert len({m.name for m in METRICS}) == len(METRICS)
    for m in METRICS:
        suffix = m.name.rsplit("_", 1)[-1]
        assert UNITS.get(suffix, "") == m.unit


def test_an_unknown_name_is_a_key_error():
    with pytest.raises(KeyError):
        metric("speed")


def test_an_unknown_value_is_shown_as_not_known():
    assert metric("power_w").text(None) == "not known"
    assert metric("latency_ms").text(1234.5) == "1,234 ms"


@pytest.mark.parametrize(
    "name",
    ["jetson-orin-nx-16gb", "rtx-3080-ti-laptop", "a30-mig-1g-6gb", "Radeon RX Vega M GH"],
)
def test_boards_slices_and_integrated_gpus_have_no_link_to_another(name):
    assert CATALOG.get(name).node_devices == 1


def test_a_link_on_the_spec_sheet_joins_devices():
    """Except for laptops, whose link leads to the processor."""
    alone = {own.name for own in CATALOG if own.node_devices == 1 and own.interconnect_gbs}
    assert alone == {"rtx-3080-ti-laptop"}
    assert CATALOG.get("radeon-rx-7900-xtx").node_devices is None
