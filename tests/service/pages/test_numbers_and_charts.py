"""Numbers, figures of sheets, counts, ticks, and the data and tables of charts of pages."""

import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.models.artifact.training_record import Setting, TrainingRecord
from forerun.service.http.pages.chart import (
    Chart,
    label,
    large,
    log_ticks,
    percent,
    plain,
    quantity,
    short,
)
from forerun.service.http.pages.charts import (
    MOST_BARS,
    SMALLER,
    attribution_chart,
    parts_chart,
)
from forerun.service.http.pages.coverage import Choice, gaps, step
from forerun.service.http.pages.devices import (
    UNITS,
    Measured,
    figures,
    half_rate,
    measured,
    pivot,
    roofline,
    similar,
    unknown,
    values_by_device,
)
from forerun.service.http.pages.rendering import STATIC, environment
from forerun.service.schemas.answers import AttributedOut, AttributionOut, IntervalOut
from tests.devices import CATALOG


def interval(value, low=None, high=None):
    return IntervalOut(value=value, low=low, high=high, coverage=0.9, unit="ms")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (1.0, "1.00"), (26.44, "26.4"), (1120.4, "1,120"), (0, "0"),
     (None, "–"), (-3.456, "-3.46")],
)  # fmt: skip
def test_a_number_has_three_digits_and_loses_none_before_the_point(value, text):
    assert short(value) == text


def test_large_numbers_and_shares():
    assert large(25.6e6) == "25.6 M"
    assert large(8.03e9) == "8.03 G"
    assert large(8.03e9, "B") == "8.03 B"
    assert large(12) == "12.0"
    assert large(None) == percent(None) == "–"
    assert percent(0.125, 1) == "12.5 %"


def test_a_label_leaves_out_vendor_and_brand():
    catalog = DeviceCatalog.load()
    assert label(catalog.get("rtx-4090")) == "RTX 4090"
    assert label(catalog.get("l4")) == "L4"


@pytest.mark.parametrize("values", [[1, 1000], [3, 40], [300, 500], [0.02, 0.9]])
def test_a_logarithmic_axis_has_enough_ticks_inside_of_its_range(values):
    ticks = log_ticks([*values, None])
    assert len(ticks) >= 3
    assert min(values) <= ticks[0] <= ticks[-1] <= max(values)


def test_parts_without_a_colour_are_other():
    chart = parts_chart("Memory", "MiB", {"x": {"weights": 3.0, "new": 2.0, "unnamed": 1.0}})
    assert {row["part"]: row["amount"] for row in chart.rows} == {"weights": 3.0, "other": 3.0}
    assert parts_chart("Memory", "MiB", {"x": {}}) is None


def colours(chart):
    scale = chart.spec["encoding"]["color"]["scale"]
    return dict(zip(scale["domain"], scale["range"], strict=True))


def test_a_part_has_one_colour_in_all_answers():
    one = colours(parts_chart("Time", "ms", {"x": {"conv": 3.0, "norm": 1.0, "host": 2.0}}))
    other = colours(parts_chart("Time", "ms", {"x": {"linear": 9.0, "host": 1.0, "norm": 5.0}}))
    assert {name: one[name] for name in one.keys() & other} == {
        name: other[name] for name in one.keys() & other
    }
    assert len({*one.values(), *other.values()}) == len({*one, *other})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(999.4, "ms", "999 ms"), (1500, "ms", "1.50 s"), (90e3, "ms", "1.50 min"),
     (1536, "MiB", "1.50 GiB"), (700, "W", "700 W"), (2400, "W", "2.40 kW"), (3, "", "3.00"),
     (1e6, "tokens/s", "1,000,000 tokens/s")],
)  # fmt: skip
def test_a_quantity_has_the_unit_that_it_reads_best_in(value, unit, text):
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1e6, "1000000"), (0.25, "0.25"), (1024.0, "1024"), (1e-6, "0.000001")]
)
def test_a_number_of_a_field_has_no_exponent(value, text):
    assert plain(value) == text


def test_names_in_a_chart_cannot_end_its_script_or_become_elements():
    hostile = "</script><script>alert(1)</script>"
    chart = Chart(hostile, hostile, {}, [{"name": hostile}], {"name": hostile})
    template = environment().from_string('{% from "chart.html" import chart %}{{ chart(c) }}')
    page = template.render(c=chart)
    assert page.count("<script") == 1
    assert page.count("</script>") == 1


def test_every_script_of_others_has_its_licence_beside_it():
    vendored = STATIC / "vendor"
    packages = [path.name.partition(".")[0] for path in vendored.glob("*.LICENSE.txt")]
    scripts = [*vendored.glob("*.js"), *vendored.glob("*.css")]
    assert scripts
    for script in scripts:
        own = [name for name in packages if script.name.startswith(name.removesuffix("-dist"))]
        assert own, f"no licence of {script.name}"


def attribution(form, *parts, base=0.0):
    metric = "latency_ms" if form == "sum" else "latency_cycles"
    listed = [AttributedOut(label=name, group=group, count=1, value=v) for name, group, v in parts]
    return AttributionOut(
        metric=metric, form=form, base=base, parts=listed, kernels=None, correction=None
    )


def test_bars_of_operators_add_up_and_kernels_of_one_operator_share_a_bar():
    parts = [(f"op{n}", "conv", 40.0 - n) for n in range(2 * MOST_BARS)]
    own = attribution("sum", ("op0", "elementwise", 5.0), *parts, ("9 smaller parts", "rest", 2.0))
    chart = attribution_chart(own, "Operators")
    amounts = [row["amount"] for row in chart.rows]
    assert sum(amounts) == pytest.approx(sum(part.value for part in own.parts))
    names = list(dict.fromkeys(row["name"] for row in chart.rows))
    assert len(names) == MOST_BARS + 1
    assert names[-1] == SMALLER
    first = {row["part"]: row["amount"] for row in chart.rows if row["name"] == "op0"}
    assert first == {"conv": 40.0, "elementwise": 5.0}
    assert "the largest part is op0" in chart.summary


def test_a_chart_says_of_which_batch_size_the_shapes_are():
    own = attribution("sum", ("fc 1x8", "linear", 1.0))
    assert attribution_chart(own, "Operators").title == "Operators"
    other = own.model_copy(update={"batch_size": 32, "graph_batch_size": 1})
    chart = attribution_chart(other, "Operators")
    assert chart.title == "Operators (shapes at batch size 1, times at 32)"


def test_few_operators_have_no_bar_of_smaller_ones():
    own = attribution("sum", ("host", "host", 3.0), ("fc", "linear", 1.0))
    rows = attribution_chart(own, "Operators").rows
    assert [(row["name"], row["part"], row["amount"]) for row in rows] == [
        ("host", "host", 3.0), ("fc", "linear", 1.0),
    ]  # fmt: skip
    assert attribution_chart(attribution("sum"), "Operators") is None


def test_bars_of_loops_are_factors_from_one():
    own = attribution("product", ("L0: parallel 2", "loop", 0.5), ("L1", "loop", 1.5), base=100.0)
    chart = attribution_chart(own, "Loops")
    assert [(row["one"], row["amount"]) for row in chart.rows] == [(1.0, 0.5), (1.0, 1.5)]
    assert "from 100 cycles without directives" in chart.summary


A100 = CATALOG.get("a100-pcie-80gb")
BLACK_BOX = Device(name="mine", vendor="me", kind="cpu")


def test_every_figure_of_every_sheet_has_words_a_unit_and_a_source():
    for device in CATALOG:
        found = figures(device)
        assert len(found) == len(device.figures())
        assert all(figure.source and figure.value for figure in found)


def test_peaks_are_named_by_precision_and_integers_are_no_floating_point_operations():
    found = {figure.name: figure for figure in figures(A100)}
    assert found["Peak in fp16"].unit == "TFLOP/s"
    assert found["Peak in int8"].unit == "TOP/s"
    assert found["Year of release"].value == "2021"
    assert found["Memory"].value == "80"


def test_what_a_sheet_does_not_give_is_listed():
    assert "idle power" in unknown(A100)
    assert "memory" not in unknown(A100)
    assert len(unknown(BLACK_BOX)) == len(UNITS) - 1


def test_a_roofline_bends_where_bandwidth_meets_the_peak():
    rows = [row for row in roofline(A100).rows if "fp16" in row["precision"]]
    low, ridge, high = rows
    slope = A100.bandwidth_gbs / 1e3
    assert low["rate"] == pytest.approx(low["intensity"] * slope)
    assert ridge["rate"] == pytest.approx(ridge["intensity"] * slope)
    assert ridge["rate"] == high["rate"] == A100.peak("fp16")


def test_equal_peaks_share_a_line():
    names = {row["precision"] for row in roofline(A100).rows}
    assert "fp16, bf16" in names
    assert sum(name.count("fp16") for name in names) == 1


def test_a_device_without_a_sheet_has_no_roofline():
    assert roofline(BLACK_BOX) is None
    assert similar(BLACK_BOX, CATALOG) == []


def test_similar_devices_are_of_the_same_kind_and_never_the_device_itself():
    found = similar(A100, CATALOG)
    assert len(found) == 4
    assert A100 not in found
    assert {device.kind for device in found} == {"gpu"}
    assert any(device.name.startswith("a100") for device in found)


def test_the_half_rate_is_the_higher_one_and_none_where_neither_is_given():
    assert half_rate(A100) == A100.peak("fp16")
    assert half_rate(CATALOG.get("mi100")) == CATALOG.get("mi100").peak("fp16")
    assert half_rate(BLACK_BOX) is None


RECORD = TrainingRecord(
    keys={"counted": {"device": ["l4"]}, "older": {"device": ["t4", "l4"]}, "suites": {}},
    counts={
        "counted": {
            Setting("l4", "network", "latency_ms", "inference", "amp", "eager"): 7,
            Setting("l4", "network", "power_w", "inference", "amp", "eager"): 2,
            Setting("t4", "network", "latency_ms", "training", "fp32", "compiled"): 5,
            Setting("t4", "benchmark", "score"): 1,
        }
    },
)
ROWS = measured(RECORD)


def test_a_dataset_that_was_not_counted_is_present_without_a_number():
    assert Measured("t4", "older") in ROWS
    assert not [row for row in ROWS if row.dataset == "counted" and row.values is None]
    assert values_by_device(ROWS) == {"l4": 9, "t4": 6}


def test_a_map_adds_up_and_begins_with_the_most():
    found = pivot(ROWS, "metric")
    assert found.columns == ["latency_ms", "power_w", "score"]
    assert found.devices == ["l4", "t4"]
    assert found.cells == {
        ("l4", "latency_ms"): 7,
        ("l4", "power_w"): 2,
        ("t4", "latency_ms"): 5,
        ("t4", "score"): 1,
    }


def test_presence_alone_is_no_number_and_does_not_hide_one():
    alone = pivot(ROWS, "dataset").cells
    assert alone["l4", "older"] is None
    assert alone["l4", "counted"] == 9
    both = [Measured("l4", "a"), Measured("l4", "a", values=3), Measured("l4", "a")]
    assert pivot(both, "dataset").cells == {("l4", "a"): 3}


def test_rows_without_the_field_are_left_out():
    assert ("t4", "") not in pivot(ROWS, "phase").cells
    assert pivot(ROWS, "phase").columns == ["inference", "training"]


def test_a_choice_holds_for_every_field_that_is_chosen():
    chosen = [row for row in ROWS if Choice(kind="network", precision="amp").fits(row)]
    assert [row.metric for row in chosen] == ["latency_ms", "power_w"]
    assert all(map(Choice().fits, ROWS))


def test_each_power_of_ten_is_a_step():
    assert [step(n) for n in (None, 1, 9, 10, 99_999, 100_000, 10**9)] == [1, 1, 1, 2, 5, 6, 6]


def test_gaps_name_what_no_network_was_measured_in():
    found = gaps(ROWS)
    assert "phase" not in found
    assert "latency_ms" not in found["metric"] and "utilisation" in found["metric"]
    assert "amp" not in found["precision"] and "int8" in found["precision"]
    assert "eager" not in found["runtime"] and "tensorrt" in found["runtime"]
