"""Measurement plans that come with the package, and how a plan is found by name or path."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from forerun.data.errors import BadTable, MissingData, why_unreadable


def packaged_plans() -> tuple[str, ...]:
    """Names of the plans of this package, in alphabetical order."""
    return tuple(sorted(file.stem for file in _folder().glob("*.yaml")))


def plan_file(plan: Path) -> Path:
    """The file of a plan: the path itself where it is a file, else the packaged plan of that name.

    Args:
        plan: path of a YAML file, or a name such as `cpu-standard`.

    Raises:
        MissingData: it is neither; the message lists the packaged plans.
    """
    if plan.is_file():
        return plan
    if plan.name == str(plan) and plan.name in packaged_plans():
        return _folder() / f"{plan}.yaml"
    known = ", ".join(packaged_plans())
    raise MissingData(f"No plan {plan}: give a .yaml file, or one of {known}.")


def plan_content(plan: Path) -> Any:
    """The content of the file of a plan, as `plan_file` finds it.

    Raises:
        MissingData: there is none.
        BadTable: it is not YAML.
    """
    import yaml

    try:
        return yaml.safe_load(plan_file(plan).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadTable(f"{plan} cannot be read: {why_unreadable(error)}.") from None


def _folder() -> Path:
    return Path(str(files(__name__)))
