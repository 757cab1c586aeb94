"""A run recorded as one CUDA graph, so that the GPU does not wait for launches."""

from collections.abc import Callable
from functools import cache
from typing import Any

Run = Callable[[], object]
WARM_UP_RUNS = 3
"""Runs before recording: libraries choose algorithms and allocate workspaces in the first ones."""


class RecordingFailed(Exception):
    """A recording broke off, after which the process cannot record others."""


def recorded(run: Run, device: str) -> Run:
    """The run as one CUDA graph.

    Args:
        run: work to record; it must neither wait for the GPU nor read from it.
        device: `cuda:0`, ...

    Raises:
        RecordingFailed: the recording broke off; errors of the runs before it are raised as such.
    """
    import torch

    side = _side_stream(device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_RUNS):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=side):
            kept = run()
    except Exception as error:
        raise RecordingFailed(str(error)) from error
    # The graph holds addresses only: its inputs and outputs must live as long as it does.
    held = (run, kept)

    def replay() -> object:
        graph.replay()
        return held

    return replay


@cache
def _side_stream(device: str) -> Any:
    """One stream for all recordings: libraries keep a workspace for each stream they have seen."""
    import torch

    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
