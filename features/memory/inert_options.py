"""Finds set-up options that have no effect on a network because it lacks the part they concern.

A scheduler sends the same options with every job. Options without effect are removed before
prediction, so that they change neither the prediction nor its interval.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Final

from forerun.data.graph import OperatorGraph
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.features.graphs.dropout import dropped, has_dropout_operators
from forerun.features.graphs.pipeline import has_parts
from forerun.features.memory.attention import is_causal
from forerun.features.operators.adapters import head_of

NO_ATTENTION: Final = "has no attention operator"
NO_DROPOUT: Final = "has nothing to drop"
NO_LOGITS: Final = "gives no logits of tokens"
NO_TEXT: Final = "generates no text"
NO_PIPELINE: Final = "is no diffusion pipeline"
GENERATION: Final = ("logits", "cache_tokens", "cache_precision", "joined_cache")


def without_inert(network: Network) -> tuple[Network, Mapping[str, tuple[str, ...]]]:
    """Remove options that have no effect on a network, with the reasons.

    Returns:
        The network, and the missing part -> names of the removed options.
    """
    setup = network.training if network.phase == "training" else network.inference
    if setup is None:
        return network, {}
    plain = type(setup)()
    given = [f.name for f in fields(setup) if getattr(setup, f.name) != getattr(plain, f.name)]
    lacks = dict(_inert(network.graph, given)) if given else {}
    if not lacks:
        return network, {}
    bare = replace(setup, **{name: getattr(plain, name) for name in lacks})
    found = {why: tuple(n for n, lack in lacks.items() if lack == why) for why in lacks.values()}
    if isinstance(bare, TrainingSetup):
        return replace(network, training=bare), found
    assert isinstance(bare, InferenceSetup)
    return replace(network, inference=bare), found


def _inert(graph: OperatorGraph, given: list[str]) -> Iterator[tuple[str, str]]:
    """Options that have no effect on a graph, each with the part that the graph lacks."""
    for name in given:
        if name == "attention" and not any(op.kind == "attention" for op in graph.operators):
            yield name, NO_ATTENTION
        elif name == "dropout" and not _drops(graph):
            yield name, NO_DROPOUT
        elif name == "loss_chunks" and head_of(graph) is None:
            yield name, NO_LOGITS
        elif name in ("steps", "guidance", "offload") and not has_parts(graph):
            yield name, NO_PIPELINE
        elif name in GENERATION and not is_causal(graph):
            yield name, NO_TEXT


def _drops(graph: OperatorGraph) -> bool:
    """Whether a dropout probability changes any operator's result."""
    return has_dropout_operators(graph) or any(dropped(graph, 0.5))
