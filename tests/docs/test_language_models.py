"""The page about language models lists every name that requests may use."""

from pathlib import Path

from forerun.service.requests.field_names import ALSO, NEGATED

PAGE = Path(__file__).resolve().parents[2] / "docs/language_models.md"


def test_every_name_stands_in_the_row_of_its_field():
    rows = dict(
        line.strip("| ").split(" | ", 1)
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and " | " in line
    )
    for path, names in ALSO.items():
        assert all(f"`{name}`" in rows[f"`{path}`"] for name in names)
    for name, path in NEGATED.items():
        assert f"not `{name}`" in rows[f"`{path}`"]
