"""Suggest workloads to measure next, and say whether further rows are worth it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.service.cli.output import print_json, screen

if TYPE_CHECKING:
    from forerun.data.query import Query
    from forerun.service.adaptation.held_out import HeldOut
    from forerun.service.adaptation.predictor_in_use import Adaptation
    from forerun.service.settings import Settings


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
    from forerun.service.stores.graphs import GraphStore
    from forerun.service.stores.places import place_of

    adaptation, devices = adaptation_here(settings)
    device = devices.get(name)
    chosen = _chosen(adaptation, device.name, candidates_of(sources, device, **how), count)
    graphs = GraphStore(place_of(settings) / "graphs", settings.graphs_kept)
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
    from forerun.data.errors import UnanswerableQuery
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
    from forerun.service.cli.adapt import show_errors

    out = screen()
    out.print(f"to measure on [bold]{name}[/bold], the most informative first:")
    for index, (label, query) in enumerate(chosen.items(), 1):
        out.print(f"  {index}. {label} in {query.run.precision}", markup=False)
    if worth is not None:
        show_errors(worth)
        if worth.enough:
            out.print("[bold]enough[/bold]: further rows would gain less than 1 %")
    out.print("--json prints them as a list to fill in, which `forerun adapt` reads back")
