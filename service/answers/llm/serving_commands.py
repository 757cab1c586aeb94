"""A deployment as commands of its engine: on one server, on several, and with pools apart.

Options are those of `vllm serve` (docs.vllm.ai: engine arguments of 0.11; "Parallelism and
Scaling", whose `--nnodes` came with 0.12; "Data Parallel Deployment"; "NixlConnector Usage Guide")
and of `sglang.launch_server` (docs.sglang.io: server arguments of 0.5, "Multi-Node Deployment",
"PD Disaggregation"); data-parallel attention of SGLang divides `--tp-size`.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.data.device import Device
from forerun.data.language_models.deployment import Engine, LlmDeployment, Parallelism
from forerun.features.links import NODE_DEVICES
from forerun.service.answers.llm.serving_autoscaling import Scaling, rules, scaled_object
from forerun.service.answers.llm.serving_manifests import (
    RESOURCES,
    Served,
    helm,
    llmisvc,
    manifests,
)
from forerun.service.schemas.llm.answers import counted

Options = Iterator[tuple[str, object]]
LONGEST: Final[Mapping[str, str]] = {"vllm": "max-model-len", "sglang": "context-length"}
CONVERTED: Final = frozenset({"fp8"})
"""Formats to which engines convert weights as they load them; others need such a checkpoint."""
MANIFESTS: Final = ("kubernetes", "kserve", "llmisvc", "helm", "prometheus", "keda")
OF_VLLM: Final = {
    **dict.fromkeys(("llmisvc", "helm"), "its templates start vllm"),
    **dict.fromkeys(("prometheus", "keda"), "its rules are over metrics of vllm"),
}
"""Form that is of vLLM alone -> why."""
TRAY: Final = 4
"""GPUs of a server whose links join those of several servers (compute tray of a GB200 NVL72)."""
VLLM_PORT, NIXL_PORT, RPC_PORT = 8100, 5600, 13345
SGLANG_PORT, BOOTSTRAP_PORT, INIT_PORT = 30000, 8998, 20000
APART: Final = 100
"""Ports between workers of SGLang on one server, which take some after their own."""
ROUTER_PORT: Final = 8000
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path"),
}
PROXY: Final = "tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"
"""Proxy of vLLM's repository, with which its guide shows pools that are apart."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker on the servers of a replica; one that is larger than a server takes whole ones.

    Attributes:
        role: `prefill` or `decode`; empty where one pool does both.
        split: its degrees.
        server: number of its first server.
        first: its first GPU there.
        servers: how many it takes.
    """

    role: str
    split: Parallelism
    server: int = 0
    first: int = 0
    servers: int = 1

    @property
    def head(self) -> str:
        """The address of its first server."""
        return _address(self.server)

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of one of its servers."""
        return self.split.attention_data // self.servers


def commands(
    deployment: LlmDeployment,
    device: Device,
    name: str,
    weights: str,
    replicas: int,
    longest: int | None = None,
    further: Sequence[str] = (),
    scaling: Scaling | None = None,
) -> dict[str, str]:
    """The replicas of a deployment as commands of its engine, for one of them, and as manifests.

    Empty for engines without such commands, and where a data-parallel rank is larger than a server;
    without the manifests that cannot express it.

    Args:
        deployment: one replica.
        device: its devices.
        name: the model as the engine is to load it.
        weights: format of its weights; empty for its own.
        replicas: number of replicas.
        longest: maximum context length; None for that of the model.
        further: more options of the engine, as of `drafting`.
        scaling: what replicas are scaled by; None where they are not.
    """
    engine, gpus = deployment.engine.name, gpus_of_server(device)
    workers = list(_placed(deployment, gpus))
    if engine not in _OPTIONS or any(
        not own.ranks for own in workers if own.split.attention_data > 1
    ):
        return {}
    model = name if not weights or weights in CONVERTED else f"{name}-{weights}"
    options = {
        own.role: [*_options(deployment.engine, own.split, weights, longest), *further]
        for own in workers
    }
    start = [*PROGRAMS[engine], model]
    whole = len(workers) == workers[0].servers == 1
    lines = [[*start, *options[""]]] if whole else _script(engine, workers, start, options, gpus)
    found: dict[str, str] = {engine: "\n".join(map(_shell, lines))}
    served = Served(deployment, device, model, replicas, gpus)
    if device.kind == "gpu" and device.vendor in RESOURCES:
        found |= manifests(served, [*start, *options[""]]) if whole else {}
        if engine == "vllm":
            found |= llmisvc(served, options) | helm(served, start, options)
            if scaling is not None and whole:
                found["prometheus"] = rules(model, scaling)
                found["keda"] = scaled_object(served.label, model, scaling)
    return found


def drafting(engine: str, method: str, tokens: int, model: str | None) -> list[str]:
    """Options of speculative decoding by a chain of tokens; empty for engines without commands.

    They are those of vLLM's `SpeculativeConfig` and of SGLang's "Speculative Decoding", where
    layers of the model draft as EAGLE does.
    """
    if engine == "vllm":
        named = {"method": method, "num_speculative_tokens": tokens}
        config = json.dumps(named | ({"model": model} if model else {}))
        return ["--speculative-config", config]
    if engine != "sglang":
        return []
    algorithm = "EAGLE" if method == "mtp" else method.upper()
    options: dict[str, object] = {"speculative-algorithm": algorithm}
    options |= {"speculative-draft-model-path": model} if model else {}
    if method != "ngram":
        options |= {"speculative-num-steps": tokens, "speculative-eagle-topk": 1}
    # The first of these is the model's own next token.
    return _words({**options, "speculative-num-draft-tokens": tokens + 1}.items())


def not_written(
    deployment: LlmDeployment, device: Device, written: Mapping[str, str]
) -> dict[str, str]:
    """Each form that `commands` leaves out for a deployment -> why."""
    engine, gpus = deployment.engine.name, gpus_of_server(device)
    workers = list(_placed(deployment, gpus))
    servers = max(own.server + own.servers for own in workers)
    takes = f"{counted(len(workers), 'worker')} on {counted(servers, 'server')} of {gpus} GPUs"
    whys = dict.fromkeys(MANIFESTS, f"a replica has one pod there, and takes {takes}")
    whys["llmisvc"] = f"it cannot divide a replica that takes {takes}"
    if engine not in _OPTIONS:
        named = " and ".join(_OPTIONS)
        whys = dict.fromkeys(MANIFESTS, f"manifests are of {named}, and the plan is for {engine}")
    elif engine not in written:
        why = f"a data-parallel rank is larger than a server of {gpus} GPUs"
        whys = dict.fromkeys((engine, *MANIFESTS), why)
    elif device.kind != "gpu" or device.vendor not in RESOURCES:
        why = f"its pods ask for GPUs of {' or '.join(RESOURCES)}, and {device.name} is none"
        whys = dict.fromkeys(MANIFESTS, why)
    elif engine != "vllm":
        whys |= {form: f"{why}: ask for a plan for vllm" for form, why in OF_VLLM.items()}
    others = {own: f"its engine is {engine}; plan with engine {own} for that" for own in _OPTIONS}
    return {form: why for form, why in ({**others, **whys}).items() if form not in written}


def gpus_of_server(device: Device) -> int:
    """Devices of one server."""
    joined = device.node_devices or NODE_DEVICES
    return joined if joined <= NODE_DEVICES else TRAY


def _placed(deployment: LlmDeployment, gpus: int) -> Iterator[Worker]:
    """The workers of a replica, one after the other, on as few servers as that needs."""
    pools = {"": deployment.pool}
    if deployment.prefill is not None:
        pools = {"prefill": deployment.prefill, "decode": deployment.pool}
    server, first = 0, 0
    for role, split in (
        (n, own.parallelism) for n, own in pools.items() for _ in range(own.workers)
    ):
        if first and first + split.devices > gpus:
            server, first = server + 1, 0
        servers = -(-split.devices // gpus)
        yield Worker(role, split, server, first, servers)
        server, first = (server + servers, 0) if servers > 1 else (server, first + split.devices)


def _options(engine: Engine, split: Parallelism, weights: str, longest: int | None) -> list[str]:
    """Options of a worker on one server."""
    words = ["--quantization", weights] if weights in CONVERTED else []
    words += _words(_OPTIONS[engine.name](engine, split))
    return words if longest is None else [*words, f"--{LONGEST[engine.name]}", str(longest)]


def _words(options: Iterable[tuple[str, object]]) -> list[str]:
    return [
        word
        for name, value in options
        for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])
    ]


def _vllm(engine: Engine, own: Parallelism) -> Options:
    yield "tensor-parallel-size", own.tensor
    if own.pipeline > 1:
        yield "pipeline-parallel-size", own.pipeline
    if own.attention_data > 1:
        yield "data-parallel-size", own.attention_data
    if own.expert > 1:
        yield "enable-expert-parallel", True
    yield "gpu-memory-utilization", engine.memory_share
    if engine.max_sequences is not None:
        yield "max-num-seqs", engine.max_sequences
    if engine.max_batched_tokens is not None:
        yield "max-num-batched-tokens", engine.max_batched_tokens
    if not engine.chunked_prefill:
        yield "no-enable-chunked-prefill", True
    if not engine.graphs:
        yield "enforce-eager", True


def _sglang(engine: Engine, own: Parallelism) -> Options:
    yield "tp-size", own.tensor * own.attention_data
    if own.pipeline > 1:
        yield "pp-size", own.pipeline
    if own.attention_data > 1:
        yield "dp-size", own.attention_data
        yield "enable-dp-attention", True
    if own.expert > 1:
        yield "ep-size", own.expert
    yield "mem-fraction-static", engine.memory_share
    if engine.max_sequences is not None:
        yield "max-running-requests", engine.max_sequences
    if engine.max_batched_tokens is not None or not engine.chunked_prefill:
        yield "chunked-prefill-size", engine.max_batched_tokens if engine.chunked_prefill else -1
    if not engine.graphs:
        yield "disable-cuda-graph", True


_OPTIONS: Final[Mapping[str, Callable[[Engine, Parallelism], Options]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
}


def _script(
    engine: str,
    workers: Sequence[Worker],
    start: Sequence[str],
    options: Mapping[str, Sequence[str]],
    gpus: int,
) -> Iterator[list[str]]:
    """One command for each server of each worker, and that of the router of pools that are apart.

    What begins with # is a comment.
    """
    servers = max(own.server + own.servers for own in workers)
    names = ", ".join(f"SERVER_{number}" for number in range(servers))
    yield [f"# {names}: addresses of servers of {gpus} GPUs"]
    for own in workers:
        for number in range(own.servers):
            yield [f"# server {own.server + number}{own.role and f', {own.role}'}"]
            added = _words(_PLACES[engine](own, number))
            yield [*_environment(engine, own, number, gpus), *start, *options[own.role], *added]
    if workers[0].role:
        yield [f"# router, on any server, {_ROUTERS[engine][0]}; all servers need the package nixl"]
        pools = [[own for own in workers if own.role == role] for role in options]
        yield _ROUTERS[engine][1](*pools)


def _environment(engine: str, own: Worker, number: int, gpus: int) -> Iterator[str]:
    """The GPUs of a worker that shares a server, and where vLLM exchanges addresses of caches."""
    if own.split.devices < gpus:
        used = range(own.first, own.first + own.split.devices)
        yield f"CUDA_VISIBLE_DEVICES={','.join(map(str, used))}"
    if own.role and engine == "vllm":
        yield f"VLLM_NIXL_SIDE_CHANNEL_HOST={_address(own.server + number)}"
        yield f"VLLM_NIXL_SIDE_CHANNEL_PORT={NIXL_PORT + own.first}"


def _vllm_place(own: Worker, number: int) -> Options:
    """Options of one server of a worker."""
    if own.servers > 1 and own.split.attention_data > 1:
        yield "data-parallel-size-local", own.ranks
        yield "data-parallel-address", own.head
        yield "data-parallel-rpc-port", RPC_PORT
        if number:
            yield "data-parallel-start-rank", number * own.ranks
    elif own.servers > 1:
        yield "nnodes", own.servers
        yield "node-rank", number
        yield "master-addr", own.head
    if number:
        yield "headless", True
    if own.role:
        role = {"prefill": "kv_producer", "decode": "kv_consumer"}[own.role]
        yield "port", VLLM_PORT + own.first
        yield "kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})


def _sglang_place(own: Worker, number: int) -> Options:
    """Options of one server of a worker."""
    if own.servers > 1:
        yield "nnodes", own.servers
        yield "node-rank", number
        yield "dist-init-addr", f"{own.head}:{INIT_PORT}"
    if own.role:
        yield "disaggregation-mode", own.role
        yield "disaggregation-transfer-backend", "nixl"
    if own.role == "prefill":
        yield "disaggregation-bootstrap-port", BOOTSTRAP_PORT + own.first
    yield "host", "0.0.0.0"  # noqa: S104 (the router is on another server)
    yield "port", SGLANG_PORT + APART * own.first


_PLACES: Final[Mapping[str, Callable[[Worker, int], Options]]] = {
    "vllm": _vllm_place,
    "sglang": _sglang_place,
}


def _vllm_router(prompts: Sequence[Worker], answers: Sequence[Worker]) -> list[str]:
    words = ["python3", PROXY, "--port", str(ROUTER_PORT)]
    for name, pool in (("prefiller", prompts), ("decoder", answers)):
        words += [f"--{name}-hosts", *(own.head for own in pool)]
        words += [f"--{name}-ports", *(str(VLLM_PORT + own.first) for own in pool)]
    return words


def _sglang_router(prompts: Sequence[Worker], answers: Sequence[Worker]) -> list[str]:
    words = ["python3", "-m", "sglang_router.launch_router", "--pd-disaggregation"]
    for own in (*prompts, *answers):
        url = f"http://{own.head}:{SGLANG_PORT + APART * own.first}"
        bootstrap = [str(BOOTSTRAP_PORT + own.first)] if own.role == "prefill" else []
        words += [f"--{own.role}", url, *bootstrap]
    return [*words, "--host", "0.0.0.0", "--port", str(ROUTER_PORT)]  # noqa: S104


_ROUTERS: Final[
    Mapping[str, tuple[str, Callable[[Sequence[Worker], Sequence[Worker]], list[str]]]]
] = {
    "vllm": ("in a clone of vLLM", _vllm_router),
    "sglang": ("with the package sglang-router", _sglang_router),
}
"""Engine -> what its router needs, and the router of two pools."""


def _address(server: int) -> str:
    return f"$SERVER_{server}"


def _shell(words: Sequence[str]) -> str:
    """A line of a shell, in which addresses of servers are variables."""
    if words[0].startswith("#"):
        return words[0]
    return " ".join(word if "$SERVER_" in word or _is_setting(word) else shlex.quote(word)
                    for word in words)  # fmt: skip


def _is_setting(word: str) -> bool:
    return word.startswith(("CUDA_VISIBLE_DEVICES=", "VLLM_"))
