"""Every predictor fitted anew on a small table, the same at every call, and asked a few questions.

Tables are made in code; most are those of the tests of each predictor.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from forerun.data.query import Query
from tests.golden.in_python import refit_answers

Refit = tuple[Any, Sequence[Query]]
"""A fitted predictor and questions for it."""
ROWS = 10


def answers_of_refits(group: str) -> dict[str, Any]:
    """`predictor/row` -> answer, for all refits of one group."""
    answers: dict[str, Any] = {}
    for name, refit in REFITS[group].items():
        predictor, queries = refit()
        answers |= refit_answers(predictor, queries, name)
    return answers


def _some(queries: Sequence[Query], count: int = ROWS) -> list[Query]:
    """So many queries at even distances."""
    return [queries[place * len(queries) // count] for place in range(min(count, len(queries)))]


def constant() -> Refit:
    from forerun.models.baselines.constant import Constant
    from tests.models.kernel_experts.test_operators import measured

    rows = measured(n=20)
    return Constant().fit(rows), rows.queries[:2]


def roofline() -> Refit:
    from forerun.models.baselines.roofline import Roofline
    from tests.models.kernel_experts.test_operators import measured
    from tests.models.test_baselines import queries

    rows = measured(n=20)
    return Roofline().fit(rows), [*queries(), *rows.queries[:3]]


@cache
def operators() -> Refit:
    from forerun.models.kernel_experts.operators import OperatorBoost
    from tests.models.kernel_experts.test_operators import CATALOG, GRAPH, measured

    rows = measured(n=250)
    graph = [Query(_network(GRAPH, 256), CATALOG.get(name)) for name in ("t4", "l4")]
    fresh = measured(("t4", "a100-pcie-40gb"), n=5, seed=5)
    return OperatorBoost(trees=20).fit(rows), [*fresh.queries, *graph]


def operators_adapted() -> Refit:
    from tests.models.kernel_experts.test_operators import measured

    predictor, _ = operators()
    few = measured(("a100-pcie-40gb",), n=8, slowdown=2.5, seed=9)
    return predictor.adapt(few), measured(("a100-pcie-40gb", "t4"), n=5, seed=5).queries


def networks() -> Refit:
    from tests.models.networks.test_device_time import once

    return once(), _network_questions()


def network_latency() -> Refit:
    from tests.models.networks.test_device_time import TRAINING_GPUS, kernel
    from tests.models.networks.test_latency import latency, networks

    return latency(), [*_some(networks()), kernel(TRAINING_GPUS[0], 4096, 512)]


def network_latency_adapted() -> Refit:
    from tests.models.networks.test_device_time import STRANGER, training_measurements
    from tests.models.networks.test_latency import latency, networks

    training = training_measurements()
    rows = training.take(range(0, 24, 2))
    few = replace(rows, queries=[replace(q, device=STRANGER) for q in rows.queries])
    return latency().adapt(few), _some(networks())


def _network_questions() -> list[Query]:
    from tests.models.networks.test_device_time import RUNTIMES, STRANGER, TRAINING_GPUS, ask

    eager, compiled = RUNTIMES
    return [
        ask(TRAINING_GPUS[0], 32, 2, 16, eager),
        ask(TRAINING_GPUS[1], 32, 2, 100, eager),
        ask(TRAINING_GPUS[1], 64, 4, 100, compiled, "bf16"),
        ask(TRAINING_GPUS[0], 100, 3, 8, compiled),
        ask(TRAINING_GPUS[0], 128, 6, 8, eager),
        ask(STRANGER, 128, 3, 64, compiled),
        ask(STRANGER, 24, 1, 1, eager, "fp16"),
        ask(STRANGER, 48, 6, 512, eager),
        ask(STRANGER, 16, 1, 256, compiled, "fp16"),
        ask(TRAINING_GPUS[1], 48, 2, 256, eager, "fp16"),
    ]


def _network(graph: Any, batch: int) -> Any:
    from forerun.data.workload import Network

    return Network(graph, batch)


@cache
def processors() -> Refit:
    from forerun.models.processors.latency import CpuLatency
    from tests.models.recorded_cpu import recorded

    return CpuLatency().fit(recorded("quick")), _some(recorded("held_out").queries)


def processors_adapted() -> Refit:
    from tests.models.recorded_cpu import recorded

    predictor, queries = processors()
    rows = recorded("quick")
    return predictor.adapt(rows.take(range(0, len(rows), 4))), queries


def power() -> Refit:
    from forerun.data.workload import Kernel
    from tests.models.power.test_law import CATALOG, GRAPH, kernel, with_networks

    devices = [CATALOG.get(name) for name in ("a30", "rtx-2080-ti", "l4")]
    asked = [
        Query(Kernel(kernel(n, p)), d) for d in devices for n, p in ((64, False), (4096, True))
    ]
    return with_networks(), [
        *asked,
        *(Query(_network(GRAPH, n), d) for n in (1, 64) for d in devices),
    ]


def power_of_operators() -> Refit:
    from tests.models.power.test_law import CATALOG, GRAPH, fitted, measured

    return fitted(), [*measured(3, 10).queries, Query(_network(GRAPH, 8), CATALOG.get("a40"))]


def architectures() -> Refit:
    from tests.models.architectures.test_latency import (
        RATES,
        fitted,
        measured,
        random_codes,
        stranger,
    )

    known = measured("mathy", random_codes("nb201", 5, 3), RATES["mathy"])
    nets = stranger(3, space="fbnet")
    return fitted(), [*known.queries, *stranger(4).queries, *nets.queries]


def architectures_adapted() -> Refit:
    from tests.models.architectures.test_latency import fitted, stranger

    predictor = fitted().adapt(stranger(20)).adapt(stranger(20, space="fbnet"))
    nets = stranger(4, 7, "fbnet")
    return predictor, [*stranger(8, 6).queries, *nets.queries]


def designs() -> Refit:
    from tests.models.hls_designs.test_booster import NEW, fitted, measured

    return fitted(), [*_some(measured([16, 32]).queries, 5), *_some(measured(NEW).queries, 7)]


def designs_adapted() -> Refit:
    from tests.models.hls_designs.test_booster import NEW, fitted, measured

    rows = measured(NEW)
    return fitted().adapt(rows.take(range(0, 60, 3))), _some(rows.queries)


def benchmarks() -> Refit:
    from tests.models.benchmark_suites.test_scores import asked, fitted, measured

    return fitted(), [*_some(measured().queries, 8), asked(512, 3), asked(40, 2, "resource")]


def benchmarks_adapted() -> Refit:
    from forerun.data.measurements import Measurements
    from tests.models.benchmark_suites.test_scores import fitted, measured

    rows = measured().take([1, 5, 9])
    few = Measurements(rows.queries, {"lut": 3.0 * rows.values["lut"]})
    return fitted().adapt(few), _some(measured().queries)


def benchmark_history() -> Refit:
    from tests.models.benchmark_suites.test_history import asked, fitted, measured

    return fitted(), [
        *_some(measured().queries, 6),
        asked(round_=301.0),
        asked("a40", "rnnt", "SingleStream"),
        asked("t4", "gptj-99", count=16),
        asked("h100-sxm-80gb", "resnet50", count=64),
    ]


def history_of_training_rates() -> Refit:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from forerun.data.bundle import Bundle
    from forerun.data.datasets.benchmark_suites.lambda_bench import MEMORY, THROUGHPUT, LambdaBench
    from forerun.data.device import DeviceCatalog
    from forerun.models.benchmark_suites.history import BenchmarkHistory
    from forerun.training.protocols.benchmark_suites.lambda_bench import LambdaBenchProtocols
    from tests.contracts.tiny_upstream import tiny_upstream

    with TemporaryDirectory() as name:
        folder = Path(name)
        tables = LambdaBench().tidy(tiny_upstream("lambda_bench", folder / "upstream"))
        csv = (THROUGHPUT, MEMORY)
        bundle = Bundle.write(folder / "bundle", "lambda_bench", tables, as_csv=csv)
        rows = LambdaBenchProtocols().training_rows(bundle, DeviceCatalog.load())
    device = DeviceCatalog.load().get("l40s")
    unseen = [replace(query, device=device) for query in rows.queries[:2]]
    return BenchmarkHistory().fit(rows), [*_some(rows.queries, 8), *unseen]


def memory() -> Refit:
    from forerun.models.memory.peak_memory import Memory
    from tests.models.memory.test_peak_memory import training_rows

    return Memory().fit(training_rows()), _memory_questions()


def memory_unfitted() -> Refit:
    from forerun.models.memory.peak_memory import Memory

    return Memory(), _memory_questions()


def _memory_questions() -> list[Query]:
    from tests.models.memory.test_peak_memory import ask, train

    return [
        *(ask(), ask(16, "fp16"), ask(4, "amp", "a100-pcie-80gb"), ask(2, phase="training")),
        *(train(2, 512, 64), train(8, 1024, 4096), train(4, 2048, 512, "l4")),
        *(train(2, 1024, 8192), train(8, 2048, 512), train(16, 4096, 16384)),
    ]


def calibrated_memory() -> Refit:
    from forerun.models.memory.calibrated import CalibratedMemory
    from tests.models.memory.test_calibrated import published

    return CalibratedMemory().fit(published()), _memory_questions()


def colocation() -> Refit:
    from forerun.models.colocation.booster import ColocationBoost
    from tests.contracts.tiny_colocation import colocations

    fitted = ColocationBoost(bags=1).fit(colocations(3))
    return fitted, _some(colocations(1, seed=4).queries)


def program_mean() -> Refit:
    from forerun.models.colocation.booster import ProgramMean
    from tests.contracts.tiny_colocation import colocations

    return ProgramMean().fit(colocations(2)), _some(colocations(1, seed=4).queries)


def neighbours() -> Refit:
    from tests.models.colocation.test_application_booster import fitted, runs, with_settings

    queries = _some(runs().queries, 9)
    return fitted(), [*queries, with_settings(queries[0], application="never")]


def serving() -> Refit:
    from tests.models.test_serving import FEW, TestServingPower

    case = TestServingPower()
    return case.make(), [*case.queries(), *_some(FEW.queries, 6)]


@cache
def _power_cap() -> Any:
    from forerun.models.power.training_jobs import PowerCap
    from tests.contracts.power_runs import GPUS, runs

    return PowerCap().fit(runs(GPUS[:2], (64,)))


def power_cap() -> Refit:
    return _power_cap(), _power_cap_questions()


def power_cap_adapted() -> Refit:
    from tests.contracts.power_runs import GPUS, runs

    rows = runs(GPUS[2:])
    return _power_cap().adapt(rows.take(range(0, len(rows), 3))), _power_cap_questions()


def _power_cap_questions() -> list[Query]:
    from tests.contracts.power_runs import CATALOG, GPUS, query

    return [
        asked
        for device in (CATALOG.get(GPUS[0]), CATALOG.get(GPUS[2]))
        for asked in (
            query(device, 100.0),
            query(device, 200.0, 1, 16.0),
            query(device, None),
            query(device, 150.0, 0, 1024.0),
            query(device, 90.0, 1),
        )
    ]


REFITS: dict[str, dict[str, Callable[[], Refit]]] = {
    group: {refit.__name__: refit for refit in refits}
    for group, refits in (
        (
            "refits",
            (
                *(constant, roofline, operators, operators_adapted, processors),
                *(processors_adapted, power, power_of_operators, architectures),
                *(architectures_adapted, designs, designs_adapted, benchmarks),
                *(benchmarks_adapted, benchmark_history, history_of_training_rates, memory),
                *(memory_unfitted, calibrated_memory, colocation, program_mean, neighbours),
                *(serving, power_cap, power_cap_adapted),
            ),
        ),
        ("refits_of_networks", (networks, network_latency, network_latency_adapted)),
    )
}
"""Group -> predictor -> its refit. A group has one tolerance, in `compare.TOLERANCES`."""
