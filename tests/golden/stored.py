"""Questions and answers as JSON files: one line a question, numbers to eight significant digits."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DIGITS = 8
"""Significant digits stored: rounding moves a number by at most 5e-8 of itself, a twentieth of the
tolerance of a comparison."""

Answers = dict[str, Any]


def kinds() -> list[str]:
    """Kinds of workload that have questions, in alphabetical order."""
    return sorted(path.stem for path in (HERE / "questions").glob("*.json"))


def questions_of(kind: str) -> dict[str, Any]:
    """The file of one kind: `through`, `questions`, and what is sent before them."""
    content: dict[str, Any] = json.loads((HERE / "questions" / f"{kind}.json").read_text())
    return content


def stored_answers(kind: str) -> Answers:
    """Question -> answer as it was stored; empty where nothing was."""
    path = HERE / "answers" / f"{kind}.json"
    if not path.is_file():
        return {}
    content: Answers = json.loads(path.read_text())
    return content


def store(kind: str, answers: Answers) -> None:
    """Write the answers of one kind, a line each."""
    path = HERE / "answers" / f"{kind}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text_of({name: rounded(answer) for name, answer in answers.items()}))


def text_of(content: Mapping[str, Any]) -> str:
    """JSON with a line for each entry, so that a change shows as the lines that it concerns."""
    lines = [
        f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for name, value in content.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def rounded(value: Any) -> Any:
    """The same content with every floating-point number at `DIGITS` significant digits."""
    if isinstance(value, float):
        short = float(f"{value:.{DIGITS}g}")
        return int(short) if short.is_integer() and abs(short) < 10**DIGITS else short
    if isinstance(value, Mapping):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value
