"""Designs of a plan: a module of Verilog with values of its parameters, in a family."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.errors import BadTable

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
            raise BadTable(
                f"The plan {path} cannot be used: {' '.join(str(error).split())}"
            ) from None
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
