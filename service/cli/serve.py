"""`forerun serve`: answer over HTTP."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer


def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on [8080]")] = None,
    workers: Annotated[int, typer.Option(help="processes", min=1)] = 1,
) -> None:
    """Start the service; FORERUN_* variables set the rest."""
    import uvicorn

    from forerun.service.settings import Settings

    settings = Settings()
    address, number = host or settings.host, settings.port if port is None else port
    _greet(address, number)
    uvicorn.run(
        "forerun.service.app:create_app",
        factory=True,
        host=address,
        port=number,
        workers=workers,
        loop="auto",
        http="httptools",
        access_log=False,
        log_level="warning",
    )


def _greet(host: str, port: int) -> None:
    model = example_model()
    typer.echo(f"forerun answers on http://{host}:{port}  (/docs lists the endpoints). Try:\n")
    file = model if model is not None else Path("model.onnx")
    typer.echo(
        f"  curl --data-binary @{file} \\\n"
        f"    'http://{host}:{port}/v1/predict/model?device=l4&precision=amp&batch_size=8'\n"
    )


def example_model() -> Path | None:
    """A real network among the files of the onnx package, if they are installed."""
    spec = find_spec("onnx")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "backend/test/data/light"
    file = folder / "light_squeezenet.onnx"
    return file if file.is_file() else None
