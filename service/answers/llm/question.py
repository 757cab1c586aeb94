"""Requests about deployed language models as queries: what is left open is chosen and said."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from forerun.data.device import Device
from forerun.data.device_slices import no_link
from forerun.data.errors import BadRequest, UnanswerableQuery, in_field
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
    is_encoder_decoder,
)
from forerun.data.language_models.encoder import Encoder
from forerun.data.language_models.model import LanguageModel
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.memory import divides_heads, smallest_parallelism
from forerun.service.schemas.degrees import check_degrees
from forerun.service.schemas.llm.deployment import DeploymentFields, ParallelismIn
from forerun.service.schemas.serving import LlmEstimateIn

DeviceNamed = Callable[[str | Device], Device]
"""The device of a name, or a spec sheet itself; raises `UnknownDevice`."""


@dataclass(frozen=True, slots=True)
class DeploymentQuestion:
    """A query about a deployed model, and what the request says beyond it.

    Attributes:
        query: the deployment and its device.
        chosen: what was chosen where the request leaves it open, one sentence each.
        usd_per_device_hour: price of a device; None where the request gives none.
        prompts: requests of a run with an end, all at once or at a rate; None without an end.
    """

    query: Query
    chosen: tuple[str, ...] = ()
    usd_per_device_hour: float | None = None
    prompts: int | None = None


def deployment_question(
    asked: DeploymentFields, model: LanguageModel, device: Device, device_count: int | None
) -> DeploymentQuestion:
    """The question of a request with lengths.

    Args:
        asked: load, engine, parallelism and price.
        model: the layers of the model.
        device: the device.
        device_count: number of devices that the request names; None where it names none.

    Raises:
        BadRequest: the degrees contradict the number of devices.
    """
    with asked.as_written():
        return _deployment_question(asked, model, device, device_count)


def _deployment_question(
    asked: DeploymentFields, model: LanguageModel, device: Device, device_count: int | None
) -> DeploymentQuestion:
    load, engine = asked.load(), asked.engine.engine()
    chosen: list[str] = []
    if (encoder := model.encoder) is not None:
        if device.kind == "cpu":
            raise is_encoder_decoder(model.family)
        model, load = model.as_served(), _encoded(load, encoder, chosen)
    most, longest = asked.engine.max_request_tokens, load.output_tokens
    if encoder is None:
        longest += load.input_tokens
    if most is not None and longest > most:
        with in_field("engine", "max_request_tokens"):
            raise BadRequest(
                f"A request of {longest:,.0f} tokens with its answer is longer than the {most:,} "
                "that the engine takes: raise that, or ask about shorter ones."
            )
    free = device_count if asked.prefill is None and asked.workers is None else 0
    divided = _Divided(model, device, load, engine, free or 0, chosen)
    parallelism = divided.by(asked.parallelism, "parallelism")
    prefill = None
    if asked.prefill is not None:
        with in_field("prefill"):
            check_joined(device, {"workers": 2})
        with in_field("prefill"):
            own = divided.by(asked.prefill.parallelism, "parallelism", "workers for prompts: ")
        prefill = Pool(own, asked.prefill.workers)
    for_prompts = 0 if prefill is None else prefill.devices
    workers = _workers(asked.workers, parallelism, for_prompts, device_count, chosen)
    deployment = LlmDeployment(model, load, engine, Pool(parallelism, workers), prefill)
    query = Query(deployment, device, operation=Operation(deployment.devices))
    return DeploymentQuestion(query, tuple(chosen), asked.usd_per_device_hour)


def _encoded(load: RequestLoad, encoder: Encoder, chosen: list[str]) -> RequestLoad:
    """The load with the length to which an encoder brings every input; `chosen` then says so."""
    if encoder.tokens is None:
        return load
    line = f"input_tokens {encoder.tokens:,}, to which the audio of a request is padded or cut"
    own = load.input_tokens
    chosen.append(line if own == encoder.tokens else f"{line}; the {own:,.0f} given are not used")
    return replace(load, input_tokens=float(encoder.tokens))


def question_of(asked: LlmEstimateIn, device_named: DeviceNamed) -> DeploymentQuestion:
    """The question of a request to `/v1/llm/estimate` with lengths.

    Raises:
        UnknownDevice: no device has that name.
        UnreadableModel: the configuration is damaged, or the name is not known.
        BadRequest: the degrees contradict the number of devices.
    """
    with asked.as_written(), in_field("device"):
        device = device_named(asked.device)
    with asked.as_written(), in_field("model"):
        model = asked.model.language_model(asked.engine.name)
    assert model is not None
    named = asked.device_count if "device_count" in asked.model_fields_set else None
    question = deployment_question(asked, model, device, named)
    query = replace(question.query, level=asked.level)
    chosen = (*question.chosen, *asked.model.chosen(asked.engine.name), *asked.notes)
    return replace(question, query=query, chosen=chosen, prompts=asked.prompts)


@dataclass(frozen=True, slots=True)
class _Divided:
    """Finds the parallelism of a pool where a request leaves it open."""

    model: LanguageModel
    device: Device
    load: RequestLoad
    engine: Engine
    devices: int
    chosen: list[str]

    def by(self, given: ParallelismIn, field: str, pool: str = "") -> Parallelism:
        """The parallelism of a request, completed.

        Args:
            given: the degrees of the request.
            field: its field.
            pool: what is said before that which is chosen; nothing for the workers that decode.

        Raises:
            BadRequest: the model cannot be divided so.
            UnanswerableQuery: no number of devices that is tried has the memory, or no link joins
                the devices.
        """
        names = ("tensor", "pipeline", "attention_data", "expert")
        with in_field(field):
            check_joined(self.device, {name: getattr(given, name) or 1 for name in names})
        whole = given.parallelism()
        if whole is not None:
            with in_field(field):
                check_degrees(self.model, whole)
            return whole
        others = Parallelism(1, given.pipeline, given.attention_data, given.expert)
        if self.device.memory_gib is None or self.device.kind == "cpu":
            why = f", as {self.device.name} names no memory" * (self.device.memory_gib is None)
            self.chosen.append(f"{pool}tensor parallel 1{why}")
            with in_field(field):
                check_degrees(self.model, others)
            return others
        with in_field(field, "tensor"):
            parts = (self.model, self.device, self.load, self.engine)
            found = smallest_parallelism(*parts, others, self.devices)
            more = smallest_parallelism(*parts, others, 2 * max(found.devices, self.devices))
        degrees = f"tensor parallel {found.tensor}"
        if found.pipeline != given.pipeline:
            degrees += f", pipeline parallel {found.pipeline}"
        self.chosen.append(f"{pool}{degrees}, the smallest that fits")
        if (all_of := self._all_devices(found, others)) != found:
            self.chosen[-1] += f"; device_count is {self.devices}"
            found = all_of
        elif more != found:
            self.chosen[-1] += f"; requests wait: tensor parallel {more.tensor} runs more at once"
        with in_field(field):
            check_degrees(self.model, found)
        return found

    def _all_devices(self, found: Parallelism, others: Parallelism) -> Parallelism:
        """The smallest that fits, or one worker of the fewer devices that a request has."""
        degree, rest = divmod(self.devices, others.devices)
        if found.devices <= self.devices or rest or not degree:
            return found
        if found.tensor == 1:
            return replace(others, pipeline=degree)
        whole = divides_heads(self.model, degree)
        return replace(others, tensor=degree) if whole else found


def check_joined(device: Device, degrees: Mapping[str, int]) -> None:
    """Refuse a model that is divided over devices which no link joins.

    Args:
        device: the type of the devices.
        degrees: field -> number of devices by it; only one more than 1 is refused.

    Raises:
        UnanswerableQuery: there is such a field; the error names it.
    """
    divided = next((name for name, degree in degrees.items() if degree > 1), None)
    if divided is not None and (why := no_link(device)) is not None:
        with in_field(divided):
            raise UnanswerableQuery(f"{why}: each serves by itself, as workers.")


def _workers(
    given: int | None,
    parallelism: Parallelism,
    for_prompts: int,
    device_count: int | None,
    chosen: list[str],
) -> int:
    """Number of workers of the pool that decodes; those that `device_count` has room for.

    Raises:
        BadRequest: the devices of the workers are not `device_count`.
    """
    if device_count is None:
        return given or 1
    own = device_count - for_prompts
    workers = given or max(1, own // parallelism.devices)
    if workers * parallelism.devices != own:
        numbers = [given] if given else sorted({workers, max(0, own) // parallelism.devices + 1})
        counts = " or ".join(str(for_prompts + n * parallelism.devices) for n in numbers)
        more = f" and {for_prompts} for prompts" if for_prompts else ""
        with in_field("device_count"):
            raise BadRequest(
                f"{device_count} devices cannot be divided into "
                f"{f'{given} ' if given else ''}workers of {parallelism.devices}{more}: give "
                f"{counts}, leave it out, or change workers or parallelism."
            )
    if given is None and workers > 1:
        chosen.append(f"{workers} workers of {parallelism.devices} devices each")
    return workers
