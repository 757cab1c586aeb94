"""Endpoints: each converts, calls, converts."""

from fastapi import APIRouter

from forerun.service.http.routes import (
    colocation,
    devices,
    graphs,
    health,
    leaderboard,
    measurements,
    models,
    pages,
    power,
    predict,
    rank,
    serving,
)

UPLOADS = ("/v1/graphs", "/v1/predict/model")
"""Paths that read their bodies piece by piece, with a limit of their own."""

ROUTERS: tuple[APIRouter, ...] = (
    predict.router,
    rank.router,
    power.router,
    serving.router,
    graphs.router,
    devices.router,
    measurements.router,
    colocation.router,
    models.router,
    leaderboard.router,
    health.router,
    pages.router,
)
