"""Profiles of programs, as `forerun collect program` writes them."""

from pathlib import Path

from pydantic import ValidationError

from forerun.data.errors import InputError
from forerun.service.schemas.colocation import ProgramIn


def read_profile(path: Path) -> ProgramIn:
    """Read a profile from a JSON file.

    Raises:
        InputError: the file cannot be read, or holds no profile.
    """
    try:
        return ProgramIn.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {path}: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"{path} holds no profile of a program: {where}: {first['msg']}."
        ) from error
