"""What a replay of a trace and a load in closed form cost, and the seconds of an hour's trace."""

from collections.abc import Callable
from typing import Any

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import LlmDeployment, Parallelism, Pool, RequestLoad
from forerun.data.language_models.traces import named_trace
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.llm_serving.replay import replay
from forerun.models.llm_serving.worker import Worker
from tests.benchmarks.timing import seconds

LIMITS = {
    "replay_an_hour_s": ("<", 5.0),
    "replay_an_hour_over_summing_its_lengths": ("<", 4000.0),
}
"""Sums in plain Python over the lengths of all requests are the yardstick."""


def figures(runs: int = 5) -> dict[str, float]:
    """Least seconds of several runs, and their ratios."""
    trace = named_trace("splitwise_conv")
    load = RequestLoad(1155, 211, requests_per_s=5.5, input_variation=1.0, output_variation=0.8)
    model = named_language_model("meta-llama/Meta-Llama-3.1-70B")
    deployment = LlmDeployment(model, load, pool=Pool(Parallelism(tensor=4)))
    worker = Worker.of(deployment, DeviceCatalog.load().get("h100-sxm-80gb"))
    lengths = (trace.input_tokens.tolist(), trace.output_tokens.tolist())

    def least(work: Callable[[], Any]) -> float:
        return min(seconds(work) for _ in range(runs + 1))

    replayed = least(lambda: replay(trace, deployment, worker))
    summed = least(lambda: sum(i + o for i, o in zip(*lengths, strict=True)))
    return {
        "replay_an_hour_s": replayed,
        "replay_an_hour_over_summing_its_lengths": replayed / summed,
    }
