"""Tiny tables of language models, made up: grids of shapes whose times follow from their size."""

from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd

from tests.contracts.tiny_published import packaged_files

ENGINE = {"framework": ["sglang"], "version": ["0.5.10"], "kernel_source": ["triton"]}
SYSTEMS = ["a100_sxm", "h100_sxm", "h200_sxm"]
HEADS = {"num_heads": [8, 16, 32], "num_key_value_heads": [8], "head_dim": [128]}
TYPES = {"attn_dtype": ["bfloat16"], "kv_cache_dtype": ["fp8"]}
COUNTS = ("m", "n", "k", "isl", "step", "batch_size", *HEADS, "num_tokens", "hidden_size")
COUNTS += ("inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_gpus")
COUNTS += ("message_size_elems",)


def grid(**values: list[object]) -> pd.DataFrame:
    """One row for each combination of the values."""
    return pd.DataFrame(list(product(*values.values())), columns=list(values))


def _timed(frame: pd.DataFrame, power: bool = False) -> pd.DataFrame:
    frame = frame.astype({n: "int32" for n in COUNTS if n in frame})
    frame["latency_ms"] = np.linspace(0.01, 0.02, len(frame), dtype=np.float32)
    if power:
        frame["power_w"] = np.full(len(frame), 300.0, dtype=np.float32)
        frame["power_limit_w"] = np.full(len(frame), 700.0, dtype=np.float32)
    return frame


def aiconfigurator() -> dict[str, bytes]:
    """All ten tables; products are enough for a support set on each system."""
    origin = {"system": SYSTEMS, **ENGINE}
    gemm = grid(
        **origin, gemm_dtype=["fp8"], m=[1, 2, 4, 8, 16], n=[64, 128, 256, 512], k=[64, 96, 128]
    )
    attention = grid(
        **origin, batch_size=[1], isl=[1], step=[1, 3], **HEADS, window_size=[0.0], **TYPES
    )
    sizes = {
        "hidden_size": [2048, 4096, 6144],
        "inter_size": [768],
        "topk": [8],
        "num_experts": [64],
    }
    spread = {"moe_tp_size": [1], "moe_ep_size": [1], "distribution": ["balanced"]}
    moe = grid(**origin, moe_dtype=["fp8"], num_tokens=[1, 2], **sizes, **spread)
    message = {"num_gpus": [2, 4, 8], "message_size_elems": [256, 512]}
    tables = {
        "nccl": _timed(grid(**origin, op_name=["all_reduce"], nccl_dtype=["half"], **message)),
        "custom_allreduce": _timed(
            grid(
                **origin,
                backend=[None],
                implementation=["trtllm"],
                allreduce_dtype=["bfloat16"],
                **message,
            )
        ),
    }
    for name, frame in (
        ("gemm", gemm),
        ("moe", moe),
        ("context_attention", attention),
        ("generation_attention", attention),
    ):
        tables[name], tables[f"power_{name}"] = _timed(frame), _timed(frame, power=True)
    return packaged_files(**tables)


def serving_run(place: int, **changes: object) -> dict[str, object]:
    """A row of `e2e_serving`: an aggregated run on four GPUs by default."""
    sizes = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    row: dict[str, object] = {
        **{"id": f"run_{place}", "backend": "vllm", "backend_version": "0.19.0", "mode": "agg"},
        **{"model_path": "Qwen/Qwen3-32B", "system": "h100_sxm", "precision": "fp8"},
        **{"isl": 1024, "osl": 1024, "gemm_quant_mode": "fp8", "moe_quant_mode": None},
        **{"batch_size": np.nan, "concurrency": 8.0, "source": "campaign one"},
        **dict(zip(sizes, (4.0, 1.0, 1.0, 1.0, 1.0), strict=True)),
        **{
            f"{pool}_{n}": np.nan
            for pool in ("prefill", "decode")
            for n in ("batch_size", "num_workers")
        },
        **{f"{pool}_{n}": np.nan for pool in ("prefill", "decode") for n in sizes},
        **{"ttft_ms": 100.0 + 7 * place, "tpot_ms": 10.0 + place},
    }
    return {**row, **changes}


def serving_runs(*rows: Mapping[str, object]) -> pd.DataFrame:
    """A table `e2e_serving` of these rows."""
    frame = pd.DataFrame(list(rows))
    texts = [n for n in frame if frame[n].map(lambda value: isinstance(value, str)).any()]
    texts += ["moe_quant_mode"]
    numbers = [n for n in frame if n not in (*texts, "isl", "osl")]
    return frame.astype({**dict.fromkeys(texts, "str"), **dict.fromkeys(numbers, "float64")})


def aiconfigurator_serving() -> dict[str, bytes]:
    """Sixteen aggregated and six disaggregated runs of two models on two systems."""
    rows = []
    for system, model, tp, concurrency in product(
        ("h100_sxm", "b200_sxm"), ("Qwen/Qwen3-32B", "zhipuai/GLM-5"), (2.0, 4.0), (8.0, 64.0)
    ):
        facts = {"system": system, "model_path": model, "tp_size": tp, "concurrency": concurrency}
        rows.append(serving_run(len(rows), **facts))
    for system, model in product(
        ("h100_sxm", "b200_sxm"), ("Qwen/Qwen3-32B", "zhipuai/GLM-5", "x/Y")
    ):
        pools = {f"{pool}_{n}_size": 2.0 for pool in ("prefill", "decode") for n in ("tp", "pp")}
        facts = {"mode": "disagg", "tp_size": np.nan, "system": system, "model_path": model}
        rows.append(serving_run(len(rows), **facts, **pools))
    specs = {"system": ["h100_sxm", "b200_sxm"]}
    whole = ("mem_bw_Bps", "mem_capacity_B", "bf16_dense_flops", "int8_dense_ops", "power_w")
    whole += ("gpus_per_node", "intra_node_bw_Bps", "inter_node_bw_Bps", "pcie_bw_Bps")
    specs |= {name: [1000, 2000] for name in whole}
    specs |= {n: [1.0, np.nan] for n in ("fp8_dense_flops", "fp4_dense_flops", "sm_version")}
    return packaged_files(e2e_serving=serving_runs(*rows), gpu_specs=pd.DataFrame(specs))


def frontier_sim() -> dict[str, bytes]:
    """Three tables of two devices."""
    where = {"device": ["a100", "h800"], "model": ["some/model"], "table": ["kernel_only"]}
    facts = {"profiling_precision": ["BF16"], "quant_signature": [None], "measurement_type": [None]}
    common = {**where, "op": ["some_op"], **facts, "num_tensor_parallel_workers": [1, 2]}
    lists = ("seq_lens", "prefill_seq_lens", "prefill_kv_cache_sizes", "decode_kv_cache_sizes")
    attention = {
        "n_embd": [2048, 4096],
        "n_q_head": [16, 32],
        "n_kv_head": [8],
        "max_model_len": [4096],
    }
    attention |= {"batch_size": [1, 2], "prefill_chunk_size": [0], "kv_cache_size": [32, 64]}
    attention |= {n: [None] for n in (*lists, "is_mixed_batch", "mode")}
    attention |= {n: [np.nan] for n in ("total_tokens", "chunk_start_token", "chunk_end_token")}
    linear = {
        "n_head": [16, 32],
        "n_kv_head": [8],
        "n_embd": [2048, 4096],
        "n_expanded_embd": [512],
    }
    linear |= {"vocab_size": [32000], "num_tokens": [1, 2], "attn_output_gate": ["False"]}
    linear |= {n: [np.nan] for n in ("share_expert_dim", "share_q_dim")}
    moe = {
        "num_experts": [8, 64],
        "router_topk": [2],
        "hidden_dim": [2048, 4096],
        "num_tokens": [1, 2],
    }
    moe |= {
        "expert_hidden_dim": [512],
        "expert_parallel_size": [1],
        "load_distribution": ["uniform"],
    }
    moe |= {n: [np.nan] for n in ("load_imbalance_cv", "max_load_ratio", "seed")}
    moe |= {n: [None] for n in ("routing_runtime_path", "gating_runtime_context_impl")}
    tables = {}
    for name, shape in (("attention", attention), ("linear", linear), ("moe", moe)):
        frame = grid(**common, **shape)
        frame["median_ms"] = np.linspace(0.01, 0.02, len(frame), dtype=np.float32)
        tables[name] = frame.assign(std_ms=np.float32(0.001))
    return packaged_files(**tables)


def llmservingsim() -> dict[str, bytes]:
    """Six tables of two devices."""
    where = {"tp": [1, 2], "model": ["some/model", "other/model"], "device": ["A6000", "H100"]}
    batch = {"prefill_chunk": [0, 16], "kv_prefill": [0], "n_decode": [1, 2], "kv_decode": [16]}
    cache = {
        "batch_size": [1, 2],
        "prefill_chunk_size": [0],
        "kv_cache_size": [32],
        "is_prefill": [False],
    }
    shapes = {
        "attention": batch,
        "dense": {"layer": ["o_proj", "rope"], "tokens": [1, 2]},
        "per_sequence": {"layer": ["lm_head"], "sequences": [1, 2]},
        "moe": {"tokens": [1, 2], "activated_experts": [8, 16]},
        "v0_attention": cache,
        "v0_layers": {"layer_name": ["attn", "rope"], "input": [1, 2]},
    }
    tables = {}
    for name, shape in shapes.items():
        frame = grid(**where, **shape)
        time = np.linspace(10.0, 20.0, len(frame), dtype=np.float32)
        if name == "v0_attention":
            frame["time_stats.attn_prefill.median"] = np.full(len(frame), np.nan, dtype=np.float32)
            frame["time_stats.attn_decode.median"] = time
        else:
            frame["latency_ns" if name == "v0_layers" else "time_us"] = time
        tables[name] = frame
    return packaged_files(**tables)


def llm_inference_bench() -> dict[str, bytes]:
    """Three accelerators, one of them under two names; throughput of one request in llama.cpp."""
    frame = grid(
        hardware=["Intel PVC GPU", "Intel Max 1550", "Nvidia H100 GPU", "AMD MI250 GPU"],
        num_devices=[1, 2],
        framework=["vLLM", "llama.cpp"],
        model=["some/model", "other/model"],
        in_out_len=[128, 256],
        batch_size=[1, 16],
    )
    frame["latency_s"] = np.linspace(1.0, 2.0, len(frame))
    counted = frame["batch_size"].where(frame["framework"] == "vLLM", 1)
    frame["throughput_tok_s"] = 2.0 * frame["in_out_len"] * counted / frame["latency_s"]
    return packaged_files(results=frame)


def llm_cloud_runs() -> dict[str, bytes]:
    """Two processors and two GPUs with llama.cpp, and a server on the processors."""
    machines = pd.DataFrame(
        {
            "instance": [f"cloud/{name}" for name in ("a", "b", "gpu")],
            "processor": ["Zen 4", "Ice Lake", "Zen 4"],
            "cores": [8, 16, 4],
            "memory_nodes": [1, 2, 1],
            "memory_gib": [32.0, 64.0, 16.0],
            "nominal_ghz": [2.6, 2.8, 2.6],
            "read_gbs": [40.0, 90.0, 30.0],
        }
    )
    tests = {"model": ["gemma-2b", "llama-7b"], "kind": ["prompt", "generation"]}
    bench = grid(instance=["cloud/a", "cloud/b", "cloud/gpu"], **tests, tokens=[128, 512])
    where = machines.set_index("instance").loc[bench["instance"]].reset_index()
    on_gpu = (bench["instance"] == "cloud/gpu").to_numpy()
    bench["processor"], bench["threads"] = where["processor"], where["cores"]
    bench["gpu"] = pd.Series(np.where(on_gpu, "L4", None), dtype="object")
    bench["tokens_per_s"] = np.linspace(10.0, 100.0, len(bench))
    bench["cv"] = 0.01
    served = grid(
        instance=["cloud/a", "cloud/b"],
        model=["google/gemma-2-2b-it", "Qwen/Qwen2.5-0.5B-Instruct"],
        load=["one_request", "saturation"],
        prompt_tokens=[256, 1024],
    )
    served["processor"] = served["instance"].map({"cloud/a": "Zen 4", "cloud/b": "Ice Lake"})
    served["dtype"], served["output_tokens"], served["max_sequences"] = "bfloat16", 128, 64
    served["mean_concurrency"] = np.where(served["load"] == "saturation", 16.0, 1.0)
    served["requests_per_s"] = 0.5
    served["ttft_ms"] = np.linspace(200.0, 900.0, len(served))
    served["tpot_ms"] = np.linspace(20.0, 90.0, len(served))
    return packaged_files(llama_bench=bench, vllm_cpu=served, machines=machines)


def splitwise() -> dict[str, bytes]:
    """Two models on two kinds of hardware; power is measured on one."""
    frame = grid(
        model=["llama2-70b", "bloom-176b"],
        hardware=["a100-80gb", "h100-80gb"],
        tensor_parallel=[4, 8],
        prompt_size=[128, 512],
        token_size=[128],
        batch_size=[1, 2],
    )
    time = np.linspace(10.0, 20.0, len(frame))
    for place, name in enumerate(("prompt_time_ms", "token_time_ms", "e2e_time_ms")):
        frame[name] = time * (place + 1)
    share = np.where(frame["hardware"] == "a100-80gb", 0.8, np.nan)
    return packaged_files(
        perf_model=frame.assign(peak_power_frac_tdp=share, avg_power_frac_tdp=share)
    )


def apex() -> dict[str, bytes]:
    """Runs of two deployments, products of one GPU, collectives of two."""
    runs = grid(
        engine=["vllm"],
        model=["some/model"],
        dtype=["fp16/bf16"],
        layout=["8TP", "4DP2TP"],
        replica=[np.nan],
        trace=["lmsys_025", "creation_025"],
    )
    runs = runs.assign(arrival_rate_rps=0.25, prompt_tokens=1e5, ttft_s=0.5, tpot_s=0.03)
    runs["output_tokens"] = np.linspace(1e5, 2e5, len(runs))
    runs["total_latency_s"] = np.linspace(1e3, 2e3, len(runs))
    gemm = grid(gpu=["V100-PCIE-16GB"], dtype=["half"], m=[1, 2], k=[64, 128, 256], n=[64, 128])
    comm = grid(gpu=["V100-PCIE-16GB", "H100-SXM-80GB"], num_nodes=[1], num_gpus_per_node=[2, 4, 8])
    comm = comm.merge(grid(dtype=["half"], size_kb=[0, 1], collective=["all_reduce"]), how="cross")
    comm["time_us"] = np.linspace(5.0, 9.0, len(comm))
    return packaged_files(e2e_h100x8=runs, gemm_v100=gemm.assign(time_us=14), comm=comm)


def llm_traces() -> dict[str, bytes]:
    """Four traces of three requests."""
    lengths = pd.DataFrame({"num_prefill_tokens": [100, 200, 300], "num_decode_tokens": [5, 6, 7]})
    azure = lengths.assign(arrived_at=[0.0, 0.5, 2.0])
    apex_traces = pd.DataFrame({"prompt_tokens": [1, 2, 3], "output_tokens": [4, 5, 6]})
    apex_traces["arrival_offset_ns"] = [10, 20, 30]
    return packaged_files(
        splitwise_code=azure,
        splitwise_conv=azure,
        arxiv_summarization=lengths.assign(num_total_tokens=[105, 206, 307], pd_ratio=20.0),
        apex_traces=apex_traces.assign(tokenizer_family="llama", trace="lmsys_025"),
    )


def llmd_traces() -> dict[str, bytes]:
    """A trace of three requests, of each of which one time was measured."""
    counts = dict.fromkeys(("input_tokens", "waiting", "running", "prefill_tokens_in_flight"), 7)
    shares = {"kv_cache_share": 0.5, "prefix_share": 0.0}
    rows = pd.DataFrame({"row": [0, 1, 2], "kind": ["ttft", "tpot", "ttft"]})
    measured = rows.assign(trace="one", value_ms=[90.0, 20.0, 95.0])
    return packaged_files(requests=measured.assign(**counts, **shares))


def vidur() -> dict[str, str]:
    """Wide CSV files of one operator that every model has and one that only the first has."""
    dimensions = "n_head,n_kv_head,n_embd,n_expanded_embd,vocab_size,use_gated_mlp,num_tokens"
    dimensions += ",num_tensor_parallel_workers"
    found = {}
    for device, tokens in (("a100", 4), ("a40", 4), ("h100", 3)):
        for place, model in enumerate(("some/model", "other/small")):
            ops = ("emb", "add")[: 2 - place]
            stats = product(ops, ("min", "max", "mean", "median", "std"))
            lines = [",".join([*(f"time_stats.{op}.{n}" for op, n in stats), dimensions])]
            for count in range(1, tokens + 1):
                times = [f"{count / 10 + n / 100}" for _ in ops for n in range(5)]
                sizes = f"8,8,{512 << place},2048,32000,True,{32 * count},1"
                lines.append(",".join([*times, sizes]))
            found[f"data/profiling/compute/{device}/{model}/mlp.csv"] = "\n".join(lines) + "\n"
    head = [f"time_stats.send_recv.{n}" for n in ("min", "max", "mean", "median", "std")]
    facts = ("rank", "num_workers", "size", "collective", "devices_per_node")
    lines = [",".join(["", *head, *facts, "max_devices_per_node"])]
    for place, (size, workers) in enumerate(product((2048, 4096), (2, 4))):
        lines.append(f"{place // 2},0.1,0.3,0.2,0.2,0.05,0,{workers},{size},send_recv,1,8")
    for device in ("a100_dgx", "h100_dgx"):
        found[f"data/profiling/network/{device}/send_recv.csv"] = "\n".join(lines) + "\n"
    return found
