"""Made-up runs of training jobs under power limits, by the law itself."""

import numpy as np

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Benchmark
from tests.devices import CATALOG

GPUS = ("v100-pcie-32gb", "p100-pcie-16gb", "a40")
JOBS = (("cifar100", "shufflenetv2"), ("squad", "bert_base_uncased"))


def job(dataset: str, network: str, batch: float) -> Benchmark:
    settings = (("batch_size", batch), ("dataset", dataset), ("network", network))
    return Benchmark("zeus_powercap", (*settings, ("optimizer", "adam")))


def query(device: Device, limit: float | None, place: int = 0, batch: float = 64.0) -> Query:
    return Query(job(*JOBS[place], batch), device, operation=Operation(power_limit_w=limit))


def runs(gpus: tuple[str, ...] = GPUS, batches: tuple[float, ...] = (16, 64, 256)) -> Measurements:
    """Half of dynamic power buys clock; a device draws a sixth of its design power anyway."""
    queries, power, time = [], [], []
    for name in gpus:
        device = CATALOG.get(name)
        tdp = device.tdp_w or 0.0
        for place in range(len(JOBS)):
            for batch in batches:
                for share in (0.4, 0.5, 0.7, 1.0):
                    launch, work = 4000.0 / batch, (60.0 + 100.0 * place) / np.sqrt(tdp / 250.0)
                    wanted = tdp * (0.16 + 0.7 * work / (launch + work))
                    drawn = min(share * tdp, wanted)
                    clock = ((drawn - 0.16 * tdp) / (wanted - 0.16 * tdp)) ** 0.5
                    queries.append(query(device, share * tdp, place, batch))
                    power.append(drawn)
                    time.append(1e3 * (launch + work * (0.4 + 0.6 / clock)))
    values = {"power_w": np.array(power), "latency_ms": np.array(time)}
    names = np.array([q.device.name for q in queries], dtype=np.str_)
    return Measurements(queries, values, {"device": names})
