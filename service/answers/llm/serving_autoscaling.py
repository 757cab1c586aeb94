"""Replicas that are wanted at the measured load: rules of Prometheus, and an autoscaler by them.

The rules are over vLLM's metrics (docs.vllm.ai: "Production Metrics"); the autoscaler is a
ScaledObject of KEDA (keda.sh/v1alpha1, "Prometheus" scaler) for the Deployment of the same plan.
"""

from typing import Final, NamedTuple

import yaml

from forerun.data.language_models.deployment import RequestLoad

WINDOW: Final = "5m"
"""Time over which rates are measured."""
PROMETHEUS: Final = "http://prometheus:9090"
WANTED, NEEDED = "forerun:wanted_replicas", "forerun:needed_replicas"


class Scaling(NamedTuple):
    """What replicas are scaled by.

    Attributes:
        requests_per_s: rate with which one replica keeps the limits.
        load: lengths of the requests.
        most: replicas at most.
        stabilization_s: time for which replicas are kept, seconds.
    """

    requests_per_s: float
    load: RequestLoad
    most: int
    stabilization_s: float


def rules(model: str, scaling: Scaling) -> str:
    """Recording rules: replicas that requests, prompts and answers each need, and the most of them.

    Requests arrive at the rate at which they end and at which those in flight grow. Where lengths
    differ from those of the plan, tokens ask for more than requests do.
    """
    own = f'{{model_name="{model}"}}'
    grown = (f"sum(deriv(vllm:num_requests_{state}{own}[{WINDOW}]))"
             for state in ("running", "waiting"))  # fmt: skip
    per_s, load = scaling.requests_per_s, scaling.load
    needs = {
        "requests": (" + ".join((_rate("vllm:request_success_total", own), *grown)), per_s),
        "prompts": (_rate("vllm:prompt_tokens_total", own), per_s * load.input_tokens),
        "answers": (_rate("vllm:generation_tokens_total", own), per_s * load.output_tokens),
    }
    label = {"model_name": model}
    recorded = [
        {"record": NEEDED, "expr": f"({expr}) / {most!r}", "labels": {**label, "by": by}}
        for by, (expr, most) in needs.items()
    ]
    wanted = f"clamp_min(ceil(max({NEEDED}{own}) - 1e-6), 1)"
    recorded.append({"record": WANTED, "expr": wanted, "labels": label})
    group = {"name": "forerun", "interval": "30s", "rules": recorded}
    return yaml.safe_dump({"groups": [group]}, sort_keys=False, width=200)


def _rate(counter: str, own: str) -> str:
    return f"sum(rate({counter}{own}[{WINDOW}]))"


def scaled_object(label: str, model: str, scaling: Scaling) -> str:
    """An autoscaler of the Deployment of that label by the rules."""
    query = {
        "serverAddress": PROMETHEUS,
        "query": f'{WANTED}{{model_name="{model}"}}',
        "threshold": "1",
    }
    behavior = {"scaleDown": {"stabilizationWindowSeconds": round(scaling.stabilization_s)}}
    content = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": label},
        "spec": {
            "scaleTargetRef": {"name": label},
            "minReplicaCount": 1,
            "maxReplicaCount": scaling.most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": query}],
        },
    }
    note = f"# {PROMETHEUS} stands for the server that has the rules of --as prometheus\n"
    return note + yaml.safe_dump(content, sort_keys=False)
