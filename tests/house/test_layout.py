"""The five folders are the package: through links, in one order, each file a concept."""

import ast
import subprocess
import sys
from pathlib import Path

import forerun.data
from tests.house.sources import FLOORS, PYPROJECT, REPOSITORY, modules, name_of, text_of, tree

EMPTY_WORDS = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


def test_each_floor_is_a_link_to_a_folder_at_the_top():
    for floor in FLOORS:
        link = REPOSITORY / "src" / "forerun" / floor
        assert link.is_symlink(), f"{link} must be a link, not a copy"
        assert link.readlink() == Path("../..") / floor
        assert (link / "__init__.py").is_file()


def test_what_is_imported_is_what_stands_at_the_top():
    assert Path(forerun.__file__).resolve().parents[2] == REPOSITORY
    assert Path(forerun.data.__file__).resolve() == REPOSITORY / "data" / "__init__.py"


def test_imports_go_down_the_floors_and_rooms_as_the_contracts_say():
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    assert contracts[0]["layers"] == [f"forerun.{floor}" for floor in reversed(FLOORS)]
    assert not any("ignore_imports" in contract for contract in contracts)
    found = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_room_of_models_and_service_says_what_is_in_it():
    for floor in ("models", "service"):
        for room in (REPOSITORY / floor).iterdir():
            if (room / "__init__.py").is_file():
                assert ast.get_docstring(tree(text_of(room / "__init__.py"))), room


def test_no_module_is_named_by_an_empty_word():
    for path in modules():
        words = {
            w for part in path.relative_to(REPOSITORY).parts for w in Path(part).stem.split("_")
        }
        assert not words & EMPTY_WORDS, f"{name_of(path)}: name it by its concept"


def test_no_two_test_files_are_one_module():
    tests = list((REPOSITORY / "tests").rglob("test_*.py"))
    loose = [p.name for p in tests if not (p.parent / "__init__.py").is_file()]
    repeated = sorted({name for name in loose if loose.count(name) > 1})
    assert not repeated, f"{repeated} stand in several folders without __init__.py"


def test_no_link_of_the_repository_leads_out_of_it():
    listed = subprocess.run(
        ["git", "ls-files", "-s"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    links = [REPOSITORY / line.partition("\t")[2] for line in listed if line.startswith("120000")]
    outside = [link for link in links if not link.resolve().is_relative_to(REPOSITORY.resolve())]
    assert not outside
