"""Commands and manifests of deployments, against the documents of engines and laws of placement."""

import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import product
from math import ceil
from pathlib import Path

import pytest
import yaml
from msgspec import convert

from forerun.data.device import DeviceCatalog
from forerun.data.device_slices import profiles_of, slice_of
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.llm_serving.plans import Stock, units_of
from forerun.service.answers.llm.serving_autoscaling import Scaling
from forerun.service.answers.llm.serving_commands import commands, drafting, gpus_of_server
from forerun.service.answers.llm.serving_manifests import GKE, KARPENTER, LABELS, PRODUCT
from forerun.service.http.kubernetes.extender import Pod
from forerun.service.http.kubernetes.nodes import requested_slice
from forerun.service.requests.commands import fields_of
from forerun.service.schemas.serving import LlmEstimateIn
from tests.service.http.kubernetes.requests import device_of

PUBLISHED = json.loads((Path(__file__).parent / "published_engine_arguments.json").read_text())
CATALOG = DeviceCatalog.load()
H200 = CATALOG.get("h200-sxm-141gb")
SETTINGS = [
    Engine(),
    Engine(max_sequences=64, max_batched_tokens=4096, memory_share=0.85),
    Engine(chunked_prefill=False, graphs=False),
]
LLAMA, DEEPSEEK = "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3"
ENGINES = ("vllm", "sglang")
LOAD = RequestLoad(1000.0, 200.0, None, 5.0)
WIDE = Parallelism(1, 1, 16, 16)
POOLS = [
    (Pool(Parallelism(4), 2), Pool(Parallelism(2))),
    (Pool(Parallelism(8)), Pool(Parallelism(4), 3)),
    (Pool(WIDE), Pool(Parallelism(1, 1, 8, 8), 2)),
    (Pool(Parallelism(1), 3), Pool(Parallelism(1), 5)),
]


def deployed(engine="vllm", pool=None, prefill=None, model=DEEPSEEK):
    own = named_language_model(model)
    return LlmDeployment(own, LOAD, Engine(engine), pool or Pool(), prefill)


def lines(text):
    """Settings of the environment and words of each command."""
    for line in text.splitlines():
        if not line.startswith("#"):
            words = shlex.split(line)
            count = next(n for n, word in enumerate(words) if "=" not in word)
            yield dict(word.split("=", 1) for word in words[:count]), words[count:]


def option(words, name):
    return words[words.index(f"--{name}") + 1]


def published(engine, *kinds):
    names = {name for kind in ("", *kinds) for name in PUBLISHED[f"{engine}{kind}"]["names"]}
    return lambda text: set(re.findall(r"--([\w-]+)", text)) <= names


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", [LLAMA, DEEPSEEK])
def test_commands_are_read_as_what_they_were_written_from(engine, model):
    """By the parser of pasted commands, on each server: degrees, scheduler, memory, graphs."""
    own, servers = named_language_model(model), Counter()
    for settings in (replace(one, name=engine) for one in SETTINGS):
        for unit in units_of(own, LOAD, settings, Stock(H200)):
            deployment = unit.query.deployment
            text = commands(deployment, H200, model, "", 3)[engine]
            assert published(engine, " on several servers")(text)
            written = list(lines(text))
            servers[len(written)] += 1
            for _, words in written:
                read, notes, _ = fields_of(shlex.join(words))
                content = {**read, "device": "h200", "input_tokens": 1000, "output_tokens": 200}
                found = LlmEstimateIn.model_validate({**content, "requests_per_s": 5})
                assert found.parallelism.parallelism() == deployment.pool.parallelism
                assert found.engine.engine() == settings
                assert not any("not read" in note for note in notes)
    assert set(servers) == {1, 2, 4}


@pytest.mark.parametrize("split", [Parallelism(8, 4), Parallelism(4, 4), WIDE, Parallelism(8, 2)])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_replica_over_several_servers_has_a_command_for_each(engine, split):
    """Each has its rank, all meet at the first, and one of vLLM answers requests."""
    text = commands(deployed(engine, Pool(split)), H200, DEEPSEEK, "", 1)[engine]
    written = [words for _, words in lines(text)]
    assert len(written) == split.devices // 8
    if engine == "vllm" and split.attention_data > 1:
        assert [option(w, "data-parallel-size-local") for w in written] == ["8", "8"]
        assert option(written[1], "data-parallel-start-rank") == "8"
        assert {option(w, "data-parallel-address") for w in written} == {"$SERVER_0"}
    else:
        ranks = [option(words, "node-rank") for words in written]
        assert ranks == [str(number) for number in range(len(written))]
        assert {option(words, "nnodes") for words in written} == {str(len(written))}
        first = {"vllm": "master-addr", "sglang": "dist-init-addr"}[engine]
        assert {option(words, first).partition(":")[0] for words in written} == {"$SERVER_0"}
    if engine == "vllm":
        assert [("--headless" in words) for words in written] == [False] + [True] * (
            len(written) - 1
        )


@pytest.mark.parametrize(("engine", "pools"), [*product(ENGINES, POOLS)])
def test_pools_that_are_apart_share_servers_without_sharing_gpus_and_have_one_router(engine, pools):
    decode, prefill = pools
    text = commands(deployed(engine, decode, prefill), H200, DEEPSEEK, "", 1)[engine]
    assert published(engine, " on several servers", " apart")(text)
    *written, (_, router) = lines(text)
    names = {name for settings, _ in written for name in settings}
    assert names <= set(PUBLISHED[f"{engine} apart"]["settings"])
    used, ports, counts = Counter(), set(), Counter()
    places = [int(number) for number in re.findall(r"(?m)^# server (\d+), ", text)]
    for server, (settings, words) in zip(places, written, strict=True):
        gpus = settings.get("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7").split(",")
        used.update((server, gpu) for gpu in gpus)
        assert (server, option(words, "port")) not in ports
        ports.add((server, option(words, "port")))
        role = option(
            words, {"vllm": "kv-transfer-config", "sglang": "disaggregation-mode"}[engine]
        )
        counts["prefill" if "prefill" in role or "producer" in role else "decode"] += len(gpus)
    assert max(used.values()) == 1
    assert counts == {"prefill": prefill.devices, "decode": decode.devices}
    assert {f"$SERVER_{number}" for number in places} >= set(
        re.findall(r"\$SERVER_\d", str(router))
    )
    if engine == "vllm":
        start, end = router.index("--prefiller-hosts"), router.index("--prefiller-ports")
        assert end - start - 1 == prefill.workers
        start = router.index("--decoder-hosts")
        assert router.index("--decoder-ports") - start - 1 == decode.workers
    else:
        assert router.count("--prefill") == prefill.workers
        assert router.count("--decode") == decode.workers


def test_servers_of_racks_have_four_gpus_and_a_rank_larger_than_one_has_no_command():
    """GB200 NVL72 joins 72 GPUs, of which a compute tray has four."""
    rack = CATALOG.get("gb200-186gb")
    assert rack.node_devices == 72 and gpus_of_server(rack) == 4 and gpus_of_server(H200) == 8
    text = commands(deployed(pool=Pool(Parallelism(8))), rack, DEEPSEEK, "", 1)
    assert len([*lines(text["vllm"])]) == 2
    assert "kubernetes" not in text
    ranks = Pool(Parallelism(8, 1, 2, 16))
    assert commands(deployed(pool=ranks), rack, DEEPSEEK, "", 1) == {}
    assert commands(deployed("trtllm"), H200, DEEPSEEK, "", 1) == {}


def test_a_format_that_engines_convert_to_is_an_option_and_others_are_checkpoints():
    unit = next(units_of(named_language_model(LLAMA), LOAD, Engine(), Stock(H200)))
    written = [
        commands(unit.query.deployment, H200, LLAMA, weights, 1)["vllm"]
        for weights in ("fp8", "nvfp4")
    ]
    formats = [fields_of(one)[0]["model"] for one in written]
    assert [one["quantization"] for one in formats] == ["fp8", "nvfp4"]
    assert formats[0]["name"] == "meta-llama/Meta-Llama-3.1-8B"


@pytest.mark.parametrize(("engine", "name"), [*product(ENGINES, ("h200-sxm-141gb", "mi300x"))])
def test_manifests_run_the_command_on_nodes_with_the_device(engine, name):
    """Without a token of their own, with shared memory, and with time to load weights."""
    device = CATALOG.get(name)
    written = commands(deployed(engine, Pool(Parallelism(8))), device, DEEPSEEK, "", 3, 8192)
    words = shlex.split(written[engine])
    deployment, service = (yaml.safe_load(written[kind]) for kind in ("kubernetes", "kserve"))
    own = deployment["spec"]
    assert own["replicas"] == 3
    assert own["selector"]["matchLabels"] == own["template"]["metadata"]["labels"]
    predictor = service["spec"]["predictor"]
    assert predictor["minReplicas"] == predictor["maxReplicas"] == 3
    for pod in (own["template"]["spec"], predictor):
        (container,) = pod["containers"]
        assert container["command"][: len(words)] == words
        assert container["resources"]["limits"] == {f"{device.vendor}.com/gpu": "8"}
        assert ("rocm" in container["image"]) == (device.vendor == "amd")
        (token,) = container["env"]
        assert token["valueFrom"]["secretKeyRef"].keys() == {"name", "key", "optional"}
        start = container["startupProbe"]
        assert start["failureThreshold"] * start["periodSeconds"] >= 1800
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            port = container["ports"][0]["containerPort"]
            assert container[probe]["httpGet"] == {"path": "/health", "port": port}
        (volume,) = pod["volumes"]
        assert volume["emptyDir"] == {"medium": "Memory"}
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/dev/shm"}]
        assert device_of(pod["nodeSelector"]) == device


def test_labels_of_nodes_name_the_device_that_they_select():
    """As the scheduler's extender reads them; a cloud's label stands below as a comment."""
    for name, own in LABELS.items():
        device = CATALOG.get(name)
        for label, value in zip((PRODUCT[device.vendor], GKE, KARPENTER), own, strict=True):
            if value:
                assert device_of({label: value}) == device, value
    text = commands(deployed(pool=Pool(Parallelism(8))), H200, DEEPSEEK, "", 1)["kubernetes"]
    assert f"        # or {GKE}: nvidia-h200-141gb\n" in text
    unknown = CATALOG.get("a10")
    text = commands(deployed(model=LLAMA), unknown, LLAMA, "", 1)["kubernetes"]
    assert "nodeSelector" not in text


def test_a_slice_is_selected_by_the_label_of_its_gpu_and_the_resource_of_its_profile():
    """With the strategy mixed; the label of the strategy single is a comment."""
    for name, label in (("a100-sxm-80gb", "NVIDIA-A100-SXM4-80GB"), ("h200", "NVIDIA-H200")):
        device = slice_of(CATALOG.get(name), profile := profiles_of(CATALOG.get(name))[0])
        text = commands(deployed(model=LLAMA), device, LLAMA, "", 1)["kubernetes"]
        pod = yaml.safe_load(text)["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"nvidia.com/gpu.product": label}
        limits = pod["containers"][0]["resources"]["limits"]
        assert limits == {f"nvidia.com/mig-{profile}": "1"}
        single = f"{label}-MIG-{profile}"
        assert f"# or nvidia.com/gpu.product: {single}, and nvidia.com/gpu (strategy" in text
        assert device_of({"nvidia.com/gpu.product": single}) == device


@pytest.mark.parametrize(
    ("pool", "prefill"),
    [*POOLS, (Pool(Parallelism(8)), None), (Pool(Parallelism(8, 4)), None), (Pool(WIDE), None)],
)
def test_an_llm_inference_service_has_the_published_fields_and_the_gpus_of_the_plan(pool, prefill):
    deployment, known = deployed(pool=pool, prefill=prefill), PUBLISHED["LLMInferenceService"]
    text = commands(deployment, H200, DEEPSEEK, "", 2)["llmisvc"]
    content = yaml.safe_load(text)
    assert content["apiVersion"] == "serving.kserve.io/v1alpha1"
    assert content["kind"] == "LLMInferenceService"
    spec = content["spec"]
    assert set(spec) <= set(known["spec"])
    assert set(spec["model"]) == set(known["model"])
    assert set(spec["router"]) == set(known["router"])
    assert ("prefill" in spec) == (prefill is not None)
    for own, workload in ((pool, spec), (prefill, spec.get("prefill"))):
        if own is None:
            continue
        split, degrees = own.parallelism, workload.get("parallelism", {})
        assert set(degrees) <= set(known["parallelism"])
        assert own is pool or set(workload) <= set(known["workload"])
        pods = degrees.get("pipeline", degrees.get("data", 1) // degrees.get("dataLocal", 1))
        assert ("worker" in workload) == (pods > 1)
        (container,) = workload["template"]["containers"]
        gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
        assert gpus <= 8
        assert workload["replicas"] * pods * gpus == 2 * own.devices
        variables = {one["name"]: one for one in container["env"]}
        arguments = variables["VLLM_ADDITIONAL_ARGS"]["value"]
        assert option(shlex.split(arguments), "tensor-parallel-size") == str(split.tensor)
        assert ("NixlConnector" in arguments) == (prefill is not None)
        assert ("VLLM_NIXL_SIDE_CHANNEL_HOST" in variables) == (prefill is not None)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["mtp", "eagle", "eagle3", "ngram"])
def test_drafts_are_options_of_the_engine_that_it_documents(engine, method):
    """Read back as the same number of tokens."""
    model = "org/head" if method.startswith("eagle") else None
    drafts = drafting(engine, method, 3, model)
    text = commands(deployed(engine), H200, DEEPSEEK, "", 1, None, drafts)[engine]
    assert published(engine, " drafts")(text) and ("org/head" in text) == bool(model)
    known = PUBLISHED[f"{engine} drafts"]
    ((_, words),) = lines(text)
    if engine == "vllm":
        config = json.loads(option(words, "speculative-config"))
        assert config.keys() <= set(known["keys"]) and config["method"] in known["methods"]
    else:
        assert option(words, "speculative-algorithm") in known["methods"]
    assert fields_of(text)[0]["engine"]["draft_tokens"] == 3


@pytest.mark.parametrize(("pool", "prefill"), [*POOLS[:2], (Pool(Parallelism(4)), None)])
def test_values_of_the_chart_have_its_keys_and_the_gpus_of_the_plan(pool, prefill):
    known = PUBLISHED["llm-d-modelservice"]
    text = commands(deployed(pool=pool, prefill=prefill), H200, DEEPSEEK, "", 2)["helm"]
    values = yaml.safe_load(text)
    assert set(values) <= set(known["values"])
    for name in ("modelArtifacts", "accelerator", "routing"):
        assert set(values[name]) <= set(known[name])
    proxy = values["routing"]["proxy"]
    assert set(proxy) <= set(known["proxy"]) and proxy["enabled"] == (prefill is not None)
    assert values["prefill"]["create"] == (prefill is not None)
    ports = {"decode": proxy["targetPort"] if prefill else 8000, "prefill": 8000}
    for own, role in ((pool, "decode"), (prefill, "prefill")):
        if own is None:
            continue
        workload = values[role]
        assert set(workload) <= set(known["workload"])
        assert set(workload["parallelism"]) == set(known["parallelism"])
        (container,) = workload["containers"]
        assert set(container) <= set(known["container"])
        gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
        split = workload["parallelism"]
        assert gpus == split["tensor"] * split["dataLocal"]
        assert workload["replicas"] * gpus == 2 * own.devices
        words = container["command"]
        assert option(words, "port") == str(ports[role])
        assert option(words, "tensor-parallel-size") == str(split["tensor"])
        assert ("--kv-transfer-config" in words) == (prefill is not None)


@pytest.mark.parametrize("profile", ["1g.20gb", "3g.40gb"])
def test_pods_on_a_slice_ask_for_the_resource_that_the_extender_reads_as_it(profile):
    whole = CATALOG.get("h100-sxm-80gb")
    found = commands(deployed(model=LLAMA), slice_of(whole, profile), LLAMA, "", 1)
    values = yaml.safe_load(found["helm"])
    assert values["accelerator"]["resources"] == {"nvidia": f"nvidia.com/mig-{profile}"}
    (container,) = values["decode"]["containers"]
    (own,) = yaml.safe_load(found["kubernetes"])["spec"]["template"]["spec"]["containers"]
    for one in (container, own):
        assert one["resources"]["limits"] == {f"nvidia.com/mig-{profile}": "1"}
        asked = convert({"spec": {"containers": [one]}, "metadata": {}}, Pod)
        assert requested_slice(asked) == profile


def test_the_chart_is_not_written_where_a_worker_takes_several_servers():
    text = commands(deployed(pool=Pool(Parallelism(8, 4))), H200, DEEPSEEK, "", 1)
    assert "helm" not in text and "llmisvc" in text


SCALING = Scaling(12.5, RequestLoad(1000.0, 200.0, None, 40.0), 64, 300.0)


def test_rules_are_over_published_metrics_and_the_autoscaler_over_the_rules():
    found = commands(deployed(), H200, DEEPSEEK, "", 4, scaling=SCALING)
    used = set(re.findall(r"vllm:\w+", found["prometheus"]))
    assert used == set(PUBLISHED["vllm metrics"]["names"])
    recorded = {one["record"] for one in yaml.safe_load(found["prometheus"])["groups"][0]["rules"]}
    scaler = yaml.safe_load(found["keda"])["spec"]
    (trigger,) = scaler["triggers"]
    assert set(trigger["metadata"]) <= set(PUBLISHED["ScaledObject"]["metadata"])
    assert trigger["metadata"]["query"].partition("{")[0] in recorded
    target = yaml.safe_load(found["kubernetes"])["metadata"]["name"]
    assert scaler["scaleTargetRef"]["name"] == target and scaler["maxReplicaCount"] == 64


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("many", [1.0, 2.5], ids=["lengths of the plan", "longer answers"])
def test_wanted_replicas_rise_with_the_rate_and_the_tokens(tmp_path, many):
    """By promtool, which evaluates the rules: as many as the plan has at its rate, at least one."""
    (tmp_path / "rules.yaml").write_text(commands(
        deployed(), H200, DEEPSEEK, "", 4, scaling=SCALING)["prometheus"])  # fmt: skip
    label, load = f'{{model_name="{DEEPSEEK}"}}', SCALING.load
    steps = (0.0, 0.1, 12.5, 12.6, 40.0, 50.0, 400.0)
    tests = []
    for rate in steps:
        counters = {
            "vllm:request_success_total": rate,
            "vllm:prompt_tokens_total": rate * load.input_tokens,
            "vllm:generation_tokens_total": rate * load.output_tokens * many,
            **dict.fromkeys(("vllm:num_requests_running", "vllm:num_requests_waiting"), 0.0),
        }
        series = [
            {"series": n + label, "values": f"0+{60 * own:.9g}x20"} for n, own in counters.items()
        ]
        wanted = max(ceil(many * rate / 12.5), 1)
        sample = {"labels": f"forerun:wanted_replicas{label}", "value": wanted}
        query = {"expr": "forerun:wanted_replicas", "eval_time": "15m", "exp_samples": [sample]}
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": [query]})
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content))
    for words in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
