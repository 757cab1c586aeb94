"""Few-shot corrections are posterior means of a Gaussian process, as scikit-learn computes them."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

from forerun.data.device import DeviceCatalog
from forerun.data.query import Operation, Query
from forerun.data.workload import Diffusion, LlmServing
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.serving.features import ServingRows
from forerun.models.serving.support_residuals import (
    LENGTH_SCALES,
    NEW_DEVICE_DEVIATION,
    NOISE_DEVIATION,
    SMOOTH_DEVIATION,
    TRAINED_DEVICE_DEVIATION,
    SupportResiduals,
)
from tests.models.gaussian_process.reference_processes import (
    OnColumns,
    SameCode,
    constant,
    reference,
)

CATALOG = DeviceCatalog.load()
TRAINED, NEW, OTHER = (CATALOG.get(name) for name in ("h100", "b200", "a100-sxm-80gb"))


def runs(devices, seed, kind="llm_serving"):
    random = np.random.default_rng(seed)
    queries = []
    for device in devices:
        billions, size = float(random.uniform(1, 70)), int(random.integers(1, 200))
        chat = LlmServing(billions * 1e9, billions * 1e9, "chat", size)
        picture = Diffusion(billions * 1e9, 1024, 1024, steps=20, batch_size=size)
        workload = chat if kind == "llm_serving" else picture
        queries.append(Query(workload, device, operation=Operation(int(random.integers(1, 8)))))
    return ServingRows.of(kind, queries)


@pytest.mark.parametrize("kind", ["llm_serving", "diffusion"])
@pytest.mark.parametrize("device", [TRAINED, NEW])
def test_a_correction_and_what_stays_unsure_are_those_of_scikit_learns_process(kind, device):
    measured, asked = runs([device] * 8, 0, kind), runs([device] * 5 + [OTHER], 1, kind)
    errors = np.random.default_rng(2).normal(0.2, 0.3, (8, 2))
    known = KnownDevices.of([TRAINED])
    few = SupportResiduals.of(measured, errors, [device] * 8, known)
    added, left = few.correction(asked, [device] * 5 + [OTHER])
    assert added.shape == left.shape == (6, 2)
    level = TRAINED_DEVICE_DEVIATION if device is TRAINED else NEW_DEVICE_DEVIATION
    rows = np.column_stack([measured.points(LENGTH_SCALES[kind]), np.zeros(8)])
    points = np.column_stack([asked.points(LENGTH_SCALES[kind]), [0.0] * 5 + [1.0]])
    width = rows.shape[1] - 1
    for target, (smooth, noise) in enumerate(zip(SMOOTH_DEVIATION, NOISE_DEVIATION, strict=True)):
        curve = OnColumns(RBF(1.0, "fixed"), 0, width)
        kernel = constant(level**2) * SameCode(width) + constant(smooth**2) * curve
        process = reference(kernel, rows, errors[:, target], noise**2)
        mean, deviation = process.predict(points, return_std=True)
        np.testing.assert_allclose(added[:, target], mean, atol=1e-8)
        before = level**2 + smooth**2
        wanted = np.sqrt((deviation**2 + noise**2) / (before + noise**2))
        np.testing.assert_allclose(left[:5, target], wanted[:5], atol=1e-6)
    assert (left <= 1.0 + 1e-9).all()
