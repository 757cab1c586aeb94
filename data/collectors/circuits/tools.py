"""The programs that make a circuit of Verilog: yosys and nextpnr-ice40."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forerun.data.collectors.circuits.designs import Design
from forerun.data.collectors.circuits.wrapping import WRAPPER, wrapper
from forerun.data.errors import InputError, MissingTool

YOSYS, NEXTPNR = "yosys", "nextpnr-ice40"
DEVICE: Final = ("--hx8k", "--package", "ct256")
LONGEST_S: Final = 1800.0
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*")


class CircuitFailed(InputError):
    """A program could not make a circuit of a design."""

    slug = "circuit-failed"


@dataclass(frozen=True, slots=True)
class Placed:
    """Files of one placement.

    Attributes:
        routed: delays after routing, SDF.
        estimated: delays by the placement alone, SDF.
        report: frequencies and resources, JSON.
        netlist: cells with their places, JSON.
        seconds: time of placing and routing.
    """

    routed: Path
    estimated: Path
    report: Mapping[str, Any]
    netlist: Mapping[str, Any]
    seconds: float


def missing() -> str | None:
    """Why no circuit can be made here; None where both programs are there."""
    absent = [name for name in (YOSYS, NEXTPNR) if shutil.which(name) is None]
    if not absent:
        return None
    return (
        f"{' and '.join(absent)} is not installed: on Debian, apt-get install yosys nextpnr-ice40"
    )


def check() -> None:
    """Refuse to start without the programs.

    Raises:
        MissingTool: one is not installed.
    """
    why = missing()
    if why is not None:
        raise MissingTool(why)


def versions() -> dict[str, str]:
    """Program -> its version."""
    found = {}
    for name, option in ((YOSYS, "-V"), (NEXTPNR, "--version")):
        out = subprocess.run(  # noqa: S603
            [name, option], capture_output=True, text=True, check=False
        )
        match = _VERSION.search(out.stdout + out.stderr)
        found[name] = match.group() if match else "unknown"
    return found


def synthesised(design: Design, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The netlist of a design for iCE40, and the numbers of its cells by type before mapping.

    Raises:
        CircuitFailed: yosys refuses the design.
    """
    netlist, words = folder / "netlist.json", folder / "words.json"
    if design.is_wrapped:
        design = _wrapped(design, folder)
    script = [
        *_read(design),
        "flatten",
        "opt -full",
        f"tee -q -o {words.name} stat -json",
        f"synth_ice40 -top {design.module} -json {netlist.name}",
    ]
    # Not all commands of yosys take a name with spaces, so that they write where they run.
    _run([YOSYS, "-q", "-p", "; ".join(script)], folder)
    return netlist, _statistics(words)


def mapped(source: Path) -> Any:
    """The netlist of a Verilog file for iCE40, as yosys writes it in JSON.

    The top module is the one that no other contains, or has the attribute `top`.

    Raises:
        MissingTool: yosys is not installed.
        CircuitFailed: it refuses the file.
    """
    if shutil.which(YOSYS) is None:
        raise MissingTool(f"{YOSYS} is not installed: on Debian, apt-get install yosys")
    with TemporaryDirectory() as scratch:
        script = f'read_verilog -sv "{source.absolute()}"; synth_ice40 -json netlist.json'
        _run([YOSYS, "-q", "-p", script], Path(scratch))
        return _json(Path(scratch) / "netlist.json")


def _read(design: Design) -> list[str]:
    """Commands that read a design with its parameters."""
    given = " ".join(f"-set {name} {value}" for name, value in design.parameters.items())
    files = " ".join(f'"{path.absolute()}"' for path in design.sources)
    return [
        f"read_verilog -sv -defer {files}",
        *([f"chparam {given} {design.module}"] if given else []),
        f"hierarchy -check -top {design.module}",
        "proc",
    ]


def _wrapped(design: Design, folder: Path) -> Design:
    """The design with shift registers around it.

    Raises:
        CircuitFailed: yosys refuses it, or it has no clock.
    """
    ports, file = folder / "ports.json", folder / "wrapper.v"
    script = [
        *_read(design),
        f"json -o {ports.name}",
    ]
    _run([YOSYS, "-q", "-p", "; ".join(script)], folder)
    try:
        file.write_text(wrapper(design.module, design.parameters, _json(ports)), encoding="utf-8")
    except ValueError as error:
        raise CircuitFailed(f"{design.name}: {error}.") from None
    return replace(design, module=WRAPPER, parameters={}, sources=(*design.sources, file))


def placed(netlist: Path, seed: int, folder: Path) -> Placed:
    """A netlist placed and routed with a seed, and its delays before and after routing.

    Raises:
        CircuitFailed: the design does not fit, or cannot be routed.
    """
    begun = time.monotonic()
    routed, estimated = folder / "routed.sdf", folder / "estimated.sdf"
    report, cells = folder / "report.json", folder / "cells.json"
    common = [NEXTPNR, *DEVICE, "-q", "--timing-allow-fail", "--json", str(netlist)]
    common += ["--seed", str(seed)]
    written = ["--report", str(report), "--write", str(cells)]
    _run([*common, "--no-route", "--sdf", str(estimated)])
    _run([*common, "--sdf", str(routed), *written])
    return Placed(routed, estimated, _json(report), _json(cells), time.monotonic() - begun)


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_S,
            cwd=folder,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise CircuitFailed(f"{command[0]} took over {LONGEST_S:,.0f} s.") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        why = lines[0].strip() if lines else f"exit code {done.returncode}"
        raise CircuitFailed(f"{command[0]}: {why[:300]}")


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8", errors="replace"))


def _statistics(path: Path) -> dict[str, Any]:
    """Type of a cell -> number, and the numbers of wires and bits."""
    text = path.read_text(encoding="utf-8")
    found = json.loads(text[text.index("{") :])["design"]
    return {**found.get("num_cells_by_type", {}), "bits": found["num_wire_bits"]}
