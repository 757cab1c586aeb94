"""Which pages changed is what git says of the branch, and of the last commit on `main`."""

import subprocess

from tests.docs.conftest import changed_files


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
