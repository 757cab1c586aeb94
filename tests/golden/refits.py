"""Every predictor fitted anew on a small table, the same at every call, and asked a few questions.

Tables are made in code; most are those of the tests of each predictor.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.lambda_bench import MEMORY, THROUGHPUT, LambdaBench
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.benchmark_suites.history import BenchmarkHistory
from forerun.models.colocation.booster import ColocationBoost, ProgramMean
from forerun.models.kernel_experts.operators import OperatorBoost
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory
from forerun.models.power.training_jobs import PowerCap
from forerun.models.processors.latency import CpuLatency
from forerun.training.protocols.benchmark_suites.lambda_bench import LambdaBenchProtocols
from tests.contracts.power_runs import GPUS, query, runs
from tests.contracts.tiny_colocation import colocations
from tests.contracts.tiny_upstream import tiny_upstream
from tests.devices import CATALOG
from tests.golden.in_python import refit_answers
from tests.models import test_baselines, test_serving
from tests.models.architectures import test_latency as architecture
from tests.models.benchmark_suites import test_history as history
from tests.models.benchmark_suites import test_scores as scores
from tests.models.colocation import test_application_booster as neighbour
from tests.models.hls_designs import test_booster as design
from tests.models.kernel_experts import test_operators as operator
from tests.models.memory import test_calibrated, test_peak_memory
from tests.models.networks import test_device_time as network
from tests.models.networks import test_latency as latency
from tests.models.power import test_law as law
from tests.models.recorded_cpu import recorded

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
    rows = operator.measured(n=20)
    return Constant().fit(rows), rows.queries[:2]


def roofline() -> Refit:
    rows = operator.measured(n=20)
    return Roofline().fit(rows), [*test_baselines.queries(), *rows.queries[:3]]


@cache
def operators() -> Refit:
    graph = [Query(Network(operator.GRAPH, 256), CATALOG.get(name)) for name in ("t4", "l4")]
    fresh = operator.measured(("t4", "a100-pcie-40gb"), n=5, seed=5)
    return OperatorBoost(trees=20).fit(operator.measured(n=250)), [*fresh.queries, *graph]


def operators_adapted() -> Refit:
    few = operator.measured(("a100-pcie-40gb",), n=8, slowdown=2.5, seed=9)
    asked = operator.measured(("a100-pcie-40gb", "t4"), n=5, seed=5).queries
    return operators()[0].adapt(few), asked


def network_latency() -> Refit:
    alone = network.kernel(network.TRAINING_GPUS[0], 4096, 512)
    return latency.latency(), [*_some(latency.networks()), alone]


def network_latency_adapted() -> Refit:
    rows = network.training_measurements().take(range(0, 24, 2))
    few = replace(rows, queries=[replace(q, device=network.STRANGER) for q in rows.queries])
    return latency.latency().adapt(few), _some(latency.networks())


def networks() -> Refit:
    (small, large), (eager, compiled) = network.TRAINING_GPUS, network.RUNTIMES
    stranger, ask = network.STRANGER, network.ask
    return network.once(), [
        ask(small, 32, 2, 16, eager),
        ask(large, 32, 2, 100, eager),
        ask(large, 64, 4, 100, compiled, "bf16"),
        ask(small, 100, 3, 8, compiled),
        ask(small, 128, 6, 8, eager),
        ask(stranger, 128, 3, 64, compiled),
        ask(stranger, 24, 1, 1, eager, "fp16"),
        ask(stranger, 48, 6, 512, eager),
        ask(stranger, 16, 1, 256, compiled, "fp16"),
        ask(large, 48, 2, 256, eager, "fp16"),
    ]


@cache
def processors() -> Refit:
    return CpuLatency().fit(recorded("quick")), _some(recorded("held_out").queries)


def processors_adapted() -> Refit:
    predictor, queries = processors()
    rows = recorded("quick")
    return predictor.adapt(rows.take(range(0, len(rows), 4))), queries


def power() -> Refit:
    devices = [CATALOG.get(name) for name in ("a30", "rtx-2080-ti", "l4")]
    kernels = [Kernel(law.kernel(*one)) for one in ((64, False), (4096, True))]
    asked = [Query(kernel, device) for device in devices for kernel in kernels]
    asked += [Query(Network(law.GRAPH, n), device) for n in (1, 64) for device in devices]
    return law.with_networks(), asked


def power_of_operators() -> Refit:
    graph = Query(Network(law.GRAPH, 8), CATALOG.get("a40"))
    return law.fitted(), [*law.measured(3, 10).queries, graph]


def architectures() -> Refit:
    codes = architecture.random_codes("nb201", 5, 3)
    known = architecture.measured("mathy", codes, architecture.RATES["mathy"])
    nets = architecture.stranger(3, space="fbnet")
    strangers = architecture.stranger(4)
    return architecture.fitted(), [*known.queries, *strangers.queries, *nets.queries]


def architectures_adapted() -> Refit:
    stranger = architecture.stranger
    predictor = architecture.fitted().adapt(stranger(20)).adapt(stranger(20, space="fbnet"))
    return predictor, [*stranger(8, 6).queries, *stranger(4, 7, "fbnet").queries]


def designs() -> Refit:
    known, new = (design.measured(trips).queries for trips in ([16, 32], design.NEW))
    return design.fitted(), [*_some(known, 5), *_some(new, 7)]


def designs_adapted() -> Refit:
    return design.adapted(), _some(design.measured(design.NEW).queries)


def benchmarks() -> Refit:
    more = scores.asked(512, 3), scores.asked(40, 2, "resource")
    return scores.fitted(), [*_some(scores.measured().queries, 8), *more]


def benchmarks_adapted() -> Refit:
    rows = scores.measured().take([1, 5, 9])
    few = Measurements(rows.queries, {"lut": 3.0 * rows.values["lut"]})
    return scores.fitted().adapt(few), _some(scores.measured().queries)


def benchmark_history() -> Refit:
    asked = history.asked
    return history.fitted(), [
        *_some(history.measured().queries, 6),
        asked(round_=301.0),
        asked("a40", "rnnt", "SingleStream"),
        asked("t4", "gptj-99", count=16),
        asked("h100-sxm-80gb", "resnet50", count=64),
    ]


def history_of_training_rates() -> Refit:
    with TemporaryDirectory() as name:
        folder = Path(name)
        tables = LambdaBench().tidy(tiny_upstream("lambda_bench", folder / "upstream"))
        csv = (THROUGHPUT, MEMORY)
        bundle = Bundle.write(folder / "bundle", "lambda_bench", tables, as_csv=csv)
        rows = LambdaBenchProtocols().training_rows(bundle, CATALOG)
    unseen = [replace(query, device=CATALOG.get("l40s")) for query in rows.queries[:2]]
    return BenchmarkHistory().fit(rows), [*_some(rows.queries, 8), *unseen]


def memory() -> Refit:
    return Memory().fit(test_peak_memory.training_rows()), _memory_questions()


def memory_unfitted() -> Refit:
    return Memory(), _memory_questions()


def calibrated_memory() -> Refit:
    return CalibratedMemory().fit(test_calibrated.published()), _memory_questions()


def _memory_questions() -> list[Query]:
    ask, train = test_peak_memory.ask, test_peak_memory.train
    return [
        *(ask(), ask(16, "fp16"), ask(4, "amp", "a100-pcie-80gb"), ask(2, phase="training")),
        *(train(2, 512, 64), train(8, 1024, 4096), train(4, 2048, 512, "l4")),
        *(train(2, 1024, 8192), train(8, 2048, 512), train(16, 4096, 16384)),
    ]


def colocation() -> Refit:
    fitted = ColocationBoost(bags=1).fit(colocations(3))
    return fitted, _some(colocations(1, seed=4).queries)


def program_mean() -> Refit:
    return ProgramMean().fit(colocations(2)), _some(colocations(1, seed=4).queries)


def neighbours() -> Refit:
    queries = _some(neighbour.runs().queries, 9)
    unmeasured = neighbour.with_settings(queries[0], application="never")
    return neighbour.fitted(), [*queries, unmeasured]


def serving() -> Refit:
    case = test_serving.TestServingPower()
    return case.make(), [*case.queries(), *_some(test_serving.FEW.queries, 6)]


@cache
def power_cap() -> Refit:
    questions = [
        query(CATALOG.get(name), *how)
        for name in (GPUS[0], GPUS[2])
        for how in ((100.0,), (200.0, 1, 16.0), (None,), (150.0, 0, 1024.0), (90.0, 1))
    ]
    return PowerCap().fit(runs(GPUS[:2], (64,))), questions


def power_cap_adapted() -> Refit:
    predictor, questions = power_cap()
    rows = runs(GPUS[2:])
    return predictor.adapt(rows.take(range(0, len(rows), 3))), questions


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
