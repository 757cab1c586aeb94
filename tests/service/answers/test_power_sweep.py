"""POST /v1/power/sweep: the front is one, advice keeps its word, and nothing is made up."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.service.answers.sweep_picture import sweep_picture
from forerun.service.schemas.answers import AdviceOut, IntervalOut, LimitedOut, SweepOut
from tests.service.conftest import GRAPH

NETWORK = {"kind": "network", "graph": GRAPH.to_json(), "batch_size": 4096}


def ask(client, status=200, **changes):
    body = {"workload": NETWORK, "device": "a100-pcie-80gb"} | changes
    answer = client.post("/v1/power/sweep", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_limits_reach_from_two_fifths_of_the_design_power_to_all_of_it(adapting):
    found = ask(adapting)
    limits = [run["limit_w"] for run in found["runs"]]
    assert (limits[0], limits[-1], len(limits)) == (120.0, 300.0, 13)
    assert found["idle_w"] is None or found["idle_w"] < 100


def test_no_run_off_the_front_is_better_than_one_on_it(adapting):
    runs = ask(adapting)["runs"]
    pairs = [(r["latency_ms"]["value"], r["energy_j"]["value"], r["on_front"]) for r in runs]
    for time, energy, on in pairs:
        beaten = any(t <= time and e <= energy and (t, e) != (time, energy) for t, e, _ in pairs)
        assert on != beaten


def test_advice_keeps_to_the_slow_down_it_may_cost(adapting):
    savings = []
    for slow_down in (0.0, 0.05, 0.5):
        advice = ask(adapting, slow_down=slow_down)["within_slow_down"]
        assert advice["slow_down"] <= slow_down + 1e-9
        savings.append(advice["saving"])
    assert savings == sorted(savings)


def test_the_run_at_the_design_power_is_what_predict_says(adapting):
    body = {"workload": NETWORK, "device": "a100-pcie-80gb"}
    alone = adapting.post("/v1/predict", json=body).json()["metrics"]
    last = ask(adapting)["runs"][-1]
    for name in ("latency_ms", "power_w", "energy_j"):
        assert last[name]["value"] == pytest.approx(alone[name]["value"])
    assert last["energy_per_sample_j"]["value"] == pytest.approx(last["energy_j"]["value"] / 4096)


def test_what_was_never_measured_is_null_with_a_reason(adapting):
    found = ask(adapting)
    assert found["peak_power_w"] is None
    assert found["missing"]["peak_power_w"].startswith("not measured")
    assert any("power limit" in line for line in found["limits"])
    assert not any(line.startswith("memory") for line in found["limits"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device": "epyc-7742", "workload": NETWORK | {"batch_size": 1}}, "No power is known"),
        ({"limits_w": []}, "limits_w"),
        ({"limits_w": [-5]}, "limits_w"),
        ({"slow_down": -1}, "slow_down"),
        ({"workload": NETWORK | {"phase": "training", "training": {"tensor_parallel": 2}}}, "divi"),
    ],
)
def test_what_cannot_be_swept_says_why(adapting, changes, said):
    assert said in ask(adapting, 422, **changes)["detail"]


def test_without_a_design_power_limits_must_be_given(adapting):
    sheet = {"name": "box", "vendor": "me", "kind": "gpu", "memory_bandwidth_gbs": 300}
    sheet |= {"peak_tflops": {"fp32": 9}}
    assert "limits_w" in ask(adapting, 422, device=sheet)["detail"]


def test_the_picture_is_sound_svg_with_a_dot_a_limit(adapting):
    drawn = ElementTree.fromstring(ask(adapting, picture=True)["picture"])
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 13
    assert ask(adapting)["picture"] is None


POINT = st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.booleans())


@given(points=st.lists(POINT, min_size=1, max_size=20), title=st.text("a<&\"'é ", max_size=9))
def test_any_sweep_can_be_drawn_within_the_picture(points, title):
    runs = [
        LimitedOut.model_construct(
            limit_w=10.0 + i,
            latency_ms=IntervalOut.model_construct(value=time),
            energy_j=IntervalOut.model_construct(value=energy),
            on_front=on,
        )
        for i, (time, energy, on) in enumerate(points)
    ]
    advice = AdviceOut(limit_w=10.0, slow_down=0.0, saving=0.0)
    found = SweepOut.model_construct(runs=runs, least_energy=advice, within_slow_down=advice)
    drawn = ElementTree.fromstring(sweep_picture(found, title))
    for dot in drawn.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(dot.get("cx")) <= 640
        assert 0 <= float(dot.get("cy")) <= 400
