"""Latencies of deployed language models: a closed form with a fitted residual correction."""

from forerun.models.llm_serving.latency import LlmLatency

__all__ = ["LlmLatency"]
