"""A collection of circuits in a folder: each design is made once, and a resumed run goes on."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.data.collectors.circuits import tools
from forerun.data.collectors.circuits.tables import tables_of
from forerun.data.collectors.circuits.tools import STANDARD, CircuitFailed, Design, Plan
from forerun.data.collectors.runner.journal import LineJournal
from forerun.data.lazy import pd

TABLES: Final = ("runs", "words", "nodes", "arcs", "paths")
_ZSTD_LEVEL: Final = 12


@dataclass(frozen=True)
class Made:
    """What became of a design.

    Attributes:
        design: its name.
        problem: why there is no circuit of it; None where there is one.
    """

    design: str
    problem: str | None = None


@dataclass(frozen=True)
class Collection:
    """A plan and the folder in which it is carried out.

    Attributes:
        plan: designs and seeds.
        folder: one folder for each design that is done, and the tables of all.
    """

    plan: Plan
    folder: Path

    @classmethod
    def open(cls, folder: Path, plan: Path = STANDARD) -> "Collection":
        """The collection of a plan in a folder, new or resumed.

        Raises:
            BadTable: the plan cannot be used.
            MissingTool: yosys or nextpnr-ice40 is not installed.
        """
        tools.check()
        return cls(Plan.read(plan), folder)

    @property
    def failures(self) -> LineJournal:
        """Designs of which no circuit could be made, with the reason."""
        return LineJournal(self.folder / "failures.jsonl")

    def todo(self) -> list[Design]:
        """Designs that are neither done nor failed, in the order of the plan."""
        failed = {str(row["design"]) for row in self.failures.rows()}
        return [
            design
            for design in self.plan.designs
            if design.name not in failed and not self._at(design).is_dir()
        ]

    def run(self, *, jobs: int = 1, budget_minutes: float | None = None) -> Iterator[Made]:
        """Make the circuits that are left.

        Args:
            jobs: designs that are made at a time.
            budget_minutes: no design is begun after that time; no limit when None.

        Yields:
            What became of each design, as it is done.
        """
        deadline = None if budget_minutes is None else time.monotonic() + 60.0 * budget_minutes

        def made(design: Design) -> Made | None:
            if deadline is not None and time.monotonic() > deadline:
                return None
            return self._make(design)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                for one in pool.map(made, self.todo()):
                    if one is not None:
                        yield one
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def frames(self) -> dict[str, "pd.DataFrame"]:
        """The tables of all designs that are done, in the order of the plan."""
        done = [self._at(design) for design in self.plan.designs if self._at(design).is_dir()]
        if not done:
            return {}
        return {
            name: pd.concat(
                [pd.read_parquet(folder / f"{name}.parquet") for folder in done], ignore_index=True
            )
            for name in TABLES
        }

    def write_tables(self) -> dict[str, int]:
        """Write the tables of all designs that are done, and what made them.

        Returns:
            Name of a table -> number of its rows.
        """
        frames = self.frames()
        if frames:
            about = {"tools": tools.versions(), "device": list(tools.DEVICE)}
            (self.folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
        for name, frame in frames.items():
            path = self.folder / f"{name}.parquet"
            frame.to_parquet(path, compression="zstd", compression_level=_ZSTD_LEVEL, index=False)
        return {name: len(frame) for name, frame in frames.items()}

    def _at(self, design: Design) -> Path:
        return self.folder / "designs" / design.name

    def _make(self, design: Design) -> Made:
        """One circuit, whose folder appears when all of it is written."""
        target = self._at(design)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
        try:
            netlist, statistics = tools.synthesised(design, scratch)
            runs = {}
            for seed in self.plan.seeds:
                own = scratch / str(seed)
                own.mkdir()
                runs[seed] = tools.placed(netlist, seed, own)
            frames = tables_of(design, statistics, runs)
            ready = scratch / "tables"
            ready.mkdir()
            for name, frame in frames.items():
                frame.to_parquet(ready / f"{name}.parquet", compression="zstd", index=False)
            ready.replace(target)
        except CircuitFailed as error:
            self.failures.append({"design": design.name, "why": str(error)})
            return Made(design.name, f"{design.name}: {error}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return Made(design.name)
