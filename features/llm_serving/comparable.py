"""Maps deployments to comparable ones: with measured settings, one worker, or any other load."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.engine_settings import mixes
from forerun.features.llm_serving.releases import is_old


def of_one_worker(query: Query) -> Query:
    """Reduce a deployment to one worker with its share of the load.

    Workers that serve whole requests are independent, so latency does not depend on their number.
    A worker's share is below one where there are fewer requests in flight than workers.
    Disaggregated deployments are returned unchanged: the numbers of their workers matter.
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
    """The deployment with the settings of measured runs: chunked prefill and CUDA graphs, no
    speculative decoding, prefix cache or top-p sampling, and a current release of vLLM, SGLang or
    TensorRT-LLM, or an unnamed engine in place of llama.cpp.
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
    """Whether `with_measured_settings` changes a deployment."""
    engine, load = query.deployment.engine, query.deployment.load
    drafts = engine.draft_tokens != 0 or engine.draft_acceptance != 0.0
    samples = engine.sampling == "top_p"
    usual = engine.chunked_prefill and engine.graphs and load.cached_share == 0.0
    return drafts or samples or not usual or is_old(engine) or engine.name == "llama.cpp"


def at_any_load(query: Query) -> tuple[Hashable, ...]:
    """Key of all deployments that differ only in concurrency or arrival rate."""
    load = query.deployment.load
    lengths = (load.input_tokens, load.output_tokens, load.input_variation, load.output_variation)
    return (*setup_of(query), load.cached_share, *lengths, in_step(query.deployment))


def in_step(deployment: LlmDeployment) -> bool:
    """Whether requests repeatedly start and end together.

    They do in a closed loop with answers of one length, as in benchmarks, on engines that process
    all prompts before they decode.
    """
    load = deployment.load
    alike = load.concurrency is not None and load.output_variation == 0.0
    return alike and deployment.prefill is None and not mixes(deployment.engine)


def alike_at_any_load(queries: Sequence[Query]) -> dict[tuple[Hashable, ...], list[int]]:
    """`at_any_load` -> positions of the deployments with that key, among n.

    Deployments whose parts are the same objects are grouped by identity first, which is cheaper.
    """
    by_identity: dict[tuple[Hashable, ...], list[int]] = {}
    for row, query in enumerate(queries):
        one, load = query.deployment, query.deployment.load
        parts = (id(one.model), id(one.engine), id(one.pool), id(one.prefill), id(query.device))
        lengths = (load.input_tokens, load.output_tokens, load.cached_share)
        key = (*parts, *lengths, load.input_variation, load.output_variation, in_step(one))
        by_identity.setdefault(key, []).append(row)
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for rows in by_identity.values():
        groups.setdefault(at_any_load(queries[rows[0]]), []).extend(rows)
    return groups


def setup_of(query: Query) -> tuple[Hashable, ...]:
    """Key of all deployments that differ only in their load."""
    one = query.deployment
    return one.model, one.engine, one.pool, one.prefill, query.device
