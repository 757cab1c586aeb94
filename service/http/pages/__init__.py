"""The pages for browsers: rendered from templates on the server, with scripts that it serves."""

from fastapi import APIRouter

from forerun.service.http.pages import predict, problems

PAGES: tuple[APIRouter, ...] = (predict.router, problems.router)
"""The router of every page."""
