"""A rank predicts all devices in one pass, and no device's answer depends on the others."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, NumberFormat, Phase
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.router import Router
from forerun.service.answers.power_sweep import swept
from forerun.service.answers.ranking import Goal, Limits, ranked

CATALOG = DeviceCatalog.load()
DEVICES = [CATALOG.get(n) for n in ("l4", "a100-pcie-80gb", "rtx-3090", "mi250x", "epyc-7742")]


def graph(width: int) -> OperatorGraph:
    """Two products of these widths with an activation between them."""
    return OperatorGraph(
        (
            Operator("linear", "a", ((1, width),), ((1, 2 * width),), 2 * width * width),
            Operator("elementwise", "b", ((1, 2 * width),), ((1, 2 * width),), inputs=(0,)),
            Operator("linear", "c", ((1, 2 * width),), ((1, 10),), 20 * width, inputs=(1,)),
        )
    )


def unused() -> InUse:
    """The bundled predictors without what they keep of earlier questions."""
    loaded = bundled()
    router = loaded.predictor
    assert isinstance(router, Router)
    parts = tuple(replace(part) for part in router.parts)  # type: ignore[type-var]
    return InUse(replace(loaded, predictor=replace(router, parts=parts)))


def devices_ranked(network: Network, devices: list[Device], in_use: InUse) -> dict[str, object]:
    queries = [Query(network, device, Software()) for device in devices]
    found = ranked(queries, Goal("latency_ms"), Limits({}, must_fit=False), in_use)
    rows = {
        row.device.name: row.model_dump(exclude={"rank", "overlaps_best"}) for row in found.ranked
    }
    return rows | {row.device.name: row.reasons for row in found.excluded}


@pytest.mark.parametrize(
    ("precision", "phase"), [("fp32", "inference"), ("amp", "inference"), ("fp16", "training")]
)
def test_a_device_has_the_answer_that_it_has_alone(precision: NumberFormat, phase: Phase) -> None:
    together = devices_ranked(Network(graph(640), 24, precision, phase), DEVICES, unused())
    assert set(together) == {device.name for device in DEVICES}
    for device in DEVICES:
        alone = devices_ranked(Network(graph(640), 24, precision, phase), [device], unused())
        assert close(alone[device.name], together[device.name]), device.name


def test_sheets_of_one_name_have_their_own_answers() -> None:
    own = CATALOG.get("l4").model_copy(update={"memory_bandwidth_gbs": 900.0})
    in_use, network = InUse(bundled()), Network(graph(512), 48, "amp")
    first, second = (devices_ranked(network, [d], in_use)["l4"] for d in (CATALOG.get("l4"), own))
    assert not close(first, second)


def close(one: object, other: object) -> bool:
    """Whether two answers agree to 1e-9 in all numbers and are equal otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def test_a_sweep_of_power_limits_asks_no_predictor_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory does not depend on the power limit, and its plan takes longer than all else."""

    def predict(self: CalibratedMemory, queries: Sequence[Query]) -> NoReturn:
        raise AssertionError(f"{len(queries)} queries about memory")

    monkeypatch.setattr(CalibratedMemory, "predict", predict)
    query = Query(Network(graph(256), 8, "amp"), CATALOG.get("l4"))
    found = swept(query, [50.0, 72.0], 0.1, InUse(bundled()))
    assert [run.limit_w for run in found.runs] == [50.0, 72.0]
