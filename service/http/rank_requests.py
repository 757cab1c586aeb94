"""What a request of POST /v1/rank asks for, and the answers to it."""

from forerun.data.device import Device
from forerun.data.errors import InputError, in_field
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.service.answers import ranking
from forerun.service.http.answers import Answers
from forerun.service.http.schemas import MOST_RANKED, RankIn
from forerun.service.requests.record import stage
from forerun.service.schemas.answers import RankOut
from forerun.service.schemas.workloads import operation_of, usual_software, workload_of


def rank_of(asked: RankIn, answers: Answers) -> RankOut:
    """The ranking that a request asks for; as `rank`, for the pages."""
    with stage("read"):
        queries, goal, limits = _resolved(asked, answers)
    with stage("predict"):
        return ranking.ranked(queries, goal, limits, answers.adaptation.current())


def outcomes_of(asked: RankIn, answers: Answers) -> dict[str, ranking.Outcome]:
    """Name of a device -> the device with its objective, or the reasons to exclude it."""
    queries, goal, limits = _resolved(asked, answers)
    return ranking.outcomes(queries, goal, limits, answers.predicted)


def queries_of(asked: RankIn, answers: Answers) -> list[Query]:
    """A query for each device, in the order of the request."""
    return _resolved(asked, answers)[0]


def _resolved(asked: RankIn, answers: Answers) -> tuple[list[Query], ranking.Goal, ranking.Limits]:
    with in_field("workload"):
        workload = workload_of(asked.workload, answers.graphs.get)
    devices = _devices(asked, answers)
    operation = operation_of(workload, asked.operation.power_limit_w)
    usual = [usual_software(asked.software, workload, device) for device in devices]
    # One object for all devices with equal software is compared by identity from here on.
    shared: dict[Software, Software] = {}
    queries = [
        Query(workload, device, shared.setdefault(software, software), operation, asked.level)
        for device, software in zip(devices, usual, strict=True)
    ]
    samples = workload.batch_size if isinstance(workload, Network) else 1
    prices = ranking.prices_by_device(
        asked.prices_per_hour, asked.objective, devices, answers.device
    )
    most = asked.limits.model_dump(include=set(ranking.RANKING_METRICS), exclude_none=True)
    limits = ranking.Limits(most, asked.limits.must_fit, asked.limits.in_domain_only, asked.risk)
    return queries, ranking.Goal(asked.objective, samples, prices), limits


def _devices(asked: RankIn, answers: Answers) -> list[Device]:
    """The candidate devices, without duplicates, in the order of the request."""
    if asked.devices is not None:
        return list(dict.fromkeys(_device(*named, answers) for named in enumerate(asked.devices)))
    catalog = list(answers.devices.catalog)
    if len(catalog) > MOST_RANKED:
        raise InputError(f"There are {len(catalog)} devices; name up to {MOST_RANKED} of them.")
    return catalog


def _device(position: int, given: str | Device, answers: Answers) -> Device:
    with in_field("devices", position):
        return answers.device(given)
