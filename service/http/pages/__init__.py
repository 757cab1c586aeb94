"""The pages for browsers: rendered from templates on the server, with scripts that it serves."""

from fastapi import APIRouter

from forerun.service.http.pages import (
    language_models,
    neighbours,
    power,
    predict,
    reference,
    requests,
)
from forerun.service.http.pages.circuits import page as circuits
from forerun.service.http.pages.compare import page as compare
from forerun.service.http.pages.devices import coverage_page, device_pages
from forerun.service.http.pages.leaderboard import page as leaderboard

PAGES: tuple[APIRouter, ...] = (
    predict.router,
    compare.router,
    power.router,
    language_models.router,
    neighbours.router,
    circuits.router,
    requests.router,
    leaderboard.router,
    device_pages.router,
    coverage_page.router,
    reference.router,
)
"""The router of every page."""
