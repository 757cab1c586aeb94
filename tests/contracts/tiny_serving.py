"""Tiny upstream files of served models, in their own format, made up."""

import json
from typing import Any


def _llm(model: str, task: str, billions: float, architecture: str) -> dict[str, Any]:
    runs = []
    for gpu, speed in (("H100", 1.0), ("B200", 2.0)):
        for devices in (1, 2):
            for batch in (8, 16, 64):
                rate = 100.0 * speed * devices * batch / billions**0.5
                watts = devices * (300.0 + 2.0 * batch) * speed**0.5
                runs.append(
                    {
                        "avg_batch_size": batch - 0.5,
                        "avg_output_len": 600.0,
                        "avg_power_watts": watts,
                        "energy_per_request_joules": 600.0 * watts / rate,
                        "energy_per_token_joules": watts / rate,
                        "gpu_model": gpu,
                        "max_num_seqs": batch,
                        "num_gpus": devices,
                        "output_length_distribution": {"bins": [0.0, 1.0], "counts": [3]},
                        "output_throughput_tokens_per_sec": rate,
                        **{f"{q}_itl_ms": 9.5 for q in ("median", "p90", "p95", "p99")},
                        "parallelization": {
                            "data_parallel": 1,
                            "expert_parallel": 1,
                            "tensor_parallel": devices,
                            "notes": "",
                        },
                    }
                )
    return {
        "activated_params_billions": billions,
        "architecture": architecture,
        "configurations": runs,
        "model_id": model,
        "output_length_distribution": {"bins": [0.0, 1.0], "counts": [3]},
        "task": task,
        "total_params_billions": billions * (4 if architecture == "MoE" else 1),
        "weight_precision": "bfloat16",
    }


def _diffusion(model: str, billions: float, video: bool) -> dict[str, Any]:
    one = "video" if video else "image"
    runs: list[dict[str, Any]] = []
    for gpu, speed in (("H100", 1.0), ("B200", 2.0)):
        for devices in (1, 2):
            for batch in (1, 4):
                seconds = billions * batch / speed / devices * (50.0 if video else 1.0)
                watts = devices * 500.0 * speed**0.5
                run: dict[str, Any] = {
                    "avg_power_watts": watts,
                    "batch_latency_s": seconds,
                    "batch_size": batch,
                    f"energy_per_{one}_joules": watts * seconds / batch,
                    "gpu_model": gpu,
                    f"{one}_height": 480 if video else 1024,
                    f"{one}_width": 832 if video else 1024,
                    "inference_steps": 50,
                    "num_gpus": devices,
                    "parallelization": {"ring_degree": 1, "ulysses_degree": devices},
                    f"throughput_{one}s_per_sec": batch / seconds,
                }
                runs.append(run | ({"fps": 15, "num_frames": 81} if video else {}))
    return {
        "activated_params_billions": billions,
        "configurations": runs,
        "model_id": model,
        "nickname": model,
        "task": f"text-to-{one}",
        "total_params_billions": billions,
        "weight_precision": "bfloat16",
    }


def mlenergy() -> dict[str, str]:
    models = [
        _llm("a/Tall-8B", "lm-arena-chat", 8.0, "Dense Transformer"),
        _llm("a/Tall-8B", "gpqa", 8.0, "Dense Transformer"),
        _llm("a/Wide-30B", "lm-arena-chat", 30.0, "Dense Transformer"),
        _llm("b/Many-12B", "image-chat", 3.0, "MoE"),
        _diffusion("c/Small", 0.6, video=False),
        _diffusion("c/Large", 12.0, video=False),
        _diffusion("d/Motion", 1.3, video=True),
    ]
    files = {
        f"public/data/models/{m['model_id'].replace('/', '__')}__{m['task']}.json": json.dumps(m)
        for m in models
    }
    head = "model,throughput,response_length,latency,energy"
    rows = [f"e/old-{n}b,{20 + n}.51234567,250.5,{n}.25,1{n}00.125" for n in (7, 13)]
    for gpu in ("V100", "A40", "A100"):
        files[f"data/legacy/{gpu}_chat_benchmark.csv"] = "\r\n".join([head, *rows]) + "\r\n"
    return files
