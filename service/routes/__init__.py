"""Endpoints: each converts, calls, converts."""

from fastapi import APIRouter

from forerun.service.routes import devices, graphs, health, models, pages, predict

ROUTERS: tuple[APIRouter, ...] = (
    predict.router,
    graphs.router,
    devices.router,
    models.router,
    health.router,
    pages.router,
)
