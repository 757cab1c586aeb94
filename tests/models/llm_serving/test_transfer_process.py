"""The transfer process: conditioning on support rows, scales of a new device, choice of rows."""

import numpy as np
import pytest

from forerun.models.gaussian_process.additive_categorical import KeyedRows
from forerun.models.llm_serving import static_batch
from forerun.models.llm_serving.static_batch import DEVICE, FRAMEWORK, VENDOR, TransferProcess

LEVELS = {"a": 0.0, "b": 0.4, "c": -0.3, "d": 0.2}


def rows(device, n=40, seed=0):
    random = np.random.default_rng(seed)
    sheet = random.uniform(-1.0, 1.0, (n, 2))
    keys = {
        DEVICE: np.full(n, device),
        VENDOR: np.full(n, "x" if device in "ab" else "y"),
        FRAMEWORK: np.array(["one", "two"])[np.arange(n) % 2],
    }
    return KeyedRows({name: own.astype(np.str_) for name, own in keys.items()}, sheet, {})


def values(these, level, slope=0.3, noise=0.02, seed=1):
    errors = noise * np.random.default_rng(seed).normal(size=len(these))
    return level + slope * these.sheet[:, 0] + 0.1 * (these.keys[FRAMEWORK] == "two") + errors


@pytest.fixture(scope="module")
def process():
    parts = [rows(name, seed=place) for place, name in enumerate(LEVELS)]
    keys = {name: np.concatenate([one.keys[name] for one in parts]) for name in parts[0].keys}
    joined = KeyedRows(keys, np.vstack([one.sheet for one in parts]), {})
    found = [values(one, LEVELS[name]) for one, name in zip(parts, LEVELS, strict=True)]
    return TransferProcess.fit(joined, np.concatenate(found), 0)


def test_training_devices_are_known(process):
    fresh = rows("b", seed=9)
    means, deviations = process.predict(fresh)
    assert np.abs(means - values(fresh, LEVELS["b"], noise=0.0)).max() < 0.1
    assert deviations.max() < 0.15


def test_support_rows_of_a_new_device_move_its_rows_and_no_others(process):
    new = rows("e", seed=5)
    truth = values(new, 1.5)
    before, wide = process.predict(new)
    adapted = process.adapted(new.take(np.arange(6)), truth[:6])
    after, narrow = adapted.predict(new)
    assert np.abs(before - truth).mean() > 1.0
    assert np.abs(after - truth).mean() < 0.1
    assert (narrow < wide).all()
    for known in LEVELS:
        own = rows(known, seed=8)
        np.testing.assert_allclose(adapted.predict(own)[0], process.predict(own)[0], atol=0.1)


def test_a_device_far_from_the_others_has_larger_terms_and_noise_of_its_own(process):
    near, far = rows("e", 10, seed=5), rows("f", 10, seed=6)
    plain = process.adapted(near, values(near, 0.1)).scales["e"]
    wild = process.adapted(far, values(far, 4.0, slope=-2.0, noise=0.3)).scales["f"]
    assert wild[0] > plain[0]
    assert wild[1] >= plain[1]


def test_new_support_rows_replace_those_of_the_device(process):
    new = rows("e", seed=5)
    once = process.adapted(new.take(np.arange(6)), values(new, 1.5)[:6])
    twice = once.adapted(new.take(np.arange(6, 12)), values(new, 0.1)[6:12])
    alone = process.adapted(new.take(np.arange(6, 12)), values(new, 0.1)[6:12])
    np.testing.assert_allclose(twice.predict(new)[0], alone.predict(new)[0])
    assert len(twice.rows) == len(process.rows) + 6
    removed = twice.without("e")
    np.testing.assert_allclose(removed.predict(new)[0], process.predict(new)[0])
    assert removed.scales == {}


def test_rows_of_a_training_device_are_added_to_its_own(process):
    fresh = rows("a", 4, seed=7)
    adapted = process.adapted(fresh, values(fresh, LEVELS["a"]))
    assert len(adapted.rows) == len(process.rows) + 4
    assert adapted.scales == {}


def test_chosen_rows_are_distinct_cover_both_frameworks_and_ignore_values(process):
    new = rows("e", 30, seed=5)
    chosen = process.informative(new, 6)
    assert len(set(chosen.tolist())) == 6
    assert set(new.keys[FRAMEWORK][chosen]) == {"one", "two"}
    assert len(process.informative(new, 100)) == 30


def test_chosen_rows_leave_less_variance_than_random_ones(process, monkeypatch):
    monkeypatch.setattr(static_batch, "SCALES", (1.0,))
    monkeypatch.setattr(static_batch, "NOISE_SCALES", (1.0,))
    new = rows("e", 30, seed=5)

    def left(chosen):
        adapted = process.adapted(new.take(chosen), values(new, 0.2, noise=0.0)[chosen])
        return float((adapted.predict(new)[1] ** 2).mean())

    drawn = [np.random.default_rng(seed).permutation(30)[:4] for seed in range(5)]
    assert left(process.informative(new, 4)) <= np.mean([left(one) for one in drawn])


def test_no_row_depends_on_the_others(process):
    new = rows("e", 600, seed=5)
    means, deviations = process.predict(new)
    for row in (0, 511, 512, 599):
        mean, deviation = process.predict(new.take(np.array([row])))
        np.testing.assert_allclose([mean[0], deviation[0]], [means[row], deviations[row]])
