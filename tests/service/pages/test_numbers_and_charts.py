"""Numbers as pages write them, ticks, and the data and tables of charts."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.service.http.pages.chart import Chart
from forerun.service.http.pages.encodings import log_ticks
from forerun.service.http.pages.interval_charts import bars_chart
from forerun.service.http.pages.numbers import label, large, percent, short
from forerun.service.http.pages.parts_charts import MOST_PARTS, largest_parts, parts_chart
from forerun.service.http.pages.rendering import STATIC, environment
from forerun.service.limits.interval import IntervalOut


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


def test_bars_keep_the_order_and_say_which_is_least():
    chart = bars_chart("Time", {"b": interval(3, 2, 4), "a": interval(1)})
    assert [row["name"] for row in chart.rows] == ["b", "a"]
    assert "the least is a with 1.00 ms" in chart.summary
    assert bars_chart("Time", {"a": interval(1)}) is None


def test_the_largest_shares_have_colours_and_the_rest_is_other():
    parts = {f"p{n}": float(n) for n in range(1, 12)}
    assert largest_parts([parts]) == [f"p{n}" for n in range(11, 11 - MOST_PARTS, -1)]
    chart = parts_chart("Memory", "MiB", {"x": parts})
    amounts = {row["part"]: row["amount"] for row in chart.rows}
    assert amounts["other"] == 1 + 2 + 3 + 4
    assert sum(amounts.values()) == sum(parts.values())
    assert parts_chart("Memory", "MiB", {"x": {}}) is None


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
