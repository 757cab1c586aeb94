"""The endpoints. Each converts a request, calls the answering code, and converts the result."""

from fastapi import APIRouter

from forerun.service.http.routes import (
    circuits,
    colocation,
    devices,
    drift,
    graphs,
    health,
    inference,
    kubernetes,
    leaderboard,
    llm_d,
    measurements,
    models,
    power,
    predict,
    rank,
    serving,
    workloads,
)

UPLOADS = ("/v1/graphs", "/v1/predict/model")
"""Paths whose handlers read the body in chunks, with a size limit of their own."""

ROUTERS: tuple[APIRouter, ...] = (
    predict.single,
    predict.router,
    rank.router,
    power.router,
    serving.router,
    llm_d.router,
    workloads.router,
    graphs.router,
    devices.router,
    measurements.router,
    drift.router,
    circuits.router,
    colocation.router,
    kubernetes.router,
    models.router,
    leaderboard.router,
    health.router,
    inference.router,
)
