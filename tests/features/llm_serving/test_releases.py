"""Releases of engines in their order, and what they reach."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import Engine
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.comparable import has_other_settings, with_measured_settings
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.releases import release
from forerun.features.llm_serving.step import WorkerTime
from tests.features.llm_serving.deployments import DEVICE, dense_model, deployment, with_engine


def test_releases_are_ordered_and_unknown_ones_are_missing():
    ordered = ("0.5.1rc0.pre3", "0.9.2", "0.15.1", "1.0.0rc3", "1.2.0rc2", "1.2.0rc2.post2")
    ordered += ("1.2.0rc6.post2", "1.2.0", "1.2.0.post1", "1.2.1rc0")
    found = [release(Engine(version=version)) for version in ordered]
    assert np.all(np.diff(found) > 0)
    assert release(Engine(version="0.5.1-rc0.pre3")) == found[0]
    assert np.isnan(release(Engine(version="nightly")))


def seconds(engine="vllm", version="", sequences=16.0, tensor=1, device=DEVICE, model=None):
    """Time of one iteration that decodes."""
    one = with_engine(deployment(model, tensor=tensor), name=engine, version=version)
    return decode_s(one, sequences, device)


def decode_s(one, sequences=16.0, device=DEVICE):
    """Time of one iteration of a deployment that decodes."""
    none = np.zeros(1)
    counts = np.array([sequences])
    (found,) = WorkerTime.of(one, device).seconds(
        Iterations(none, none, none, counts, 1000.0 * counts)
    )
    return float(found)


def test_the_first_releases_sample_each_sequence_on_the_host():
    def each(version):
        counts = (16.0, 64.0)
        few, many = (seconds(version=version, sequences=count) for count in counts)
        now = [seconds(sequences=count) for count in counts]
        return ((many - few) - (now[1] - now[0])) / 48

    assert each("0.2.5") == pytest.approx(490e-6)
    assert each("0.2.6") == pytest.approx(44e-6)


@pytest.mark.parametrize(
    ("engine", "version"),
    [("vllm", "0.8.0"), ("vllm", "0.19.0"), ("vllm", "nightly"), ("sglang", "0.5.9")],
)
def test_current_releases_take_the_time_of_one_that_is_not_stated(engine, version):
    assert seconds(engine, version) == seconds(engine)


def test_the_host_of_an_old_release_takes_longer_with_more_sequences_and_devices():
    def further(**how):
        return seconds(version="0.6.3", **how) - seconds(**how)

    one, many, wide = further(), further(sequences=64.0), further(tensor=4)
    assert one == pytest.approx(0.6e-3 + 16 * 44e-6)
    assert many - one == pytest.approx(48 * 44e-6)
    assert wide - one == pytest.approx(2 * 0.94e-3)


@pytest.mark.parametrize("name", ["mi250", "mi300x", "intel-max-1550"])
def test_kernels_of_an_old_release_reach_less_on_devices_of_other_makers(name):
    device = DeviceCatalog.load().get(name)
    on_nvidia = seconds(version="0.6.3") / seconds()
    assert seconds(version="0.6.3", device=device) / seconds(device=device) > 1.2 * on_nvidia


def test_old_attention_reads_shared_keys_for_each_query_head_on_amd():
    device = DeviceCatalog.load().get("mi300x")
    layer = Layer(Attention(32, 32, 128, 128), (Dense(3 * 4096),))
    apart = LanguageModel("made_up", 4096, 32_000, (layer,) * 16, tied_embeddings=False)

    def of_caches(model, version):
        own = {"version": version, "device": device, "model": model}
        return seconds(sequences=64.0, **own) - seconds(sequences=1.0, **own)

    assert of_caches(apart, "") > 2.0 * of_caches(dense_model(), "")
    assert of_caches(apart, "0.6.3") < 1.2 * of_caches(dense_model(), "0.6.3")


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "mi250", "intel-max-1550"])
def test_llama_cpp_takes_longer_than_an_engine_that_serves_at_full_speed(name):
    device = DeviceCatalog.load().get(name)
    query = Query(with_engine(deployment(), name="llama.cpp"), device, operation=Operation(1))
    assert seconds("llama.cpp", device=device) > 1.2 * seconds("other", device=device)
    assert with_measured_settings(query).deployment.engine.name == "other"


def test_old_releases_are_corrected_as_the_current_one_that_was_measured():
    old = with_engine(deployment(), version="0.6.3")
    query = Query(old, DEVICE, operation=Operation(old.devices))
    assert has_other_settings(query)
    assert with_measured_settings(query).deployment == with_engine(deployment(), version="")
    current = with_engine(deployment(), version="0.11.0")
    assert not has_other_settings(Query(current, DEVICE, operation=Operation(current.devices)))


def test_kernels_that_are_not_recorded_start_later_whatever_they_compute():
    def further(model):
        eager = with_engine(deployment(model), graphs=False)
        return decode_s(eager) - decode_s(deployment(model))

    assert further(dense_model()) > 16 * 9 * 10e-6
    assert further(dense_model(width=8192)) == pytest.approx(further(dense_model()))


def test_vllm_of_2023_records_no_launches():
    assert seconds(version="0.2.5") > seconds(version="0.2.7") + 1e-3
