"""Deployments that are like measured ones, from which those with other settings are estimated."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.engine_settings import mixes
from forerun.features.llm_serving.releases import is_old


def of_one_worker(query: Query) -> Query:
    """The deployment with one worker and its share of the load.

    Workers that serve whole requests have nothing in common, so that each takes the time that it
    would take alone. Where there are fewer requests in flight than workers, its share is below one.
    Deployments whose prompts have workers of their own are not changed: their numbers matter.
    """
    deployment = query.deployment
    workers = deployment.pool.workers
    if workers == 1 or deployment.prefill is not None:
        return query
    load = deployment.load
    if load.concurrency is None:
        load = replace(load, requests_per_s=(load.requests_per_s or 0.0) / workers)
    else:
        load = replace(load, concurrency=load.concurrency / workers)
    one = replace(deployment, load=load, pool=replace(deployment.pool, workers=1))
    return replace(query, workload=one, operation=Operation(one.devices))


def with_measured_settings(query: Query) -> Query:
    """The deployment as runs were measured: without drafted tokens, cached prompts and top-p, with
    chunked prefill and recorded launches, by a current release of an engine that serves at full
    speed.
    """
    if not has_other_settings(query):
        return query
    deployment = query.deployment
    engine = replace(
        deployment.engine, draft_tokens=0, draft_acceptance=0.0, chunked_prefill=True, graphs=True,
        sampling=None,
    )  # fmt: skip
    if is_old(engine):
        engine = replace(engine, version="")
    if engine.name == "llama.cpp":
        engine = replace(engine, name="other", version="")
    load = replace(deployment.load, cached_share=0.0)
    return replace(query, workload=replace(deployment, engine=engine, load=load))


def has_other_settings(query: Query) -> bool:
    """Whether a deployment is not as `with_measured_settings` has it."""
    engine, load = query.deployment.engine, query.deployment.load
    drafts = engine.draft_tokens != 0 or engine.draft_acceptance != 0.0
    samples = engine.sampling == "top_p"
    usual = engine.chunked_prefill and engine.graphs and load.cached_share == 0.0
    return drafts or samples or not usual or is_old(engine) or engine.name == "llama.cpp"


def at_any_load(query: Query) -> tuple[Hashable, ...]:
    """What a deployment has in common with those of another number or rate of requests."""
    load = query.deployment.load
    lengths = (load.input_tokens, load.output_tokens, load.input_variation, load.output_variation)
    return (*setup_of(query), load.cached_share, *lengths, in_step(query.deployment))


def in_step(deployment: LlmDeployment) -> bool:
    """Whether requests start and end together, time and again.

    Those of a closed loop with answers of one length do so, as benchmarks have them, on engines
    that process all prompts before they decode.
    """
    load = deployment.load
    alike = load.concurrency is not None and load.output_variation == 0.0
    return alike and deployment.prefill is None and not mixes(deployment.engine)


def alike_at_any_load(queries: Sequence[Query]) -> dict[tuple[Hashable, ...], list[int]]:
    """`at_any_load` of n deployments -> positions of those that have it in common.

    Those that share their parts, as closed loops of one deployment do, are compared by identity.
    """
    same: dict[tuple[Hashable, ...], list[int]] = {}
    for row, query in enumerate(queries):
        own, load = query.deployment, query.deployment.load
        parts = (id(own.model), id(own.engine), id(own.pool), id(own.prefill), id(query.device))
        lengths = (load.input_tokens, load.output_tokens, load.cached_share)
        key = (*parts, *lengths, load.input_variation, load.output_variation, in_step(own))
        same.setdefault(key, []).append(row)
    found: dict[tuple[Hashable, ...], list[int]] = {}
    for rows in same.values():
        found.setdefault(at_any_load(queries[rows[0]]), []).extend(rows)
    return found


def setup_of(query: Query) -> tuple[Hashable, ...]:
    """What a deployment has in common with those that differ from it in nothing but their load."""
    own = query.deployment
    return own.model, own.engine, own.pool, own.prefill, query.device
