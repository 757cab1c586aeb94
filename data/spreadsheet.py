"""Rows of an .xlsx workbook's first sheet: a zip of XML, read with the standard library."""

import io
import re
import zipfile
from xml.etree import ElementTree

from forerun.data.errors import DamagedData

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
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
