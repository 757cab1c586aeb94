"""The log: one JSON object per line on standard error; standard output carries answers only."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


def log() -> "FilteringBoundLogger":
    """The logger of the service.

    Tracebacks omit the values of variables, which may hold data of users.
    """
    import structlog

    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    return logger
