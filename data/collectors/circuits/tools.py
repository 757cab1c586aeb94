"""Designs of circuits in Verilog, and what makes a circuit of one: yosys and nextpnr-ice40.

A module with more ports than the package has pins gets shift registers around it.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.collectors.runner.worker import finished
from forerun.data.errors import BadTable, InputError, MissingTool, why_unreadable

HERE: Final = Path(__file__).parent
STANDARD: Final = HERE / "plan.yaml"
SOURCES: Final = tuple(sorted((HERE / "verilog").glob("*.v")))
Values = dict[Annotated[str, Field(pattern=r"^\w+$")], Annotated[list[int], Field(min_length=1)]]


@dataclass(frozen=True, slots=True)
class Design:
    """One module with values of its parameters.

    Attributes:
        name: name, unique in a plan.
        family: designs of one family are held out together.
        module: name of the module.
        parameters: name of a parameter -> value.
        sources: files of Verilog.
        is_wrapped: whether shift registers stand between its ports and the pins.
    """

    name: str
    family: str
    module: str
    parameters: Mapping[str, int]
    sources: tuple[Path, ...]
    is_wrapped: bool = False


class ModuleIn(BaseModel):
    """A module of a plan, with grids of the values of its parameters.

    `wrapped` puts shift registers around a module with more ports than the package has pins, and
    `name` tells designs of modules of one name apart.
    """

    model_config = ConfigDict(extra="forbid")

    module: Annotated[str, Field(pattern=r"^\w+$")]
    grids: list[Values] = [{}]
    sources: list[Path] | None = None
    family: str | None = None
    wrapped: bool = False
    name: str | None = None


class PlanIn(BaseModel):
    """A plan: modules, of which those without sources are of the package."""

    model_config = ConfigDict(extra="forbid")

    seeds: Annotated[list[int], Field(min_length=1)]
    modules: list[ModuleIn]


@dataclass(frozen=True, slots=True)
class Plan:
    """Designs, each of which is placed with every seed.

    Attributes:
        seeds: seeds of the placer.
        designs: the designs.
    """

    seeds: tuple[int, ...]
    designs: tuple[Design, ...]

    @classmethod
    def read(cls, path: Path = STANDARD) -> "Plan":
        """The plan of a YAML file, whose sources are relative to it.

        Raises:
            BadTable: it cannot be read, does not fit its schema, or names a design twice.
        """
        import yaml
        from pydantic import ValidationError

        try:
            given = PlanIn.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, yaml.YAMLError, ValidationError) as error:
            raise BadTable(f"The plan {path} cannot be used: {why_unreadable(error)}") from None
        designs = tuple(one for own in given.modules for one in _designs(own, path.parent))
        names = [design.name for design in designs]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise BadTable(f"The plan {path}: the design {min(twice)} is given twice.")
        return cls(tuple(given.seeds), designs)


def _designs(own: ModuleIn, folder: Path) -> Iterator[Design]:
    files = SOURCES if own.sources is None else tuple(folder / path for path in own.sources)
    for grid in own.grids:
        for values in product(*grid.values()):
            parameters = dict(zip(grid, values, strict=True))
            parts = (f"{name.lower()}{value}" for name, value in parameters.items())
            name = "-".join((own.name or own.module, *parts))
            family = own.family or own.module
            yield Design(name, family, own.module, parameters, files, own.wrapped)


WRAPPER: Final = "in_shift_registers"
"""Name of the module that holds another one."""


def wrapper(module: str, parameters: Mapping[str, int], netlist: Mapping[str, Any]) -> str:
    """Verilog of a module that feeds another one from a shift register and reads it by another.

    Its ports are the clock, one bit in, one bit out, and `load`, which takes all outputs at a time.

    Args:
        module: name of the module that is wrapped.
        parameters: values of its parameters.
        netlist: what yosys writes of it as JSON; the first input of one bit whose name begins with
            `clk` or `clock` is its clock.

    Raises:
        ValueError: it has no such input, or a port of both directions.
    """
    ports = _ports(netlist)
    both = [name for name, (way, _) in ports.items() if way not in ("input", "output")]
    if both:
        raise ValueError(f"{module} has ports of both directions: {', '.join(both)}")
    inputs = {name: bits for name, (way, bits) in ports.items() if way == "input"}
    outputs = {name: bits for name, (way, bits) in ports.items() if way == "output"}
    clock = next(
        (name for name, bits in inputs.items() if bits == 1 and name.startswith(("clk", "clock"))),
        None,
    )
    if clock is None:
        raise ValueError(f"{module} has no input clk or clock")
    given = {name: bits for name, bits in inputs.items() if name != clock}
    into, out = max(sum(given.values()), 1), max(sum(outputs.values()), 1)
    values = ", ".join(f".{name}({value})" for name, value in parameters.items())
    wires = [f".{clock}(clk)", *_connected(given, "given"), *_connected(outputs, "own")]
    return f"""module {WRAPPER}(input clk, input in, input load, output out);
  reg [{into - 1}:0] given;
  reg [{out - 1}:0] taken;
  wire [{out - 1}:0] own;
  assign out = taken[{out - 1}];
  always @(posedge clk) begin
    given <= (given << 1) | in;
    taken <= load ? own : taken << 1;
  end
  {module} {f"#({values}) " if values else ""}wrapped ({", ".join(wires)});
endmodule
"""


def _ports(netlist: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Name of a port of the top module -> its direction and its bits."""
    tops = [one for one in netlist["modules"].values() if int(one["attributes"].get("top", "0"), 2)]
    return {
        name: (str(port["direction"]), len(port["bits"])) for name, port in tops[0]["ports"].items()
    }


def _connected(ports: Mapping[str, int], register: str) -> list[str]:
    """Connections of ports to successive bits of a register."""
    found, first = [], 0
    for name, bits in ports.items():
        found.append(f".{name}({register}[{first + bits - 1}:{first}])")
        first += bits
    return found


YOSYS, NEXTPNR = "yosys", "nextpnr-ice40"
DEVICE: Final = ("--hx8k", "--package", "ct256")
LONGEST_S: Final = 1800.0
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*")


class CircuitFailed(InputError):
    """A program could not make a circuit of a design."""


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


def check() -> None:
    """Refuse to start without the programs.

    Raises:
        MissingTool: one is not installed.
    """
    absent = [name for name in (YOSYS, NEXTPNR) if shutil.which(name) is None]
    if absent:
        raise MissingTool(
            f"{' and '.join(absent)} is not installed: on Debian, apt-get install yosys "
            "nextpnr-ice40"
        )


def versions() -> dict[str, str]:
    """Program -> its version."""
    found = {}
    for name, option in ((YOSYS, "-V"), (NEXTPNR, "--version")):
        out = finished([name, option])
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
    script = [*_read(design), f"json -o {ports.name}"]
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
    try:
        done = finished(command, LONGEST_S, cwd=folder, env={**os.environ, "LC_ALL": "C"})
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
