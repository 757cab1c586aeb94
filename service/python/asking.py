"""Ask about a model: predict, rank, sweep power limits, compare, and check the memory."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack, get_args, overload

from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery, UnknownMetric
from forerun.data.training_options import Optimizer
from forerun.data.workload import NumberFormat
from forerun.service.answers.answer import answer_of, answers_to
from forerun.service.answers.question import RUN_METRICS, question_about
from forerun.service.answers.ranking import SLOW_DOWN, Goal, Limits, prices_by_device, ranked, swept
from forerun.service.answers.requested import question_of
from forerun.service.problems import valid
from forerun.service.python.answer import Answer, Answers, Comparison
from forerun.service.python.model_source import Model
from forerun.service.python.question import SOFTWARE, Asked, asked_about, checked_run
from forerun.service.python.ranking import Ranking, Sweep
from forerun.service.python.run_options import RunOptions
from forerun.service.python.session import DeviceLike, Session, is_one, listed, session
from forerun.service.python.view import Fit
from forerun.service.schemas.answers import Objective, Risk, samples_of
from forerun.service.schemas.prediction import PredictIn

OF_OPERATORS = ("kernel", "network")


def is_request(model: Any) -> bool:
    """Whether a model is a workload without operators, as a mapping with its kind."""
    return isinstance(model, Mapping) and model.get("kind", "network") not in OF_OPERATORS


def requested(
    workload: Mapping[str, Any],
    device: DeviceLike,
    metrics: Sequence[str] | None,
    options: Mapping[str, Any],
    here: Session,
    *,
    explain: bool = False,
) -> Answer:
    """The answer about a workload that names its kind.

    Args:
        workload: the field `workload` of POST /v1/predict.
        device: name, spec sheet or its path; a name may be that of a device that only the training
            set has.
        metrics: names of the requested metrics; all that the workload can have when None.
        options: `runtime`, `layout`, `threads`, `power_limit_w`.
        here: the session.
        explain: whether the answer divides its estimate among parts.

    Raises:
        InputError: the workload, the device, an option or a metric is not valid.
    """
    run = checked_run(options)
    superfluous = sorted(set(options) - {*SOFTWARE, "power_limit_w", "level"})
    if superfluous:
        raise InputError(f"{superfluous[0]}: write it into the workload, which has 'kind'.")
    named = device if isinstance(device, str) else here.device(device)
    software = {name: getattr(run, name) for name in SOFTWARE if options.get(name) is not None}
    asked = valid(
        PredictIn,
        {
            "workload": dict(workload),
            "device": named.model_dump() if isinstance(named, Device) else named,
            "software": software,
            "operation": {"power_limit_w": run.power_limit_w},
            "level": run.level,
            "metrics": None if metrics is None else list(metrics),
            "explain": explain,
        },
    )
    in_use = here.in_use
    question = question_of(asked, here.devices.get, here.graphs.get, in_use.loaded.predictor)
    out = answer_of(question, in_use)
    return Answer.of(out, model=str(workload["kind"]), query=question.query)


MOST_COMPARED = 10_000


# A text is a sequence of texts too, so the two signatures overlap.
@overload
def predict(  # type: ignore[overload-overlap]
    model: Model,
    *,
    device: DeviceLike,
    metrics: Sequence[str] | None = ...,
    explain: bool = ...,
    **run: Unpack[RunOptions],
) -> Answer: ...


@overload
def predict(
    model: Model,
    *,
    device: Sequence[DeviceLike],
    metrics: Sequence[str] | None = ...,
    explain: bool = ...,
    **run: Unpack[RunOptions],
) -> Answers: ...


def predict(
    model: Any,
    *,
    device: DeviceLike | Sequence[DeviceLike],
    metrics: Sequence[str] | None = None,
    explain: bool = False,
    **run: Unpack[RunOptions],
) -> Answer | Answers:
    """Predict latency, memory, power and energy of a model, with 90 % intervals.

    Args:
        model: a path (.onnx, .pt2, config.json, operator graph), `timm:NAME`, `hf:NAME`, an
            onnx.ModelProto, a torch module with `example_inputs`, a torch.export program, a
            configuration of Hugging Face, an operator graph, or a workload as a mapping with
            `kind`, as in POST /v1/predict.
        device: name, spec sheet or its path; or a list of these.
        metrics: names of the requested metrics; all when None.
        explain: whether answers divide their estimate among operators, or among loops of a
            hardware design; see `Answer.attribution`.
        **run: options of the run, such as `batch_size=32`, `precision="amp"`, `phase="training"`,
            `runtime="compiled"`, `optimizer="adamw"`, `power_limit_w=200`; see `RunOptions`.

    Returns:
        The answer for one device; `Answers` in the order given for a list, or for names that are
        separated by commas.

    Raises:
        UnknownDevice, UnknownMetric, UnknownOption: a name is not known.
        UnreadableModel: the model cannot be read.
        UnanswerableQuery: no predictor can answer.

    Example:
        >>> import forerun
        >>> answer = forerun.predict("model.onnx", device="l4", batch_size=32, precision="amp")
        >>> answer.latency_ms.value, answer.latency_ms.low, answer.latency_ms.high
    """
    here = session()
    if is_request(model):
        each_device = listed(device)
        found = [requested(model, one, metrics, run, here, explain=explain) for one in each_device]
        answers = Answers(tuple(found))
        return answers[0] if is_one(device) else answers
    asked = asked_about(model, run, here)
    devices = here.several(device)
    answers = Answers(tuple(_answer(asked, each, metrics, here, explain) for each in devices))
    return answers[0] if is_one(device) else answers


def fits(
    model: Model,
    stepped: Any = None,
    batch: Any = None,
    /,
    *,
    device: DeviceLike,
    **run: Unpack[RunOptions],
) -> Fit:
    """Whether a model fits a device's memory; the result is true where the safe answer is yes.

    `fits(module, optimizer, batch, device="a100-sxm-80gb")` is about a training step in eager code.

    Args:
        model: as in `predict`.
        stepped: an optimizer of torch that updates a torch module; None for `run` alone.
        batch: inputs of the module: `example_inputs` of `predict`.
        device: name, spec sheet or its path.
        **run: as in `predict`.

    Raises:
        InputError: the optimizer is none that is known.
        UnanswerableQuery: the memory of the run or of the device is not known.
    """
    options: dict[str, Any] = {**_eager_step(model, stepped), **run}
    if batch is not None:
        options["example_inputs"] = batch
    answer = predict(model, device=device, **options)
    if answer.fits is None:
        why = answer.missing.get("peak_memory_mib", "the sheet gives no memory")
        raise UnanswerableQuery(f"Whether it fits {answer.device} is not known: {why}.")
    return answer.fits


def _eager_step(module: Any, optimizer: Any) -> dict[str, Any]:
    """Options of a training step with an optimizer of torch; none without one.

    Raises:
        InputError: the optimizer is none that is known.
    """
    if optimizer is None:
        return {}
    settings, name = getattr(optimizer, "defaults", {}), type(optimizer).__name__
    if name == "SGD" and settings.get("momentum"):
        name = "momentum"
    if name.lower() not in get_args(Optimizer):
        raise InputError(
            f"optimizer: {name} is not known; give optimizer= as one of "
            f"{', '.join(get_args(Optimizer))} in its place."
        )
    step = {"phase": "training", "optimizer": name.lower()}
    dtype = str(next(module.parameters()).dtype).rpartition(".")[2]
    if dtype in (formats := {"bfloat16": "bf16", "float16": "fp16"}):
        step["precision"] = formats[dtype]
    return {**step, **({"optimizer_kernel": "fused"} if settings.get("fused") else {})}


def rank(
    model: Model,
    *,
    device: DeviceLike | Sequence[DeviceLike] | None = None,
    objective: Objective = "latency_ms",
    max_latency_ms: float | None = None,
    max_power_w: float | None = None,
    max_memory_mib: float | None = None,
    must_fit: bool = True,
    in_domain_only: bool = False,
    risk: Risk = "high",
    prices_per_hour: Mapping[str, float] | None = None,
    **run: Unpack[RunOptions],
) -> Ranking:
    """Rank devices that meet limits by an objective, and say why the others do not.

    Args:
        model: as in `predict`.
        device: the candidates; all devices when None.
        objective: what is minimised; only `throughput_per_w` is maximised.
        max_latency_ms: largest latency of a run; None for no limit.
        max_power_w: largest average power; None for no limit.
        max_memory_mib: largest peak memory; None for no limit.
        must_fit: whether the device's memory must be sufficient.
        in_domain_only: whether the predictions must be in domain.
        risk: whether the upper end of the interval (`high`) or the best estimate (`value`) must
            meet the limits.
        prices_per_hour: name of a device -> price of an hour, for the objective `cost`; list
            prices in USD without it.
        **run: as in `predict`.

    Raises:
        InputError: an objective, a name or a model is not valid.
    """
    _check_one_of("objective", objective, get_args(Objective))
    _check_one_of("risk", risk, get_args(Risk))
    here = session()
    asked = asked_about(model, run, here)
    most = {"latency_ms": max_latency_ms, "power_w": max_power_w, "peak_memory_mib": max_memory_mib}
    kept = {name: limit for name, limit in most.items() if limit is not None}
    devices = here.several(device)
    prices = prices_by_device(prices_per_hour or {}, objective, devices, here.device)
    queries = [asked.query(each) for each in devices]
    goal = Goal(objective, samples_of(queries[0]), prices)
    limits = Limits(kept, must_fit, in_domain_only, risk)
    return Ranking.of(ranked(queries, goal, limits, here.in_use), model=asked.name)


def sweep(
    model: Model,
    *,
    device: DeviceLike,
    limits_w: Sequence[float] | None = None,
    slow_down: float = SLOW_DOWN,
    **run: Unpack[RunOptions],
) -> Sweep:
    """Predict time, power and energy at several power limits, and recommend one.

    Args:
        model: as in `predict`.
        device: name, spec sheet or its path.
        limits_w: power limits, W; thirteen from 40 to 100 % of the TDP when None.
        slow_down: slowdown that the advised limit may cost, as a share of the fastest time.
        **run: as in `predict`.

    Raises:
        InputError: a limit is not valid, or the sheet gives no design power.
        UnanswerableQuery: the time or the power is not known.
    """
    if not 0.0 <= slow_down <= 10.0:
        raise InputError(f"slow_down {slow_down!r} is not a share of the time; 0.1 means 10 %.")
    here = session()
    asked = asked_about(model, run, here)
    query = asked.query(here.device(device))
    return Sweep.of(swept(query, limits_w, slow_down, here.in_use), model=asked.name)


def compare(
    model: Model,
    *,
    device: DeviceLike | Sequence[DeviceLike],
    batch_sizes: Sequence[int] | None = None,
    precisions: Sequence[NumberFormat] | None = None,
    **run: Unpack[RunOptions],
) -> Comparison:
    """Predict a model on every device at every batch size and precision.

    Args:
        model: as in `predict`; it is read once for each batch size.
        device: the devices.
        batch_sizes: the batch sizes; only `batch_size` when None.
        precisions: the number formats; only `precision` when None.
        **run: as in `predict`.

    Raises:
        InputError: there are more than 10,000 combinations, or as in `predict`. A combination
            that cannot be answered gets its reason in place of an answer.
    """
    here = session()
    devices = here.several(device)
    sizes = [run.get("batch_size")] if batch_sizes is None else list(batch_sizes)
    formats = [run.get("precision")] if precisions is None else list(precisions)
    if not 0 < len(devices) * len(sizes) * len(formats) <= MOST_COMPARED:
        raise InputError(f"compare takes from 1 to {MOST_COMPARED:,} combinations.")
    asked_all = [
        asked
        for size in sizes
        for asked in _by_format(model, {**run, "batch_size": size}, formats, here)
    ]
    cells = [(asked, each) for asked in asked_all for each in devices]
    queries = [asked.query(each) for asked, each in cells]
    found = answers_to([question_about(query) for query in queries], here.in_use)
    answers, reasons = [], []
    for (asked, each), query, out in zip(cells, queries, found, strict=True):
        if isinstance(out, InputError):
            reasons.append((each.name, query.network.batch_size, asked.run.precision, str(out)))
        else:
            answers.append(Answer.of(out, model=asked.name, query=query))
    return Comparison(tuple(answers), tuple(reasons))


def _by_format(
    model: Any, options: Mapping[str, Any], formats: Sequence[str | None], here: Session
) -> list[Asked]:
    """The question about a model in each number format; the model is read once."""
    runs = [
        {name: value for name, value in {**options, "precision": one}.items() if value is not None}
        for one in formats
    ]
    first = asked_about(model, runs[0], here)
    says_itself = isinstance(model, Mapping) and "kind" in model
    read = model if says_itself or first.graph is None else first.graph
    return [asked_about(read, run, here, first.name) for run in runs]


def _answer(
    asked: Asked, device: Device, metrics: Iterable[str] | None, here: Session, explain: bool
) -> Answer:
    query = asked.query(device)
    wanted = RUN_METRICS if metrics is None else tuple(metrics)
    unknown = [name for name in wanted if name not in RUN_METRICS]
    if unknown:
        raise UnknownMetric(unknown[0], RUN_METRICS)
    question = question_about(query, wanted, explain=explain)
    return Answer.of(answer_of(question, here.in_use), model=asked.name, query=query)


def _check_one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"{option} {value!r} is not one of {', '.join(known)}.")
