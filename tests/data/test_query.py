"""A query gives its workload as the kind that it is, and as no other."""

import pytest

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Benchmark, Colocation, HostWindow, ProgramProfile

HOST = Device(name="host", vendor="nobody", kind="cpu")


def test_a_workload_is_given_as_the_kind_that_it_is():
    benchmark = Benchmark("suite", (("cores", 4.0), ("mode", "fast")))
    colocation = Colocation(ProgramProfile("a"), HostWindow())
    assert Query(benchmark, HOST).benchmark is benchmark
    assert Query(colocation, HOST).colocation is colocation
    assert benchmark.by_name == {"cores": 4.0, "mode": "fast"}


@pytest.mark.parametrize("kind", ["network", "design", "colocation"])
def test_another_kind_is_an_error_that_names_both(kind):
    with pytest.raises(TypeError, match=f"kind 'benchmark' is no {kind}"):
        getattr(Query(Benchmark("suite", ()), HOST), kind)
