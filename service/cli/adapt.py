"""`forerun adapt`, `observe` and `drift`: measurements to adapt to, or to compare answers with."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.data.errors import InputError, UnanswerableQuery
from forerun.service.cli import options as o
from forerun.service.cli.output import print_json, progress, screen, show, table
from forerun.service.requests.model_source import described_model
from forerun.service.schemas.run_options import PlainRunIn
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from forerun.data.query import Query
    from forerun.service.adaptation.held_out import HeldOut
    from forerun.service.adaptation.predictor_in_use import Adaptation, AdaptationResult
    from forerun.service.schemas.measurements import DriftOut
    from forerun.service.stores.measurement_sets import MeasurementSet


def adapt(
    sources: Annotated[list[Path] | None, typer.Argument()] = None,
    device: str | None = None,
    graphs: Path | None = None,
    sheet: str | None = None,
    model: str | None = None,
    tensor: Annotated[int, typer.Option("--tp", min=1)] = 1,
    engine: str = "vllm",
    suggest: Annotated[int | None, typer.Option(min=1, max=1000)] = None,
    batch_size: Annotated[int, typer.Option(min=1, max=65536)] = 1,
    precision: str = "fp32",
    runtime: str = "eager",
    listed: Annotated[bool, typer.Option("--list")] = False,
    rollback: bool = False,
    json: o.Json = False,
) -> None:
    """Adapt the predictors to measurements of a device, and print errors on held-out rows.

    Args:
        sources: measurements, .parquet, .csv or .json; candidates with --suggest
        device: name of the device
        graphs: folder of the networks' graphs [<table>-graphs next to the table]
        sheet: spec sheet .yaml or .json to register; auto detects this processor
        model: language model of a served run: name or config.json
        tensor: devices that shared a layer
        engine: engine that served it
        suggest: suggest N workloads to measure next
        batch_size: batch size of candidates
        precision: precision of candidates: fp32, fp16, amp, ...
        runtime: runtime of candidates: eager, compiled, ...
        listed: list the stored sets
        rollback: roll back the device's last set
        json: print one JSON object
    """
    settings, files = Settings.load(), sources or []
    if (suggest is not None) + listed + rollback > 1 or (files and (listed or rollback)):
        raise InputError("Give measurements, or one of --suggest, --list and --rollback.")
    if listed:
        _list(device, settings, json)
    elif device is None:
        raise InputError("Name the device with --device.")
    elif suggest is not None:
        given = {"batch_size": batch_size, "precision": precision, "runtime": runtime}
        how = o.checked(PlainRunIn, given).model_dump(include=set(given))
        show_suggestions(settings, device, files, suggest, how, json)
    elif rollback:
        _rollback(settings, device, json)
    elif len(files) != 1:
        raise InputError("Give one file of measurements; --suggest says which to take.")
    else:
        if sheet is not None:
            from forerun.service.python.own_measurements.measured_file import register_for

            registered = register_for(settings, device, sheet, files[0])
            progress(f"{registered.name} is registered as {registered.title}")
        _learn(settings, device, files[0], graphs, json, served(model, tensor, engine))


def served(model: str | None, tensor: int, engine: str) -> dict[str, Any]:
    """What a load generator's result does not say, as fields of a request."""
    given = {} if model is None else {"model": described_model(model)}
    return {"parallelism": {"tensor": tensor}, "engine": {"name": engine}, **given}


def _learn(
    settings: "Settings",
    name: str,
    file: Path,
    graphs: Path | None,
    json: bool,
    served: dict[str, Any],
) -> None:
    from forerun.service.python.own_measurements.measured_file import adapt_to_file
    from forerun.service.schemas.llm.answers import counted

    result, left_out = adapt_to_file(settings, name, file, graphs, progress, served)
    if json:
        print_json(_facts(result, left_out))
        return
    show_errors(result.errors)
    kept = result.kept
    screen().print(
        f"kept {counted(len(kept.rows), 'measurement')} of {kept.device} as set {kept.id}; "
        f"{result.rows} in use, predictor {result.version}. "
        f"Undo: forerun adapt --device {kept.device} --rollback"
    )


def _facts(result: "AdaptationResult", left_out: int) -> dict[str, Any]:
    """The stored set, errors before and after adaptation, and whether the rows suffice."""
    errors = {
        metric: asdict(own) | {"enough": own.enough, "worse": own.worse}
        for metric, own in result.errors.metrics.items()
    }
    known = result.out().model_dump(exclude={"source"})
    return {**known, "errors": errors, "left_out": left_out, "enough": result.errors.enough}


def show_errors(errors: "HeldOut") -> None:
    """Print errors before and after adaptation as a table."""
    from forerun.service.python.own_measurements.adapting import errors_view

    how = "one by one" if errors.one_by_one else f"in {errors.folds} parts"
    show(errors_view(f"errors on measurements held out {how}", errors.metrics))


def _list(name: str | None, settings: "Settings", json: bool) -> None:
    from forerun.service.stores.devices import devices_of
    from forerun.service.stores.measurement_sets import AdaptationStore
    from forerun.service.stores.places import place_of

    wanted = None if name is None else devices_of(settings).get(name).name
    sets = AdaptationStore(place_of(settings) / "measurements").sets(wanted)
    if json:
        print_json({"sets": [_set(kept) for kept in sets]})
        return
    if not sets:
        typer.echo("no measurements are kept" + (f" of {wanted}" if wanted else ""))
        return
    rows = table("set", "device", "rows", "in use")
    for kept in sets:
        in_use = "undone" if kept.undone else "yes"
        rows.add_row(kept.id, kept.device, str(len(kept.rows)), in_use)
    screen().print(rows)


def _set(kept: "MeasurementSet") -> dict[str, Any]:
    return {
        "set": kept.id,
        "device": kept.device,
        "time": kept.time.isoformat(),
        "rows": len(kept.rows),
        "undone": kept.undone,
    }


def _rollback(settings: "Settings", name: str, json: bool) -> None:

    from forerun.service.loading import adaptation_here

    adaptation, _ = adaptation_here(settings)
    undone = adaptation.undo(name)
    if json:
        print_json(_set(undone))
        return
    typer.echo(f"set {undone.id} of {undone.device} ({len(undone.rows)} rows) is undone")


def observe(
    file: Path,
    device: Annotated[str, typer.Option()],
    graphs: Path | None = None,
    model: str | None = None,
    tensor: Annotated[int, typer.Option("--tp", min=1)] = 1,
    engine: str = "vllm",
    json: o.Json = False,
) -> None:
    """Store measurements as observations, and print how far predictions were from them.

    A file of the same measurements is stored once. `forerun drift` reports all of them.

    Args:
        file: measurements, .parquet, .csv or .json
        device: name of the device
        graphs: folder of the networks' graphs [<table>-graphs next to the table]
        model: language model of a served run: name or config.json
        tensor: devices that shared a layer
        engine: engine that served it
        json: print one JSON object
    """
    from forerun.service.answers.observing import summary_of
    from forerun.service.python.own_measurements.adapting import Observations
    from forerun.service.python.own_measurements.measured_file import observe_file

    how = served(model, tensor, engine)
    own, left_out = observe_file(Settings.load(), device, file, graphs, how)
    observed = Observations.of(own, left_out)
    if json:
        content = summary_of(own.kept).model_dump()
        print_json({**content, "left_out": left_out, "new": observed.is_new})
        return
    kept = "kept" if observed.is_new else "kept before, as they are now:"
    said = (
        f"{kept} {observed.rows} observations of {observed.device} as set {observed.set_id}, "
        f"{left_out} left out; {observed.judged} have an answer. All of them: "
        f"forerun drift --device {observed.device}"
    )
    show(replace(observed.view(), lines=(said,)))


def drift(
    device: str | None = None,
    version: str | None = None,
    track: bool = False,
    uri: str | None = None,
    json: o.Json = False,
) -> None:
    """Print how far predictions were from observations, and which slices have drifted.

    Args:
        device: name of a device [all]
        version: version of the predictors whose answers are scored, or all [in use]
        track: log the report as a run in MLflow
        uri: MLflow tracking URI, with --track
        json: print one JSON object
    """
    from forerun.service.answers.drift import drift_here
    from forerun.service.loading import versions_at_hand
    from forerun.service.python.own_measurements.adapting import Drift

    settings = Settings.load()
    report = drift_here(settings, device, version, versions_at_hand(settings))
    if track:
        _track(report, uri)
    if json:
        print_json(report.model_dump(mode="json"))
        return
    if not report.observations:
        typer.echo("no observations are kept" + (f" of {device}" if device else ""))
        return
    show(Drift.of(report).view())
    scored = {own.version for own in report.slices}
    if others := [name for name in report.versions if name not in scored]:
        how = "too few to score" if version == "all" else "--version all adds them"
        typer.echo(f"not scored here: answers of {', '.join(others)}; {how}")


def _track(report: "DriftOut", uri: str | None) -> None:
    """Log the live errors and the report as a run in MLflow."""
    from forerun.training.tracking import runs

    several = len({own.version for own in report.slices}) > 1
    with runs.tracked("drift", uri, tags={"forerun.kind": "drift"}) as run:
        for own in report.slices:
            version = own.version if several else None
            parts = (version, own.device, own.kind, own.family, own.precision, own.metric)
            live, name = own.live, "/".join(part for part in parts if part)
            scores = {"mape": live.mape, "bias": live.bias, "coverage_90": live.coverage_90}
            run.scores(name, {**scores, "n": live.rows, "alarm": int(own.alarm)})
        run.text("drift.json", report.model_dump_json(indent=1))
        run.text("alarms.txt", "".join(f"{alarm.message}\n" for alarm in report.alarms))


def show_suggestions(
    settings: "Settings",
    name: str,
    sources: list[Path],
    count: int,
    how: dict[str, Any],
    json: bool,
) -> None:
    """Print the candidates to measure on a device; as JSON, a list with values to fill in.

    Raises:
        UnanswerableQuery: no candidate is left to measure.
    """
    from forerun.service.adaptation.suggestion import candidates_of
    from forerun.service.loading import adaptation_here
    from forerun.service.stores.graphs import graphs_of

    adaptation, devices = adaptation_here(settings)
    device = devices.get(name)
    chosen = _chosen(adaptation, device.name, candidates_of(sources, device, **how), count)
    graphs = graphs_of(settings)
    for query in chosen.values():
        if query.run.kind == "network":
            graphs.put(query.run.graph)
    worth = adaptation.worth(device.name)
    if json:
        print_json(_to_fill_in(device.name, chosen, worth))
    else:
        _show(device.name, chosen, worth)


def _chosen(
    adaptation: "Adaptation", name: str, given: "dict[str, Query]", count: int
) -> "dict[str, Query]":
    from forerun.service.adaptation.held_out import key_of
    from forerun.service.adaptation.suggestion import suggested

    predictor = adaptation.current().loaded.predictor
    measured = adaptation.rows_of(name)
    measured_queries = [] if measured is None else list(measured.queries)
    done = {key_of(query) for query in measured_queries}
    candidates = {
        label: query
        for label, query in given.items()
        if query.has_bound and predictor.answers(query) and key_of(query) not in done
    }
    if not candidates:
        raise UnanswerableQuery(
            f"None of the {len(given)} candidates is left to measure on {name}: each was measured, "
            "or no predictor answers it there."
        )
    labels = list(candidates)
    indices = suggested(predictor, list(candidates.values()), measured_queries, count)
    return {labels[index]: candidates[labels[index]] for index in indices}


def _to_fill_in(name: str, chosen: "dict[str, Query]", worth: "HeldOut | None") -> dict[str, Any]:
    from forerun.service.schemas.workloads import workload_in

    return {
        "device": name,
        "enough": worth is not None and worth.enough,
        "candidates": list(chosen),
        "measurements": [
            {
                "workload": workload_in(query.run).model_dump(mode="json"),
                "software": query.software.model_dump(mode="json", exclude_none=True),
                "metrics": {"latency_ms": None},
            }
            for query in chosen.values()
        ],
    }


def _show(name: str, chosen: "dict[str, Query]", worth: "HeldOut | None") -> None:

    out = screen()
    out.print(f"to measure on [bold]{name}[/bold], the most informative first:")
    for index, (label, query) in enumerate(chosen.items(), 1):
        out.print(f"  {index}. {label} in {query.run.precision}", markup=False)
    if worth is not None:
        show_errors(worth)
        if worth.enough:
            out.print("[bold]enough[/bold]: further rows would gain less than 1 %")
    out.print("--json prints them as a list to fill in, which `forerun adapt` reads back")
