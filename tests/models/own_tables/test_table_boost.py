"""`TableBoost`: every metric of a table, wider on devices outside it, restricted where asked."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from forerun.data.errors import BadBenchmark, InputError
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark, Kernel, Network
from forerun.features.tables.own_tables import bound_ms, device_settings
from forerun.models.contract import PredictorContract
from forerun.models.own_tables import TableBoost
from forerun.service.answers.benchmarks import checked_settings
from forerun.service.answers.requested import question_of
from forerun.service.schemas.prediction import PredictIn
from tests.devices import CATALOG


def network(width, batch, device, precision="fp16") -> Query:
    linear = Operator(
        "linear", "linear", ((batch, width),), ((batch, width),), parameter_elements=width * width
    )
    graph = OperatorGraph((linear,) * 4, batch_size=batch)
    return Query(Network(graph, batch, precision), CATALOG.get(device))


def setting(n, kernel="direct", table="mine") -> Query:
    workload = Benchmark(table, (("kernel", kernel), ("n", float(n))))
    return Query(workload, CATALOG.get("l4"))


@lru_cache(maxsize=1)
def networks() -> Measurements:
    """Times of twice the bound, power at half the design power."""
    random = np.random.default_rng(0)
    cells = [
        (width, batch, device)
        for width in (256, 512, 1024, 2048, 4096)
        for batch in (8, 64, 512)
        for device in ("l4", "t4", "a30")
    ]
    queries = [network(*cell) for cell in cells]
    noise = np.exp(random.normal(0, 0.03, len(cells)))
    latency = np.array([2 * bound_ms(query) + 0.02 for query in queries]) * noise
    power = np.array([0.5 * (query.device.tdp_w or 0) for query in queries]) * noise
    groups = {
        "device": np.array([cell[2] for cell in cells]),
        "model_group": np.array([str(cell[0]) for cell in cells]),
    }
    return Measurements(queries, {"latency_ms": latency, "power_w": power}, groups)


@lru_cache(maxsize=1)
def fitted() -> TableBoost:
    return TableBoost(table="mine", trees=40).fit(networks())


class TestNetworksContract(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(networks)

    def queries(self):
        known = networks().queries
        return [known[0], known[20], network(700, 32, "l4"), network(700, 32, "v100-sxm2-16gb")]


class TestSettingsContract(PredictorContract):
    def make(self):
        return TableBoost(table="mine", trees=20).fit(settings())

    def queries(self):
        return [setting(3), setting(30), setting(100, "winograd")]


def settings():
    cells = [(n, kernel) for n in range(1, 25) for kernel in ("direct", "winograd")]
    time = np.array([n * (2.0 if kernel == "direct" else 1.0) for n, kernel in cells])
    return Measurements([setting(*cell) for cell in cells], {"latency_ms": time})


def test_metrics_follow_the_physical_base_to_a_new_device():
    query = network(1500, 128, "a10")
    answer = fitted().predict([query])
    assert abs(np.log(answer.values["latency_ms"][0] / (2 * bound_ms(query) + 0.02))) < 0.3
    assert abs(np.log(answer.values["power_w"][0] / (0.5 * query.device.tdp_w))) < 0.2


def test_a_device_outside_the_table_is_named_and_has_the_interval_of_held_out_devices():
    known, new = network(512, 64, "l4"), network(512, 64, "a10")
    answer = fitted().predict([known, new])
    assert not any("not in the table" in str(limit) for limit in answer.limits[0])
    assert any("not in the table mine" in str(limit) for limit in answer.limits[1])
    low, high = fitted().unseen["latency_ms"].bounds["all"]
    ratio = answer.high["latency_ms"][1] / answer.low["latency_ms"][1]
    assert np.isclose(np.log(ratio), max(high, 0.0) - min(low, 0.0))


def test_with_one_device_no_interval_is_promised_on_others():
    rows = networks().take(networks().groups["device"] == "l4")
    one = TableBoost(table="mine", trees=20).fit(rows)
    answer = one.predict([network(512, 64, "l4"), network(512, 64, "a10")])
    assert np.isfinite(answer.low["latency_ms"]).tolist() == [True, False]


def test_it_answers_only_what_is_like_the_table():
    own = TableBoost(table="mine", own_devices=True, trees=5).fit(networks())
    assert own.answers(network(512, 64, "l4"))
    assert not own.answers(network(512, 64, "a10")), "another device"
    assert fitted().answers(network(512, 64, "a10"))
    training = network(512, 64, "l4").workload
    training = Network(training.graph, 64, "fp16", "training")
    assert not own.answers(Query(training, CATALOG.get("l4"))), "another phase"
    kernel = Kernel(training.graph.operators[0])
    assert not own.answers(Query(kernel, CATALOG.get("l4"))), "another kind"
    assert not fitted().answers(setting(3))
    plain = TableBoost(table="mine", trees=5).fit(settings())
    assert plain.answers(setting(3))
    assert not plain.answers(setting(3, table="theirs")), "another suite"


def test_a_table_of_settings_is_a_suite_without_the_figures_of_devices():
    (suite,) = TableBoost(table="mine", trees=5).fit(settings()).known_suites()
    assert (suite.name, suite.metrics, suite.kinds) == ("mine", ("latency_ms",), ("gpu",))
    assert {own.name: own.required for own in suite.settings} == {"kernel": True, "n": True}
    assert fitted().known_suites() == (), "networks are asked as networks"


@pytest.mark.parametrize("n", [0, -4])
def test_a_number_that_was_positive_in_all_rows_is_refused_where_it_is_not(n):
    (suite,) = TableBoost(table="mine", trees=5).fit(settings()).known_suites()
    (known,) = [own for own in suite.settings if own.name == "n"]
    with pytest.raises(BadBenchmark) as refused:
        checked_settings(setting(n).benchmark, suite)
    assert str(refused.value) == (
        f"workload.settings.n is {n}, and was positive in all measured rows "
        f"(a number, {known.low:g} to {known.high:g} were measured)."
    )
    assert checked_settings(setting(2 * known.high).benchmark, suite)


def test_a_few_rows_of_a_smooth_law_are_answered_between_and_beyond_them():
    sizes = np.array([1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 96, 128])
    time = 0.01 + 3e-4 * sizes**1.5
    rows = Measurements([setting(n) for n in sizes], {"latency_ms": time})
    answer = TableBoost(table="mine", trees=20).fit(rows).predict([setting(3), setting(80)])
    wanted = 0.01 + 3e-4 * np.array([3.0, 80.0]) ** 1.5
    np.testing.assert_allclose(answer.values["latency_ms"], wanted, rtol=0.1)


def test_the_name_of_the_model_is_a_setting_and_a_new_one_has_the_interval_of_models_held_out():
    random = np.random.default_rng(0)
    base = np.exp(random.normal(0, 2, 20))

    def asked(name, n):
        return replace(setting(n), workload=Benchmark("mine", (("model", name), ("n", float(n)))))

    cells = [(number, n) for number in range(20) for n in (1, 4, 16, 64)]
    times = np.array([base[number] * n**0.8 for number, n in cells])
    queries = [asked(f"m{number}", n) for number, n in cells]
    groups = {"question": np.arange(len(cells)).astype(str)}
    boost = TableBoost(table="mine", trees=40).fit(
        Measurements(queries, {"latency_ms": times}, groups)
    )
    found = boost.predict([asked("m3", 8), asked("m99", 8)])
    assert found.values["latency_ms"][0] == pytest.approx(base[3] * 8**0.8, rel=0.1)
    known, new = found.high["latency_ms"] / found.low["latency_ms"]
    assert known < 3 < 30 < new


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_the_settings_tell_nothing_the_median_is_answered(seed):
    random = np.random.default_rng(seed)
    queries = [setting(n, kernel) for n in range(1, 41) for kernel in ("direct", "fft")]
    times = np.exp(0.5 * random.standard_t(1.2, len(queries)))
    rows = Measurements(queries, {"latency_ms": times})
    found = TableBoost(table="mine", trees=40).fit(rows).predict(queries).values["latency_ms"]
    np.testing.assert_allclose(found, np.median(times), rtol=0.01)


@pytest.mark.parametrize("group", ["question", "model_group"])
def test_intervals_hold_groups_that_the_table_lacks(group):
    """Four rows each of 20 questions, or of 20 networks that are off by as much in every row."""
    random = np.random.default_rng(1)

    def table():
        cells = [tuple(2.0 ** random.uniform(0, 8, 2)) for _ in range(20)]
        off = random.normal(0, 0.3 if group == "model_group" else 0.0, 20)
        rows = [(n, m, row if group == "model_group" else 0.0, at)
                for at, (n, m) in enumerate(cells) for row in range(4)]  # fmt: skip
        tests = [(("k", k), ("m", m), ("n", n)) for n, m, k, _ in rows]
        queries = [Query(Benchmark("mine", test), CATALOG.get("l4")) for test in tests]
        law = [n**0.8 * m * (1 + (n * m > 500)) * np.exp(off[at]) for n, m, _, at in rows]
        times = np.array(law) * np.exp(random.normal(0, 0.02, len(rows)))
        groups = {group: np.array([str(at) for *_, at in rows])}
        return Measurements(queries, {"latency_ms": times}, groups)

    held = []
    for _ in range(4):
        found, others = TableBoost(table="mine", trees=40).fit(table()), table()
        ends = found.predict(others.queries)
        times = others.values["latency_ms"]
        held.append((ends.low["latency_ms"] <= times) & (times <= ends.high["latency_ms"]))
    assert np.mean(held) >= 0.85


def test_outside_the_range_every_metric_is():
    rows = settings()
    rows = Measurements(rows.queries, {**rows.values, "peak_memory_mib": rows.values["latency_ms"]})
    (limits,) = TableBoost(table="mine", trees=5).fit(rows).predict([setting(1000)]).limits
    for metric in ("latency_ms", "peak_memory_mib"):
        assert any(own.feature == "n" and own.concerns(metric) for own in limits)


def test_intervals_widen_with_the_distance_from_the_table():
    """A law whose power grows: what is fitted to the lower part is too small above it."""
    sizes = [2.0**n for n in range(1, 9)]
    queries = [setting(n, kernel) for n in sizes for kernel in ("direct", "fft")]
    law = {n: 0.01 * n ** (0.5 + 0.1 * np.log2(n)) for n in (*sizes, 512.0)}
    noise = np.exp(np.random.default_rng(0).normal(0, 0.02, len(queries)))
    times = np.array([law[query.benchmark.by_name["n"]] for query in queries]) * noise
    boost = TableBoost(table="mine", trees=40).fit(Measurements(queries, {"latency_ms": times}))
    inside, *outside = boost.predict([setting(n) for n in (64, 512, 1024, 2048)])
    widths = [own.estimates["latency_ms"].high / own.estimates["latency_ms"].low for own in outside]
    known = inside.estimates["latency_ms"]
    assert known.high / known.low < widths[0] < widths[1] < widths[2]
    nearest = outside[0].estimates["latency_ms"]
    assert nearest.low < law[512.0] < nearest.high


def test_too_few_rows_are_refused_in_one_line():
    rows = settings().take(range(4))
    with pytest.raises(InputError, match="4 rows of mine are too few to fit: 5 are needed"):
        TableBoost(table="mine").fit(rows)


def test_settings_of_two_devices_promise_no_interval_on_others():
    rows = settings()
    devices = np.array(["l4", "t4"])[np.arange(len(rows)) % 2]
    queries = [
        Query(query.workload, CATALOG.get(name))
        for query, name in zip(rows.queries, devices, strict=True)
    ]
    table = Measurements(queries, rows.values, {"device": devices})
    asked = Query(setting(7).workload, CATALOG.get("a10"))
    answer = TableBoost(table="mine", trees=5).fit(table).predict([asked])
    assert np.isnan(answer.low["latency_ms"]).all()


def test_a_table_of_settings_is_not_answered_for_a_device_that_its_columns_do_not_tell_of():
    own = TableBoost(table="mine", trees=5)

    def asked(boost, device):
        workload = {"kind": "benchmark", "suite": "mine", "settings": {"kernel": "direct", "n": 3}}
        request = PredictIn.model_validate({"workload": workload, "device": device})
        return question_of(request, CATALOG.get, {}.__getitem__, boost)

    one = own.fit(settings())
    assert asked(one, "l4").query.device.name == "l4"
    with pytest.raises(BadBenchmark, match=r"^device: mine was measured on l4, too few.* on a10: "):
        asked(one, "a10")
    devices = np.array(["l4", "t4", "a30"])[np.arange(48) % 3]
    queries = []
    for test, device in zip(settings().queries, map(CATALOG.get, devices), strict=True):
        given = (*test.benchmark.settings, *device_settings(device).items())
        queries.append(Query(Benchmark("mine", given), device))
    three = own.fit(Measurements(queries, settings().values, {"device": devices}))
    assert asked(three, "a10").query.device.name == "a10"
