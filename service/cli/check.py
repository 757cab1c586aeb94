"""`forerun check`: what is wrong with a manifest of Kubernetes or a job script of Slurm."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forerun.service.cli.options import Json
from forerun.service.cli.output import print_json, working

if TYPE_CHECKING:
    from forerun.data.device import Device
    from forerun.service.cli.manifests import Asked
    from forerun.service.http.answers import Answers
    from forerun.service.http.kubernetes.findings import Finding


def check(file: Path, device: list[str] | None = None, json: Json = False) -> None:
    """Check the annotations of a manifest or job script, and whether its workloads fit.

    Each finding is one line: the line of the file, what is wrong, and how to correct it. The exit
    code is 1 if there is an error, 0 if there are only warnings or none, and 2 for a file that is
    neither a manifest nor a job script. For a file that names no workload, one line says how to
    name it.

    Args:
        file: manifest of Kubernetes (.yaml, .json) or job script of Slurm
        device: device that it will run on; may be repeated [as the file says]
        json: print one JSON object
    """
    from forerun.data.errors import why_unreadable
    from forerun.service.cli.job_scripts import job_in
    from forerun.service.cli.manifests import UnreadableFile, pods_in
    from forerun.service.http.answers import answers_with
    from forerun.service.loading import load_predictors
    from forerun.service.settings import Settings

    try:
        text = file.read_text(encoding="utf-8")
        is_job = text.startswith("#!") or "\n#SBATCH" in text
        asked = [job_in(text)] if is_job else pods_in(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {file}: {why_unreadable(error)}.") from None
    except UnreadableFile as error:
        raise UnreadableFile(f"{file}: {error}") from None
    settings = Settings.load()
    answers = answers_with(settings, load_predictors(settings))
    names = [name for listed in device or () for name in listed.split(",")]
    devices = list(map(answers.devices.get, names))
    with working("checking"):
        lines = [own for one in asked for own in _lines(one, answers, devices)]
        lines += _unchecked(asked, named=bool(devices), found=bool(lines))
    if json:
        print_json({"findings": lines})
    else:
        for own in lines:
            typer.echo(f"{file}:{own['line']}: {own['severity']}: {own['text']}")
    if any(own["severity"] == "error" for own in lines):
        raise typer.Exit(1)


def _lines(
    asked: "Asked", answers: "Answers", devices: "Sequence[Device]"
) -> "list[dict[str, str | int]]":
    """What is wrong with a pod or job, in the order of the lines."""
    from forerun.service.http.kubernetes.findings import findings_of

    found = [*asked.found, *findings_of(asked.pod, answers, devices)]
    return sorted((_line(own, asked) for own in found), key=lambda own: own["line"])


def _unchecked(
    asked: "Sequence[Asked]", *, named: bool, found: bool
) -> "list[dict[str, str | int]]":
    """Which pods or jobs of a file name no workload, or not the GPU of the slices they request."""
    from forerun.service.cli.job_scripts import COMMENT
    from forerun.service.http.kubernetes.findings import Finding
    from forerun.service.http.kubernetes.nodes import named_products, requested_slice
    from forerun.service.http.kubernetes.pods import PREFIX

    able = [one for one in asked if any(n.startswith(PREFIX) for n in one.places)]
    left, lines = [one for one in asked if one not in able], []
    if left and (able or not found):
        how = f"the annotation {PREFIX}graph or {PREFIX}llm"
        if left[0].is_job:
            how = f"--comment={COMMENT}graph=resnet50,batch_size=64 (or another network)"
        names = ", ".join(f"{one.name or 'one'} (line {one.place.line})" for one in left)
        which = f"{len(left)} of {len(asked)} pods not checked, {names}"
        why = f"{which if able else 'nothing was checked'}: {how} names the workload"
        lines = [_line(Finding("", why), left[0]) | {"severity": "note"}]
    sliced = (one for one in able if requested_slice(one.pod) and not named_products(one.pod))
    if not (named or found) and (first := next(sliced, None)) is not None:
        why = "whether it fits was not checked: name the GPU by nvidia.com/gpu.product or --device"
        lines.append(_line(Finding("", why), first) | {"severity": "note"})
    return lines


def _line(own: "Finding", asked: "Asked") -> "dict[str, str | int]":
    from forerun.service.cli.job_scripts import as_keys

    place = asked.places.get(own.name, asked.place)
    name = place.name or own.name
    text = f"{name}: {own.message}" if name else own.message
    severity = "error" if own.is_error else "warning"
    text = as_keys(text) if asked.is_job else text
    return {"line": place.line, "severity": severity, "text": text}
