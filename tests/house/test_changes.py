"""What changed is what git says of the branch, and of the last commit on `main`."""

import subprocess

import pytest

from tests.changes import changed_files, floor_of, lowest_floor
from tests.house.sources import FLOORS, REPOSITORY


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, "-C", folder, *words], check=True, capture_output=True)


def commit(folder, name):
    (folder / name).write_text(name)
    git(folder, "add", "-A")
    git(folder, "commit", "-m", name)


def test_files_of_the_branch_of_the_last_commit_and_of_the_working_tree_changed(tmp_path):
    git(tmp_path, "init", "-b", "main")
    commit(tmp_path, "one.md")
    assert changed_files(tmp_path) is None, "without an earlier commit, all pages run"
    commit(tmp_path, "two.md")
    (tmp_path / "new.md").touch()
    assert changed_files(tmp_path) == {"two.md", "new.md"}
    git(tmp_path, "switch", "-c", "branch")
    commit(tmp_path, "three.md")
    commit(tmp_path, "four.md")
    (tmp_path / "one.md").write_text("edited")
    assert changed_files(tmp_path) == {"one.md", "three.md", "four.md", "new.md"}


def test_without_git_all_pages_run(tmp_path):
    assert changed_files(tmp_path) is None


@pytest.mark.parametrize(
    ("changed", "lowest"),
    [
        ({"service/http/app.py", "docs/index.md"}, "training"),
        ({"service/http/app.py", "tests/service/test_keys.py"}, "service"),
        ({"models/router.py", "training/card.py"}, "models"),
        ({"tests/features/test_lowering.py"}, "features"),
        ({"data/devices.yaml"}, "data"),
        ({"constraints.txt"}, "data"),
        ({"tests/contracts/tiny_power.py"}, "data"),
    ],
)
def test_a_floor_is_concerned_by_a_change_below_it_or_outside_of_all(changed, lowest):
    assert FLOORS[lowest_floor(changed)] == lowest


@pytest.mark.parametrize(
    ("test", "floor"),
    [
        ("features/test_lowering.py", "features"),
        ("data/collectors/workloads/test_timm_networks.py", "service"),
        ("golden/test_golden.py", "service"),
    ],
)
def test_a_test_belongs_to_the_highest_floor_that_it_reads(test, floor):
    assert FLOORS[floor_of(REPOSITORY / "tests" / test)] == floor
