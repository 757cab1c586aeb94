"""Programs for high-level synthesis by name, as graphs with slots for directives (HLSyn)."""

from functools import lru_cache
from typing import Any

from forerun.data.named.packed import packed_content, packed_names
from forerun.data.program import ProgramGraph

FOLDER = "program_graphs"


def program_names() -> tuple[str, ...]:
    """Names of all programs, sorted."""
    return packed_names(FOLDER)


@lru_cache(maxsize=32)
def program_named(name: str) -> ProgramGraph | None:
    """The program's graph; None where no program has that name."""
    return program_of(packed_content(FOLDER, name)) if name in program_names() else None


def program_of(content: dict[str, Any]) -> ProgramGraph:
    """A graph from its fields as lists."""
    edges = tuple(tuple(edge) for edge in content["edges"])
    columns = ("types", "texts", "full_texts", "blocks", "functions")
    return ProgramGraph(edges=edges, **{name: tuple(content[name]) for name in columns})
