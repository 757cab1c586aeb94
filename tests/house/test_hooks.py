"""What runs before a commit is what `make lint` and `make types` run, without the network."""

import yaml

from tests.house.sources import REPOSITORY


def test_hooks_run_installed_tools():
    content = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    (repo,) = content["repos"]
    assert repo["repo"] == "local"
    assert all(hook["language"] == "system" for hook in repo["hooks"])
    commands = [hook["entry"].split("/")[-1] for hook in repo["hooks"]]
    lint = ["ruff check", "ruff format --check", "lint-imports", "deptry .", "vulture"]
    assert sorted(commands) == sorted([*lint, "mypy"])
