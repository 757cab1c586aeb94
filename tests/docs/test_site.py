"""The documentation builds without a warning, and the README is short."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.documents import PAGES
from tests.house.sources import PYPROJECT, REPOSITORY, name_of

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)(#[\w-]+)?\)")
MOST_LINES = 165
MOST_WORDS = 45_000


def navigation(entries):
    """Paths of all pages of a navigation."""
    for entry in entries:
        for place in entry.values():
            yield from navigation(place) if isinstance(place, list) else (place,)


def test_every_page_is_in_the_navigation_once():
    settings = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [name_of(page).removeprefix("docs/") for page in PAGES if page.name != "README.md"]
    assert sorted(navigation(settings["nav"])) == sorted(pages)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_host(if_changed, tmp_path):
    if_changed("docs/", "mkdocs.yml", "tests/docs/")
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(REPOSITORY / "src")
    shutil.copy(REPOSITORY / "mkdocs.yml", tmp_path)
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(https?:[^\"> ]+)", text)
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*https?:[^>]*", text)
        assert not loaded, page.name


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_a_document_outside_of_the_site_lead_somewhere(name):
    for target, _ in LINK.findall((REPOSITORY / name).read_text(encoding="utf-8")):
        assert (REPOSITORY / target).exists(), f"{name} links to {target}"


def test_the_readme_is_short_and_has_two_pictures():
    assert len(README.splitlines()) <= MOST_LINES
    assert len(re.findall(r"!\[[^\]]+\]\([^)]+\.png\)", README)) == 2


def test_the_documents_are_short():
    contributing = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    texts = (CHANGELOG, contributing, *(page.read_text(encoding="utf-8") for page in PAGES))
    assert sum(len(text.split()) for text in texts) <= MOST_WORDS


def test_the_version_is_the_same_everywhere():
    version = PYPROJECT["project"]["version"]
    init = (REPOSITORY / "src/forerun/__init__.py").read_text(encoding="utf-8")
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert f'__version__ = "{version}"' in init
    assert cited["version"] == version
    assert f"## {version} - {cited['date-released']}" in CHANGELOG


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda p: p.stem
)
def test_an_issue_form_is_one(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    assert all(part["attributes"]["label"] for part in form["body"])
