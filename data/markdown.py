"""Markdown pages from Jinja templates, with filters for the cells of their tables."""

from functools import cache, partial
from typing import Any, Final

from forerun.data.lazy import jinja2

NONE: Final = "–"
"""A cell without a value."""
FORMATS: Final = {
    "percent": "{:,.1f} %",
    "share": "{:.3f}",
    "number": "{:,.2f}",
    "whole": "{:,}",
    "plain": "{}",
    "bold": "**{}**",
}
"""Filter -> format of a value; `NONE` where it is missing."""


def markdown(package: str, template: str, **values: Any) -> str:
    """The text of a template.

    Args:
        package: package with the template.
        template: name of its file.
        values: what the template refers to.
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> "jinja2.Environment":
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=jinja2.select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {name: partial(_formatted, text) for name, text in FORMATS.items()}
    found.filters |= {"cell": cell, "spaced": _spaced}
    return found


def _formatted(text: str, value: Any) -> str:
    return NONE if value is None or isinstance(value, jinja2.Undefined) else text.format(value)


def _spaced(name: str, before: str = "") -> str:
    return before + name.replace("_", " ")


def cell(text: str) -> str:
    """The text as a cell of a table, on one line."""
    return " ".join(text.replace("|", "\\|").split()) or NONE
