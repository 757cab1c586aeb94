"""The result of adapting to a set of measurements, and how it is answered."""

from dataclasses import dataclass

from forerun.service.adaptation.held_out import HeldOut
from forerun.service.schemas.measurements import AdaptationOut, ErrorOut
from forerun.service.stores.measurement_sets import MeasurementSet


@dataclass(frozen=True, slots=True)
class AdaptationResult:
    """The result of adapting to a set of measurements.

    Attributes:
        kept: the set as it was stored.
        rows: number of measurements of the device in use, including this set.
        errors: errors before and after adaptation, on held-out rows.
        version: version of the predictor that answers from now on.
    """

    kept: MeasurementSet
    rows: int
    errors: HeldOut
    version: str

    def out(self) -> AdaptationOut:
        """The result as it is answered over HTTP."""
        return AdaptationOut(
            set=self.kept.id,
            device=self.kept.device,
            rows=len(self.kept.rows),
            rows_in_use=self.rows,
            errors={
                name: ErrorOut.model_validate(error, from_attributes=True)
                for name, error in self.errors.metrics.items()
            },
            folds=self.errors.folds,
            one_by_one=self.errors.one_by_one,
            version=self.version,
        )
