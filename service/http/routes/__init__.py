"""The endpoints. Each converts a request, calls the answering code, and converts the result."""

from fastapi import APIRouter

from forerun.service.http.routes import (
    about,
    devices,
    graphs,
    inference,
    kubernetes,
    llm_d,
    predict,
    questions,
    serving,
    training,
)

UPLOADS = ("/v1/graphs", "/v1/predict/model")
"""Paths whose handlers read the body in chunks, with a size limit of their own."""

ROUTERS: tuple[APIRouter, ...] = (
    *(
        predict.single,
        predict.router,
        questions.router,
        serving.router,
        training.router,
        llm_d.router,
        graphs.router,
    ),
    *(devices.router, kubernetes.router, about.router, about.health, inference.router),
)
