"""Deployments that are like measured ones, from which those with other settings are estimated."""

from dataclasses import replace

from forerun.data.query import Operation, Query


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
    """The deployment as runs were measured: without drafted tokens and cached prompts, with chunked
    prefill and recorded launches.
    """
    deployment = query.deployment
    engine = replace(
        deployment.engine, draft_tokens=0, draft_acceptance=0.0, chunked_prefill=True, graphs=True
    )
    load = replace(deployment.load, cached_share=0.0)
    if engine == deployment.engine and load == deployment.load:
        return query
    return replace(query, workload=replace(deployment, engine=engine, load=load))
