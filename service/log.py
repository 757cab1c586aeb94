"""The log: one JSON object a line on standard error, so that answers stand alone on the other."""

import sys

import structlog
from structlog.typing import FilteringBoundLogger


def log() -> FilteringBoundLogger:
    """Where events are noted.

    Tracebacks come without the values of variables: those may hold what users sent.
    """
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
