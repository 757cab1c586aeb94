"""Endpoints: each converts, calls, converts."""

from fastapi import APIRouter

from forerun.service.routes import (
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
)

UPLOADS = ("/v1/graphs", "/v1/predict/model")
"""Paths that read their bodies piece by piece, with a limit of their own."""

ROUTERS: tuple[APIRouter, ...] = (
    predict.router,
    rank.router,
    power.router,
    graphs.router,
    devices.router,
    measurements.router,
    models.router,
    leaderboard.router,
    health.router,
    pages.router,
)
