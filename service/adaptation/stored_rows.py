"""Measured rows as they are stored, and as they were stored before."""

from collections.abc import Sequence

from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.data.workload import OperatorWorkload
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.schemas.workloads import workload_in
from forerun.service.stores.idempotency import RepeatableRequest
from forerun.service.stores.measurement_sets import AlreadyStored, MeasurementSet


class RepeatedRows(InputError):
    """The same measurements were given before and are in use."""

    slug, status = "repeated-rows", 409

    def __init__(self, device: str, made: str, rows: int) -> None:
        super().__init__(
            f"These {rows} measurements of {device} are in use already, as set {made}; nothing was "
            f"stored. `forerun adapt --device {device} --rollback` undoes the newest set."
        )


def kept_row(row: MeasuredRow, query: Query) -> MeasuredRow:
    """The row as it is stored: with its graph replaced by the digest."""
    if not isinstance(query.workload, OperatorWorkload):
        return row
    return row.model_copy(update={"workload": workload_in(query.run)})


def check_new(
    rows: Sequence[MeasuredRow],
    live: Sequence[MeasurementSet],
    request: RepeatableRequest | None = None,
) -> None:
    """Refuse rows of a set in use: held out, they would be predicted from themselves.

    Args:
        rows: the rows as they would be stored.
        live: the sets of the device that are in use.
        request: the request that brings them, where it may be repeated.

    Raises:
        AlreadyStored: the same request stored that set, in another process and just now.
        RepeatedRows: names the set.
    """
    for stored in live:
        if stored.rows == tuple(rows):
            if request is not None and stored.request == request:
                raise AlreadyStored(stored)
            raise RepeatedRows(stored.device, stored.id, len(rows))
