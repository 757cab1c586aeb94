"""`forerun mcp`: the questions of the service as tools of the Model Context Protocol."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forerun.data.device import DeviceKind
from forerun.data.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from forerun.service.http.answers import Answers


class DevicesIn(BaseModel):
    """Which devices to list."""

    model_config = ConfigDict(extra="forbid")

    kind: DeviceKind | None = Field(default=None, description="kind of device; all when absent")
    name: str = Field(default="", description="part of the names, such as h100; all when absent")


FIGURES = {"name", "kind", "memory_gib", "memory_bandwidth_gbs", "peak_tflops", "tdp_w", "year"}


@dataclass(frozen=True, slots=True)
class _Tool:
    """A question that an agent may ask.

    Attributes:
        asked: schema of the arguments.
        description: what it answers.
        answer: answers valid arguments with JSON.
    """

    asked: type[BaseModel]
    description: str
    answer: Callable[[Any], str]


def mcp() -> None:
    """Serve agents by the Model Context Protocol (MCP), over standard input and output.

    Its tools take the requests of POST /v1/predict, /v1/rank and /v1/llm/estimate, and their
    answers are JSON with intervals and grades.
    """
    try:
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise MissingExtra("The MCP server", "mcp") from None
    from forerun.service.http.answers import answers_with
    from forerun.service.loading import load_predictors
    from forerun.service.settings import Settings

    settings = Settings.load()
    server = _server(_tools(answers_with(settings, load_predictors(settings))))

    async def run() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(run())


def _tools(answers: "Answers") -> dict[str, _Tool]:
    """Name -> tool."""
    from forerun.data.named.networks import network_names
    from forerun.service.http.rank_requests import rank_of
    from forerun.service.http.schemas import RankIn
    from forerun.service.schemas.prediction import PredictIn
    from forerun.service.schemas.serving import LlmEstimateIn

    def served(asked: LlmEstimateIn) -> str:
        (answer,) = answers.served([asked])
        if isinstance(answer, InputError):
            raise answer
        return answer.model_dump_json()

    def listed(asked: DevicesIn) -> str:
        found = [
            device.model_dump(mode="json", include=FIGURES)
            for device in answers.devices.catalog
            if asked.kind in (None, device.kind) and asked.name.lower() in device.name
        ]
        return json.dumps({"devices": found})

    networks = f"Networks by name: {', '.join(network_names())}."
    return {
        "predict": _Tool(
            PredictIn,
            "Predict latency, memory, power and energy of a workload on a device, before it runs: "
            f"each with a 90 % interval and a grade of trust. {networks}",
            lambda asked: answers.predict(answers.question(asked)).decode(),
        ),
        "llm_estimate": _Tool(
            LlmEstimateIn,
            "Predict time to first token, time per token, rates, memory, power and price of a "
            "language model that serves requests, such as llama-3.1-8b on one or several GPUs.",
            served,
        ),
        "rank_devices": _Tool(
            RankIn,
            "Rank devices that meet limits by latency, energy, memory, power or cost of a "
            f"workload, and say why others do not meet them. {networks}",
            lambda asked: rank_of(asked, answers).model_dump_json(),
        ),
        "list_devices": _Tool(
            DevicesIn, "List devices by name, with the main figures of their sheets.", listed
        ),
    }


def _server(tools: Mapping[str, _Tool]) -> "Server[Any]":
    """A server of these tools."""
    from mcp import types
    from mcp.server.lowlevel import Server

    from forerun import __version__

    async def list_tools(context: object, params: object) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=tool.description,
                    input_schema=tool.asked.model_json_schema(),
                    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True),
                )
                for name, tool in tools.items()
            ]
        )

    async def call_tool(
        context: object, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        text, is_error = await asyncio.to_thread(
            _answer, tools.get(params.name), params.name, params.arguments or {}
        )
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=json.loads(text),
            is_error=is_error,
        )

    return Server("forerun", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def _answer(tool: _Tool | None, name: str, given: Mapping[str, Any]) -> tuple[str, bool]:
    """The answer of a tool as JSON, or the problem in its place, and whether it is one."""
    from forerun.service.problems import content, problem_of, unfit

    try:
        if tool is None:
            raise InputError(f"No tool {name!r:.80}; tools/list names all.")
        return tool.answer(tool.asked.model_validate(given)), False
    except ValidationError as error:
        return content(unfit(error.errors())).decode(), True
    except InputError as error:
        return content(problem_of(error)).decode(), True
