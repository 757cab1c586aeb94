"""Draw the parts of an answer into a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from forerun.data.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forerun.service.schemas.answers import PredictionOut

ENDINGS: Final = (".svg", ".png", ".pdf")


def draw(title: str, answers: "Sequence[PredictionOut]", file: Path) -> None:
    """Draw what one answer is made of.

    Args:
        title: name of the model.
        answers: the answers of a command.
        file: the file, which is replaced.

    Raises:
        InputError: there are several answers, the answer has no parts, the file's ending is not one
            of `ENDINGS`, or it cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    if len(answers) != 1:
        raise InputError("--picture draws the answer for one device; name one.")
    if file.suffix.lower() not in ENDINGS:
        raise InputError(f"--picture: {file.name!r} does not end in one of {', '.join(ENDINGS)}.")
    (answer,) = answers
    if answer.attribution is None:
        raise InputError("The answer is not divided into parts, so there is nothing to draw.")
    from forerun.service.python.plots import attribution

    axes = attribution(answer.attribution, f"{title} on {answer.device.name}")
    try:
        cast("Figure", axes.figure).savefig(file)
    except OSError as error:
        raise InputError(f"--picture: {file} cannot be written: {error.strerror}.") from None
