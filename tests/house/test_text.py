"""The repository's text speaks of the project, in the terms of the field, and of no machine."""

import re

import pytest

from tests.house.sources import name_of, repository_files, text_of

MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:work|root|home|Users)/[\w.]")

OF_THE_FIELD = {
    "be" + "side": "co-located with, next to",
    "ta" + "ught": "trained on",
    "fore" + "see": "predict",
}
"""Word that stands for a term of the field -> the term."""
WRITTEN = (".md", ".py", ".ipynb")


@pytest.mark.parametrize(
    ("text", "found"),
    [("/" + "home/someone/x", True), ("see /" + "work/main", True), ("network/" + "work/x", False),
     ("~/.cache/forerun", False), ("https://example.org/" + "home/x", False)],
)  # fmt: skip
def test_the_pattern_finds_machine_paths_alone(text, found):
    assert bool(MACHINE_PATH.search(text)) is found


def test_no_file_holds_a_path_of_a_machine():
    found = []
    for path in repository_files():
        try:
            lines = text_of(path).splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}:{n}" for n, x in enumerate(lines, 1) if MACHINE_PATH.search(x)]
    assert not found


def test_texts_use_the_terms_of_the_field():
    words = re.compile(rf"\b({'|'.join(OF_THE_FIELD)})\b", re.IGNORECASE)
    found = [
        f"{name_of(path)}:{number}: {OF_THE_FIELD[word.lower()]}"
        for path in repository_files()
        if path.suffix in WRITTEN
        for number, line in enumerate(text_of(path).splitlines(), 1)
        for word in words.findall(line)
    ]
    assert not found
