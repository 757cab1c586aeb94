"""The pages for browsers: rendered from templates on the server, with scripts that it serves."""

from fastapi import APIRouter

from forerun.service.http.pages import (
    language_models,
    neighbours,
    power,
    predict,
    problems,
    requests,
)
from forerun.service.http.pages.compare import page as compare

PAGES: tuple[APIRouter, ...] = (
    predict.router,
    compare.router,
    power.router,
    language_models.router,
    neighbours.router,
    requests.router,
    problems.router,
)
"""The router of every page."""
