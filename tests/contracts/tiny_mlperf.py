"""Tiny upstream files of MLPerf results, in their own format, made up."""

import json
from collections.abc import Iterator
from typing import Any

ROUNDS = ("v2.0", "v2.1", "v3.0", "v3.1")
PARTS = {
    "NVIDIA A100-SXM-80GB": 8.0,
    "NVIDIA A30": 4.0,
    "NVIDIA L4": 2.0,
    "NVIDIA T4": 1.0,
    "NVIDIA A2": 0.5,
    "QUALCOMM Cloud AI 100 PCIe/HHHL Pro": 3.0,
    "": 0.25,
}
MODELS = {"resnet50": 4000.0, "bert-99": 200.0, "rnnt": 1500.0}
UNITS = {"Offline": "Samples/s", "Server": "Queries/s", "SingleStream": "Latency (ms)"}
FOLDER = "experiment/mlperf-inference--{}--datacenter--closed--task--{}/stamp/cm-result.json"


def _record(round_: str, part: str, model: str, scenario: str, count: int) -> dict[str, Any]:
    number = ROUNDS.index(round_)
    rate = MODELS[model] * PARTS[part] * (1 + 0.02 * number)
    each = {"Offline": rate, "Server": 0.8 * rate, "SingleStream": 3e3 / rate}[scenario]
    platform = f"box-{part.split()[-1].lower() if part else 'cpu'}x{count}"
    return {
        "version": round_,
        "Organization": ("Here", "There")[count % 2],
        "Division": "closed",
        "Availability": "available",
        "SystemType": "datacenter",
        "SystemName": platform,
        "Platform": platform,
        "Location": f"closed/{platform}/results/{model}/{scenario}",
        "accelerator_model_name": part,
        "accelerators_per_node": count if part else "",
        "number_of_nodes": 1,
        "host_processor_model_name": "AMD EPYC 7742",
        "host_processors_per_node": 2,
        "host_processor_core_count": 64,
        "Model": model,
        "MlperfModel": model,
        "Scenario": scenario,
        "Result": each if scenario == "SingleStream" else each * (count if part else 2),
        "Result_Units": UNITS[scenario],
        "Accuracy": 0.9,
        "framework": "TensorRT 8.4.0" if part else "PyTorch",
        "errors": 0,
    }


def _records(round_: str, scenario: str) -> Iterator[dict[str, Any]]:
    for part in PARTS:
        for model in MODELS:
            for count in (1, 2, 8) if part else (2,):
                yield _record(round_, part, model, scenario, count)


def mlperf_inference() -> dict[str, str]:
    files = {}
    for round_ in ROUNDS:
        for scenario in UNITS:
            rows = list(_records(round_, scenario))
            rows += rows[:2]
            files[FOLDER.format(round_, scenario.lower())] = json.dumps(rows)
    powered, joined = [], []
    for round_ in ROUNDS[:3]:
        for row in _records(round_, "Offline"):
            watts = (
                300.0
                + 90.0 * PARTS[row["accelerator_model_name"]] * row["host_processors_per_node"]
            )
            if round_ == "v3.0":
                joined += [
                    row,
                    row | {"Result": None, "Result_Power": watts, "Result_Units": "Watts"},
                ]
            else:
                power = {"Result_Power": watts, "Result_Power_Units": "Watts"}
                powered.append(row | power | {"Platform": f"{row['Platform']}-metered"})
    folder = "experiment/mlperf-inference--{}--datacenter--closed-power--task--offline/stamp"
    files[f"{folder.format('v2.1')}/cm-result.json"] = json.dumps(powered)
    files[f"{folder.format('v3.0')}/cm-result.json"] = json.dumps(joined)
    trained = {
        "version": "3.0",
        "submitter": "Here",
        "division": "closed",
        "availability": "available",
        "system": "box",
        "accelerator_model_name": "NVIDIA A100-SXM-80GB",
        "accelerators_count": 8,
        "host_processor_model_name": "AMD EPYC 7742",
        "host_processors_count": 2,
        "Benchmark": "image-classification",
        "Model_ID": "resnet",
        "Result": 20.0,
        "Result_Units": "min.",
        "framework": "",
    }
    task = "experiment/mlperf-training--3.0--closed--image-classification/stamp/cm-result.json"
    return {**files, task: json.dumps([trained])}
