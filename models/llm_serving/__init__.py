"""Latencies of deployed language models: the closed form, corrected by measured runs."""

from forerun.models.llm_serving.latency import LlmLatency

__all__ = ["LlmLatency"]
