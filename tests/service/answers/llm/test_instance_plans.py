"""Plans of cloud instances: laws, prices that are missing, and that estimates agree."""

from itertools import pairwise

import pytest

import forerun
from forerun.data.cloud_instances import matching, virtual_processors
from forerun.data.device import DeviceCatalog
from forerun.service.cli import app

CATALOG = DeviceCatalog.load()
ASKED = {"requests_per_s": 3.0, "input_tokens": 256, "output_tokens": 128, "tpot_ms": 150}
PRICES = {"aws/m7i.2xlarge": 0.4, "aws/m7i.4xlarge": 0.8, "aws/m8g.4xlarge": 0.7}


pytestmark = pytest.mark.usefixtures("home")


def planned(prices=PRICES, model="qwen2.5-0.5b", **changes):
    devices = [{"device": n, "usd_per_device_hour": usd} for n, usd in prices.items()]
    return forerun.llm_plan(model, devices=devices, **{**ASKED, "kept": 20, **changes}).content


def own_requests(**load):
    """One request at a time on each size of a family whose facts do not fall with the size."""
    sizes = [CATALOG.get(name) for name in matching("aws/m7i.*xlarge") if "metal" not in name]
    rising, best = [], 0.0
    for device in sizes:
        if device.memory_nodes == 1 and device.bandwidth_gbs >= best:
            rising, best = [*rising, device], device.bandwidth_gbs
    assert len(rising) > 3
    fixed = {"input_tokens": 256, "output_tokens": 128}
    return [forerun.llm("qwen2.5-0.5b", device=d.name, **fixed, **load) for d in rising]


@pytest.mark.parametrize("load", [{"concurrency": 1}, {"concurrency": 8}, {"requests_per_s": 0.3}])
def test_a_bigger_instance_of_a_family_is_never_slower(load):
    found = own_requests(**load)
    for metric in ("tpot_ms", "ttft_ms"):
        times = [own.metrics[metric].value for own in found]
        assert all(a >= b * (1.0 - 1e-9) for a, b in pairwise(times))


def test_requests_at_a_rate_take_as_long_as_the_closed_loop_of_that_rate():
    """Little's law: the times of n requests in flight are those of the rate that these have."""
    asked = {"device": "aws/m7i.8xlarge", "input_tokens": 256, "output_tokens": 128}
    closed = forerun.llm("qwen2.5-0.5b", **asked, concurrency=16)
    rate = closed.metrics["requests_per_s"].value
    arriving = forerun.llm("qwen2.5-0.5b", **asked, requests_per_s=rate)
    assert arriving.metrics["requests_per_s"].value == pytest.approx(rate)
    assert arriving.metrics["tpot_ms"].value == pytest.approx(
        closed.metrics["tpot_ms"].value, rel=0.02
    )


def test_no_cheaper_choice_is_hidden():
    found = planned()
    assert [one.usd_per_hour for one in found.best] == sorted(o.usd_per_hour for o in found.best)
    for name, usd in PRICES.items():
        alone = planned({name: usd})
        own = [one.usd_per_hour for one in alone.best]
        assert not own or found.best[0].usd_per_hour <= own[0]
    first = found.best[0]
    assert first.metrics["tpot_ms"].high <= ASKED["tpot_ms"]


def test_one_instance_less_misses_a_limit_or_the_rate():
    first = planned().best[0]
    assert first.replicas > 1
    share = ASKED["requests_per_s"] / (first.replicas - 1)
    lengths = {name: ASKED[name] for name in ("input_tokens", "output_tokens")}
    found = forerun.llm("qwen2.5-0.5b", device=first.device, requests_per_s=share, **lengths)
    capacity = found.content.deployment.capacity
    assert found.tpot_ms.high > ASKED["tpot_ms"] or capacity.low < share


def test_a_price_that_halves_is_half_of_the_cost():
    first = planned().best[0]
    halved = {n: usd / 2.0 for n, usd in PRICES.items() if CATALOG.get(n).name == first.device}
    cheaper = PRICES | halved
    again = planned(cheaper).best[0]
    assert again.device == first.device
    assert again.usd_per_hour == pytest.approx(first.usd_per_hour / 2.0)


def test_without_prices_options_are_ranked_by_virtual_processors_and_it_is_said():
    found = forerun.llm_plan("qwen2.5-0.5b", devices=["aws/m7i.*"], **ASKED, kept=20).content
    assert found.objective == "vcpus"
    assert any("no price is given" in line for line in found.chosen)
    costs = [one.devices * virtual_processors(CATALOG.get(one.device)) for one in found.best]
    assert len(costs) > 3
    assert costs[:-1] == sorted(costs[:-1])  # the last may be the rival of the first
    assert all(one.usd_per_hour is None for one in found.best)


def test_types_without_a_price_among_others_are_named():
    devices = ["aws/m7i.4xlarge", {"device": "aws/m8g.4xlarge", "usd_per_device_hour": 0.7}]
    found = forerun.llm_plan("qwen2.5-0.5b", devices=devices, **ASKED).content
    assert {one.device for one in found.best} == {"aws-m8g-4xlarge"}
    assert any("no price" in line and "aws-m7i-4xlarge" in line for line in found.not_searched)


def test_gpus_and_processors_are_in_one_plan():
    devices = [{"device": "l4", "usd_per_device_hour": 9.0}]
    devices += [{"device": "aws/m7i.4xlarge", "usd_per_device_hour": 0.8}]
    found = forerun.llm_plan("qwen2.5-0.5b", devices=devices, **ASKED).content
    assert [one.device for one in found.best[:2]] == ["aws-m7i-4xlarge", "l4"]
    assert found.commands["vllm"].startswith("vllm serve")


def test_what_does_not_fit_the_memory_of_an_instance_is_left_out():
    found = planned({"aws/m7i.large": 0.1, "aws/m7i.16xlarge": 3.2}, model="llama-3.1-8b")
    assert found.failed["memory"] == 1


def test_a_file_of_prices_is_read_and_its_faults_are_one_line(tmp_path, capsys):
    table = tmp_path / "prices.csv"
    table.write_text("instance,usd\naws/m7i.4xlarge,0.8\naws/m8g.4xlarge,0.7\n")
    words = "--request-rate 1 --isl 256 --osl 128 --tpot-ms 150 --engine llama.cpp --device"
    call = ["llm", "plan", "smollm2-135m", *words.split(), str(table)]
    app(call, standalone_mode=False)
    out = capsys.readouterr().out
    assert "aws-m7i-4xlarge" in out and "aws-m8g-4xlarge" in out and "llama-server" in out
    table.write_text("aws/m7i.4xlarge,0.8\naws/m8g.4xlarge,cheap\n")
    with pytest.raises(Exception, match=r"line 2: 'aws/m8g.4xlarge,cheap'"):
        app(call, standalone_mode=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("l4,$0.8\nh100,2.5\n", "line 1: 'l4,$0.8' is not NAME,USD"),
        ("l4,cheap\n", "line 1: 'l4,cheap' is not NAME,USD"),
        ("", "is empty"),
    ],
)
def test_no_line_of_prices_is_dropped_without_a_word(home, tmp_path, text, said):
    file = tmp_path / "prices.csv"
    file.write_text(text)
    words = ("--request-rate", "1", "--isl", "256", "--osl", "128", "--device", str(file))
    with pytest.raises(forerun.InputError, match=said.replace("$", "\\$")):
        app(["llm", "plan", "qwen2.5-0.5b", *words], standalone_mode=False)


def test_a_price_of_nothing_is_refused(client):
    free = {"device": "l4", "usd_per_device_hour": 0}
    content = {"model": "llama-3.1-8b", "requests_per_s": 1, "input_tokens": 9, "output_tokens": 9}
    answer = client.post("/v1/llm/plan", json={**content, "devices": [free, "h100"]})
    assert answer.status_code == 422 and "greater than 0" in answer.json()["detail"]
