"""Reading a request's body up to a limit."""

from typing import Any

from fastapi import Request

from forerun.data.errors import ModelTooLarge, UnreadableModel

BINARY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "an ONNX file (weights may be left out), or a graph in forerun.graph/1",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}


async def read_body(request: Request, max_mib: int) -> bytes:
    """The whole body.

    Raises:
        ModelTooLarge: over the limit; what is left is not read.
        UnreadableModel: it is empty.
    """
    limit = max_mib * 2**20
    chunks, total = [], 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > limit:
            raise ModelTooLarge(
                "the upload",
                f"it is over {max_mib} MiB. Leave out the weights (onnx.save_model with "
                "save_as_external_data=True): only shapes are needed.",
            )
        chunks.append(chunk)
    if not total:
        raise UnreadableModel("the upload", "it is empty; send the file with --data-binary @FILE.")
    return b"".join(chunks)
