"""Rows of an .xlsx workbook's sheets, read by calamine."""

import io

from python_calamine import CalamineError, CalamineWorkbook

from forerun.data.errors import DamagedData

Cell = str | float | None


def all_sheets(content: bytes, name: str) -> dict[str, list[list[Cell]]]:
    """Rows of cells of every sheet, by the sheet's name, in the workbook's order.

    Formulas give the values they had when the workbook was saved; cells without a value and cells
    of formulas that failed are None. All rows of a sheet have as many cells as its widest one.

    Args:
        content: the file's bytes.
        name: what people call the file.

    Raises:
        DamagedData: it is no such workbook.
    """
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(content))
        sheets = {
            sheet: book.get_sheet_by_name(sheet).to_python(skip_empty_area=False)
            for sheet in book.sheet_names
        }
    except CalamineError as error:
        raise DamagedData(f"{name} is no readable workbook: {error}.") from error
    return {
        sheet: [[_value(cell) for cell in row] for row in rows] for sheet, rows in sheets.items()
    }


def _value(cell: object) -> Cell:
    if isinstance(cell, int | float):
        return float(cell)
    return str(cell) if cell != "" else None
