"""Read published pickles as plain data, without running any code in them, and workbooks.

A pickle is a program for a small stack machine. This module only implements the instructions that
build numbers, text, lists, tuples and dictionaries, and one name: NumPy's scalar, which becomes a
float. Everything else is rejected, so that the worst outcome is an unreadable file.
"""

import io
import pickletools
import struct
import zipfile
from typing import Any, Final

from python_calamine import CalamineError, CalamineWorkbook

from forerun.data.errors import DamagedData

_PUSH: Final = frozenset(
    "BINFLOAT BININT BININT1 BININT2 BINUNICODE SHORT_BINUNICODE SHORT_BINBYTES BINBYTES".split()
)
_EMPTY: Final = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_MARK: Final = object()
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NAMES: Final = frozenset(
    {"numpy.core.multiarray scalar", "numpy._core.multiarray scalar", "numpy dtype"}
    | {"_codecs encode"}
)
_NUMBERS: Final = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i"}


def plain_data(content: bytes, where: str) -> Any:
    """The content of a pickle, or of a file of torch.save without tensors.

    Args:
        content: the file.
        where: name of the file in messages.

    Raises:
        DamagedData: the file holds more than plain data, or is damaged.
    """
    try:
        if content[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                (name,) = [n for n in archive.namelist() if n.endswith("data.pkl")]
                content = archive.read(name)
        return _Machine().run(content)
    except _Refused as refusal:
        raise DamagedData(f"{where} holds {refusal}, which is not plain data.") from None
    except (ValueError, IndexError, KeyError, TypeError, struct.error, zipfile.BadZipFile) as error:
        raise DamagedData(f"{where} is not a complete pickle: {error}.") from error


class _Refused(Exception):
    """An instruction that plain data does not need."""


class _Machine:
    """Stack and memory while a pickle is read."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        for code, argument, _ in pickletools.genops(content):
            if code.name == "STOP":
                (result,) = self.stack
                return result
            if not self._push(code.name, argument) and not self._remember(code.name, argument):
                self._build(code.name, argument)
        raise ValueError("it does not end")

    def _push(self, name: str, argument: Any) -> bool:
        """Run an instruction that only pushes onto the stack; False for any other instruction."""
        if name in _PUSH:
            self.stack.append(argument)
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        else:
            return False
        return True

    def _remember(self, name: str, argument: Any) -> bool:
        """Run an instruction on the memo or the file itself; False for any other instruction."""
        if name in ("BINPUT", "LONG_BINPUT"):
            self.memory[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memory[len(self.memory)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memory[argument])
        else:
            return name in ("PROTO", "FRAME")
        return True

    def _build(self, name: str, argument: Any) -> None:
        if name in _TUPLES:
            self.stack.append(tuple(self._pop(_TUPLES[name])))
        elif name == "TUPLE":
            self.stack.append(tuple(self._since_mark()))
        elif name == "APPENDS":
            items = self._since_mark()
            self.stack[-1].extend(items)
        elif name == "APPEND":
            (item,) = self._pop(1)
            self.stack[-1].append(item)
        elif name in ("SETITEMS", "SETITEM"):
            items = self._since_mark() if name == "SETITEMS" else self._pop(2)
            self.stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name == "GLOBAL" and argument in _NAMES:
            self.stack.append(argument)
        elif name == "REDUCE":
            called, given = self._pop(2)
            self.stack.append(_called(called, given))
        elif name == "BUILD":
            self._pop(1)
        else:
            raise _Refused(argument if name == "GLOBAL" else name)

    def _pop(self, count: int) -> list[Any]:
        taken = self.stack[-count:]
        if len(taken) < count or _MARK in taken:
            raise ValueError("it takes more than it built")
        del self.stack[-count:]
        return taken

    def _since_mark(self) -> list[Any]:
        mark = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[mark + 1 :]
        del self.stack[mark:]
        return items


def _called(name: Any, given: Any) -> Any:
    """The three calls that NumPy's numbers need: a type becomes its name, a scalar its value."""
    if name == "numpy dtype":
        return given[0]
    if name == "_codecs encode":
        return given[0].encode(given[1])
    if name in _NAMES:
        (value,) = struct.unpack(_NUMBERS[given[0]], given[1])
        return value
    raise _Refused("a call")


Cell = str | float | None


def all_sheets(content: bytes, name: str) -> dict[str, list[list[Cell]]]:
    """Rows of cells of every sheet, by sheet name, in the workbook's order.

    Formulas give the values they had when the workbook was saved; empty cells and failed formulas
    are None. All rows of a sheet have the same number of cells.

    Args:
        content: the file's bytes.
        name: name of the file in messages.

    Raises:
        DamagedData: the file is not a readable workbook.
    """
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(content))
        sheets = {
            sheet: book.get_sheet_by_name(sheet).to_python(skip_empty_area=False)
            for sheet in book.sheet_names
        }
    except CalamineError as error:
        raise DamagedData(f"{name} is not a readable workbook: {error}.") from error
    return {
        sheet: [[_value(cell) for cell in row] for row in rows] for sheet, rows in sheets.items()
    }


def _value(cell: object) -> Cell:
    if isinstance(cell, int | float):
        return float(cell)
    return str(cell) if cell != "" else None
