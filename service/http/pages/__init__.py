"""The pages for browsers: rendered from templates on the server, with scripts that it serves."""

from fastapi import APIRouter

from forerun.service.http.pages import (
    circuits,
    compare,
    coverage,
    devices,
    language_models,
    leaderboard,
    neighbours,
    power,
    predict,
    reference,
    requests,
    serving_plan,
    training,
)

PAGES: tuple[APIRouter, ...] = tuple(
    page.router
    for page in (
        *(predict, compare, power, language_models, serving_plan, training, neighbours),
        *(circuits, requests, leaderboard, devices, coverage, reference),
    )
)
"""The router of every page."""
