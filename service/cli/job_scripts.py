"""A job script of Slurm, with the lines of its options: the comment for forerun, and its GPUs."""

import argparse
import re
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from forerun.service.cli.manifests import Asked, Place
from forerun.service.http.kubernetes.extender import Container, Metadata, Pod, PodSpec, Resources
from forerun.service.http.kubernetes.findings import Finding
from forerun.service.http.kubernetes.nodes import NVIDIA
from forerun.service.http.kubernetes.pods import PREFIX

COMMENT: Final = "forerun:"
OF_PODS: Final = ("llm", "workload", "program", "min_relative_speed", "software", "power_limit_w")
"""Fields that the plug-in of Slurm does not read."""
GPUS: Final = ("gpus", "gpus_per_node", "gpus_per_task", "gres")
FORM: Final = "write gpu:COUNT or gpu:TYPE:COUNT, such as gpu:a100:2"
PRODUCT: Final = f"{NVIDIA}.product"


def job_in(text: str) -> Asked:
    """The job of a script, as the pod that would ask for the same.

    Options of sbatch stand in comments before the first command.
    """
    options = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    for flag in ("--comment", "--gres", "--gpus-per-node", "--gpus-per-task"):
        options.add_argument(flag)
    for short, flag in (("-G", "--gpus"), ("-N", "--nodes"), ("-n", "--ntasks")):
        options.add_argument(short, flag)
    given: dict[str, str] = {}
    lines: dict[str, Place] = {}
    found: list[Finding] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        if not line.startswith("#SBATCH"):
            continue
        try:
            known, _ = options.parse_known_args(shlex.split(line, comments=False)[1:])
        except (ValueError, argparse.ArgumentError) as error:
            found.append(Finding("", f"line {number} cannot be read: {error}"))
            continue
        for name, value in vars(known).items():
            if value is not None:
                given[name] = value
                lines[name] = Place(number, f"--{name.replace('_', '-')}")
    places = dict(lines)
    annotations = _annotations(given.get("comment", ""), lines, places, found)
    kinds, count = _gpus(given, lines, places, found) if annotations else ([], None)
    limits = {} if count is None else {NVIDIA: str(count)}
    selector = {PRODUCT: kinds[0]} if kinds else None
    spec = PodSpec([Container(Resources(limits))], selector)
    return Asked(Pod(Metadata(annotations=annotations), spec), Place(1), places, found, is_job=True)


def as_keys(text: str) -> str:
    """A text about the annotations of a pod, with the keys of a job's comment in their place."""
    return re.sub(rf"{PREFIX}([a-z-]+)", lambda found: found[1].replace("-", "_"), text)


def _annotations(
    comment: str, lines: Mapping[str, Place], places: dict[str, Place], found: list[Finding]
) -> dict[str, str]:
    """The entries of a comment as the annotations of a pod."""
    prefix, colon, entries = comment.partition(":")
    if f"{prefix}{colon}" != COMMENT:
        if colon and get_close_matches(prefix, [COMMENT[:-1]], 1, 0.8):
            found.append(Finding("comment", f"{prefix!r:.80} is not read; did you mean {COMMENT}?"))
        return {}
    annotations = {}
    for entry in filter(None, map(str.strip, entries.split(","))):
        name, equals, value = (part.strip() for part in entry.partition("="))
        place = Place(lines["comment"].line, name)
        if not equals:
            found.append(Finding("comment", f"{entry!r:.80} is not KEY=VALUE"))
        elif name in OF_PODS:
            found.append(Finding("comment", f"{name} is read of pods alone, not of jobs"))
        elif name == "batches":
            if not value.isdecimal():
                found.append(Finding("comment", f"batches={value:.80} is not a number"))
        else:
            annotations[own := f"{PREFIX}{name.replace('_', '-')}"] = value
            places[own] = place
    return annotations


def _gpus(
    given: Mapping[str, str],
    lines: Mapping[str, Place],
    places: dict[str, Place],
    found: list[Finding],
) -> tuple[list[str], int | None]:
    """Types of the GPUs that a job names, and how many it requests; None where it requests none."""
    kinds: list[str] = []
    total: int | None = None
    nodes, tasks = (_first(given.get(name)) for name in ("nodes", "ntasks"))
    for option in (name for name in GPUS if name in given):
        for entry in given[option].split(","):
            parts = re.split("[:=]", entry.strip().removeprefix("gres/"))
            if option == "gres" and parts[0] != "gpu":
                if parts[0].isdecimal() or get_close_matches(parts[0], ["gpu"], 1, LIKE_GPU):
                    found.append(Finding(option, f"{entry!r:.80} requests no GPU: {FORM}"))
                continue
            kind, count = _kind_and_count(parts[option == "gres" :])
            if count is None:
                found.append(Finding(option, f"{entry!r:.80} is not a number of GPUs: {FORM}"))
                continue
            times = {"gpus": 1, "gpus_per_task": tasks}.get(option, nodes)
            total = (total or 0) + count * times
            kinds += [kind] if kind else []
            places |= {NVIDIA: lines[option], PRODUCT: lines[option]}
    return kinds, total


LIKE_GPU: Final = 0.7


def _kind_and_count(parts: list[str]) -> tuple[str, int | None]:
    """Type and number of GPUs of TYPE:COUNT, TYPE, COUNT or nothing; no number where it is none."""
    match parts:
        case []:
            return "", 1
        case [count] if count.isdecimal():
            return "", int(count)
        case [kind]:
            return kind, 1
        case [kind, count] if count.isdecimal() and not kind.isdecimal():
            return kind, int(count)
    return "", None


def _first(text: str | None) -> int:
    """The least of a number or range, such as 2-4; 1 without one."""
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else 1
