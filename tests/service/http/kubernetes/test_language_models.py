"""Pods that serve language models, as a kube-scheduler asks about them."""

from itertools import product

import pytest
from msgspec import convert

from forerun.data.errors import BadRequest
from forerun.service.http.kubernetes.extender import Pod
from forerun.service.http.kubernetes.pods import placed_by
from tests.service.http.kubernetes.requests import args, node, pod
from tests.service.http.kubernetes.test_advice import asked, passing, scores_of

LLAMA = {
    "llm": "llama-3.1-8b",
    "input-tokens": "1024",
    "output-tokens": "256",
    "concurrency": "16",
}
NODES = [
    node("h100", "NVIDIA-H100-80GB-HBM3"),
    node("l4", "NVIDIA-L4"),
    node("t4", "Tesla-T4"),
    node("unknown", "NVIDIA-Z9000"),
]
ONE, FOUR = {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "4"}


def estimate(client, device: str, **more) -> dict:
    request = {
        "model": {"name": "llama-3.1-8b"},
        "device": device,
        "input_tokens": 1024,
        "output_tokens": 256,
        "concurrency": 16,
        **more,
    }
    return client.post("/v1/llm/estimate", json=request).json()["metrics"]


def test_nodes_without_the_memory_for_weights_keys_and_values_fail(adapting):
    result = asked(adapting, "filter", args(pod(LLAMA, ONE), NODES))
    assert passing(result) == ["h100", "l4", "unknown"]
    assert "does not fit" in result["FailedAndUnresolvableNodes"]["t4"]


def test_more_requests_in_flight_than_the_cache_holds_fail_unless_they_may_wait(adapting):
    many = {**LLAMA, "concurrency": "64"}
    result = asked(adapting, "filter", args(pod(many, ONE), NODES))
    assert passing(result) == ["h100", "unknown"]
    assert "not for 64" in result["FailedAndUnresolvableNodes"]["l4"]
    waiting = asked(adapting, "filter", args(pod({**many, "must-fit": "false"}, ONE), NODES))
    assert passing(waiting) == ["h100", "l4", "unknown"]


def test_the_gpus_that_a_pod_requests_share_each_layer(adapting):
    result = asked(adapting, "filter", args(pod(LLAMA, FOUR), NODES))
    assert passing(result) == [one["metadata"]["name"] for one in NODES]
    found = scores_of(adapting, args(pod(LLAMA, FOUR), NODES))
    four = {"parallelism": {"tensor": 4}}
    times = {name: estimate(adapting, name, **four)["tpot_ms"]["value"] for name in ("h100", "t4")}
    assert found["t4"] == round(10 * times["h100"] / times["t4"])


@pytest.mark.parametrize("written", [{"tp": "2"}, {"parallelism": '{"tensor": 2}'}])
def test_a_deployment_of_more_devices_than_there_are_fails(adapting, written):
    result = asked(adapting, "filter", args(pod({**LLAMA, **written}, ONE), NODES[:1]))
    assert "takes 2 devices, there are 1" in result["FailedAndUnresolvableNodes"]["h100"]
    few = node("few", "NVIDIA-H100-80GB-HBM3")
    few["metadata"]["labels"]["nvidia.com/gpu.count"] = "1"
    result = asked(adapting, "filter", args(pod({**LLAMA, **written}), [*NODES[:1], few]))
    assert passing(result) == ["h100"]


def test_scores_compare_the_time_per_output_token_or_the_rate(adapting):
    names = ("h100", "l4")
    metrics = {name: estimate(adapting, name) for name in names}
    for objective, sign in (("tpot_ms", 1), ("tokens_per_s", -1)):
        wanted = {**LLAMA, "objective": objective}
        found = scores_of(adapting, args(pod(wanted, ONE), NODES))
        values = {name: metrics[name][objective]["value"] for name in names}
        assert found["h100"] == 10
        assert found["l4"] == round(10 * (values["h100"] / values["l4"]) ** sign)
        assert found["t4"] == found["unknown"] == 0
    assert found["l4"] < 10


def test_limits_are_met_by_the_end_of_the_interval_or_by_the_estimate(adapting):
    own = estimate(adapting, "l4")
    for name, limit, end in (("tpot_ms", "max", "high"), ("tokens_per_s", "min", "low")):
        between = (own[name]["value"] + own[name][end]) / 2
        limits = {f"{limit}-{name.replace('_', '-')}": str(between)}
        wanted = {**LLAMA, **limits}
        careful = asked(adapting, "filter", args(pod(wanted, ONE), NODES[1:2]))
        assert f"{name} is" in careful["FailedAndUnresolvableNodes"]["l4"]
        risky = asked(adapting, "filter", args(pod({**wanted, "risk": "value"}, ONE), NODES[1:2]))
        assert passing(risky) == ["l4"]


def test_a_slice_serves_what_fits_it(adapting):
    small = {"nvidia.com/mig-1g.10gb": "1"}
    result = asked(adapting, "filter", args(pod(LLAMA, small), NODES[:1]))
    assert "does not fit" in result["FailedAndUnresolvableNodes"]["h100"]


def test_a_whole_request_may_be_given_as_json(adapting):
    whole = '{"model": "llama-3.1-8b", "isl": 1024, "osl": 256, "concurrency": 16}'
    one, other = (args(pod(given, ONE), NODES) for given in ({"llm": whole}, LLAMA))
    assert scores_of(adapting, one) == scores_of(adapting, other)


def test_workers_for_prompts_need_no_room_for_all_requests_in_flight(adapting):
    divided = {
        "concurrency": "64",
        "parallelism": '{"tensor": 4}',
        "prefill": '{"parallelism": {"tensor": 1}}',
    }
    five = {"nvidia.com/gpu": "5"}
    result = asked(adapting, "filter", args(pod({**LLAMA, **divided}, five), NODES[1:2]))
    assert passing(result) == ["l4"]


@pytest.mark.parametrize(
    "more", [{"llm": "no-such-model"}, {"input-tokens": "-1"}, {"max-tpot-mss": "4"}]
)
def test_a_deployment_that_does_not_fit_may_run_anywhere(adapting, more):
    request = args(pod({**LLAMA, **more}, ONE), NODES)
    assert passing(asked(adapting, "filter", request)) == [one["metadata"]["name"] for one in NODES]
    assert set(scores_of(adapting, request).values()) == {0}


@pytest.mark.parametrize(
    ("more", "named"), [({"objective": "latency_ms"}, "objective"), ({"max-tpot-ms": "x"}, "tpot")]
)
def test_options_that_do_not_fit_are_named(more, named):
    annotations = {**LLAMA, **more}
    with pytest.raises(BadRequest, match=named):
        placed_by(convert(pod(annotations), Pod))


ARRIVING = {name: value for name, value in LLAMA.items() if name != "concurrency"}


def keeps_up(client, device: str) -> dict:
    """The largest rate of requests that the device keeps up with."""
    request = {
        **{"model": {"name": "llama-3.1-8b"}, "device": device, "input_tokens": 1024},
        **{"output_tokens": 256, "requests_per_s": 1.0},
    }
    return client.post("/v1/llm/estimate", json=request).json()["deployment"]["capacity"]


@pytest.mark.parametrize("limit", ["max-tpot-ms", "max-ttft-ms", "max-request-latency-ms"])
def test_limits_on_times_fail_where_more_requests_arrive_than_are_answered(adapting, limit):
    own = keeps_up(adapting, "l4")
    for risk, share in product(("high", "value"), (1.01, 2.0)):
        wanted = {**ARRIVING, "requests-per-s": str(share * own["requests_per_s"]), limit: "1e9"}
        result = asked(adapting, "filter", args(pod({**wanted, "risk": risk}, ONE), NODES))
        assert passing(result) == ["h100", "unknown"]
        assert "requests/s arrive" in result["FailedAndUnresolvableNodes"]["l4"]


def test_a_rate_that_may_be_too_high_breaks_limits_on_times_with_queueing(adapting):
    own = keeps_up(adapting, "l4")
    between = {**ARRIVING, "requests-per-s": str((own["low"] + own["requests_per_s"]) / 2.0)}
    for limit, risk, passes in [
        *(("max-ttft-ms", "high", False), ("max-ttft-ms", "value", True)),
        ("max-tpot-ms", "high", True),
    ]:
        wanted = {**between, limit: "1e9", "risk": risk}
        result = asked(adapting, "filter", args(pod(wanted, ONE), NODES))
        assert ("l4" in passing(result)) == passes


def test_an_overloaded_node_without_limits_passes_with_the_score_0(adapting):
    own = keeps_up(adapting, "l4")
    wanted = {**ARRIVING, "requests-per-s": str(2.0 * own["requests_per_s"])}
    assert "l4" in passing(asked(adapting, "filter", args(pod(wanted, ONE), NODES)))
    found = scores_of(adapting, args(pod(wanted, ONE), NODES))
    assert found["l4"] == 0
    assert found["h100"] == 10


def test_a_time_per_token_that_is_not_known_passes_also_above_the_capacity(adapting):
    one = {**ARRIVING, "output-tokens": "1", "requests-per-s": "1e5"}
    assert "tpot_ms" not in estimate(
        adapting, "l4", output_tokens=1, concurrency=None, requests_per_s=1e5
    )
    for limit, passes in [("max-tpot-ms", True), ("max-ttft-ms", False)]:
        result = asked(adapting, "filter", args(pod({**one, limit: "1e9"}, ONE), NODES))
        assert ("l4" in passing(result)) == passes
    assert "100,000 requests/s arrive" in result["FailedAndUnresolvableNodes"]["l4"]


@pytest.mark.parametrize(("risk", "says"), [("high", "upper end of tpot_ms is"), ("value", "tpot")])
def test_a_reason_names_the_end_that_is_compared_with_the_limit(adapting, risk, says):
    wanted = {**LLAMA, "max-tpot-ms": "0.1", "risk": risk}
    result = asked(adapting, "filter", args(pod(wanted, ONE), NODES[:1]))
    assert result["FailedAndUnresolvableNodes"]["h100"].startswith(f"h100-sxm-80gb: {says}")
