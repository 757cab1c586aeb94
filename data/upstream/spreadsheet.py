"""Rows of an .xlsx workbook's sheets: a zip of XML, read with the standard library."""

import io
import re
import zipfile
from xml.etree import ElementTree

from forerun.data.errors import DamagedData

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
Cell = str | float | None


def first_sheet(content: bytes, name: str) -> list[list[Cell]]:
    """Rows of cells; formulas give the values they had when the workbook was saved.

    Args:
        content: the file's bytes.
        name: what people call the file.

    Raises:
        DamagedData: it is no such workbook.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            texts = _texts(book)
            sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))  # noqa: S314
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError) as error:
        raise DamagedData(f"{name} is no readable workbook: {error}.") from error
    return [_row(row, texts) for row in sheet.iter(f"{_MAIN}row")]


def all_sheets(content: bytes, name: str) -> dict[str, list[list[Cell]]]:
    """Rows of cells of every sheet, by the sheet's name, in the workbook's order.

    Args:
        content: the file's bytes.
        name: what people call the file.

    Raises:
        DamagedData: it is no such workbook.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            texts = _texts(book)
            roots = {
                sheet: ElementTree.fromstring(book.read(path))  # noqa: S314
                for sheet, path in _sheet_paths(book).items()
            }
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError) as error:
        raise DamagedData(f"{name} is no readable workbook: {error}.") from error
    return {
        sheet: [_row(row, texts) for row in root.iter(f"{_MAIN}row")]
        for sheet, root in roots.items()
    }


def _sheet_paths(book: zipfile.ZipFile) -> dict[str, str]:
    """Name of each sheet -> path of its part in the archive, by the workbook's relationships."""
    links = ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels"))  # noqa: S314
    targets = {link.get("Id", ""): link.get("Target", "") for link in links}
    workbook = ElementTree.fromstring(book.read("xl/workbook.xml"))  # noqa: S314
    paths = {}
    for sheet in workbook.iter(f"{_MAIN}sheet"):
        target = targets[sheet.get(_LINK, "")]
        # A target is absolute, or relative to the workbook's own folder.
        path = target.removeprefix("/") if target.startswith("/") else f"xl/{target}"
        paths[sheet.get("name", "")] = path
    return paths


def _texts(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    table = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))  # noqa: S314
    return ["".join(t.text or "" for t in item.iter(f"{_MAIN}t")) for item in table]


def _row(row: ElementTree.Element, texts: list[str]) -> list[Cell]:
    cells: list[Cell] = []
    for cell in row:
        place = _column(cell.get("r", ""), len(cells))
        cells += [None] * (place - len(cells))
        cells.append(_value(cell, texts))
    return cells


def _column(reference: str, default: int) -> int:
    letters = re.match(r"[A-Z]+", reference)
    if letters is None:
        return default
    place = 0
    for letter in letters[0]:
        place = 26 * place + ord(letter) - ord("A") + 1
    return place - 1


def _value(cell: ElementTree.Element, texts: list[str]) -> Cell:
    value = cell.find(f"{_MAIN}v")
    if value is None or value.text is None:
        inline = cell.find(f"{_MAIN}is")
        return None if inline is None else "".join(t.text or "" for t in inline.iter(f"{_MAIN}t"))
    if cell.get("t") == "s":
        return texts[int(value.text)]
    if cell.get("t") in ("str", "e"):
        return value.text
    return float(value.text)
