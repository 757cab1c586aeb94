"""The repository's text speaks of the project, not of a machine it was written on."""

import re

import pytest

from tests.house.sources import name_of, repository_files

MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:work|root|home|Users)/[\w.]")


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
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}:{n}" for n, x in enumerate(lines, 1) if MACHINE_PATH.search(x)]
    assert not found
