"""Mutants are drawn the same each time, change one line and leave the tree as it was."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.mutation.journal import Journal, key_of
from tests.mutation.nearest import nearest_tests

pytest.importorskip("cosmic_ray")

from tests.mutation.mutants import draw, files, mutants_of
from tests.mutation.trial import changed

CODE = '''"""A toy."""


def share(part, whole, *, least: int | None = None):
    """Of a whole."""
    if whole <= 0:
        raise ValueError("no whole" + " at all")
    return max(100 * part / whole, least or 0)
'''


@pytest.fixture
def tree(tmp_path):
    for path, text in {
        "models/toy.py": CODE,
        "models/user.py": "from forerun.models.toy import share",
        "tests/models/test_toy.py": "from forerun.models.user import share",
        "tests/models/test_other.py": "from forerun.models import toy",
        "tests/service/test_far.py": "from forerun.models.toy import share",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_a_smaller_sample_is_the_beginning_of_a_larger_one(tree):
    large = draw(tree, ["models/toy.py"], 9, seed=3)
    assert draw(tree, ["models/toy.py"], 4, seed=3) == large[:4]
    assert draw(tree, ["models/toy.py"], 9, seed=4) != large


def test_a_sample_stays_when_lines_around_it_move(tree):
    before = [m.after(CODE) for m in draw(tree, ["models/toy.py"], 5, seed=0)]
    moved = CODE.replace('"""A toy."""', '"""A toy."""\n\nimport math')
    (tree / "models/toy.py").write_text(moved)
    assert [m.after(moved) for m in draw(tree, ["models/toy.py"], 5, seed=0)] == before


def test_every_mutant_is_python_and_changes_the_line_it_names(tree):
    drawn = draw(tree, ["models/toy.py"], 99, seed=0)
    assert {mutant.line for mutant in drawn} == {6, 8}, "nothing of types and messages"
    for mutant in drawn:
        new = mutant.source(CODE)
        compile(new, "toy", "exec")
        pairs = zip(CODE.splitlines(), new.splitlines(), strict=True)
        assert [n for n, (old, line) in enumerate(pairs, 1) if old != line] == [mutant.line]


def test_large_numbers_change_by_half_and_functions_become_their_opposite(tree):
    found = {mutant.after(CODE) for mutant in mutants_of(tree, "models/toy.py")}
    assert "return max(200 * part / whole, least or 0)" in found
    assert "return min(100 * part / whole, least or 0)" in found


def test_a_default_seed_promises_nothing(tree):
    (tree / "models/toy.py").write_text(
        "seed: int = 7\n\ndef f(seed=8, at=9):\n    return seed + 1"
    )
    found = {mutant.after((tree / "models/toy.py").read_text())
             for mutant in mutants_of(tree, "models/toy.py")}  # fmt: skip
    assert "def f(seed=8, at= 10):" in found
    assert not {"seed: int =  8", "def f(seed= 9, at=9):"} & {one.strip() for one in found}
    assert not any(one.startswith("seed: int") for one in found)


def test_the_nearest_tests_are_the_mirror_and_direct_importers_of_the_same_floor(tree):
    expected = ["tests/models/test_toy.py", "tests/models/test_other.py"]
    assert nearest_tests(tree, "models/toy.py") == expected
    assert nearest_tests(tree, "models/user.py") == ["tests/models/test_toy.py"]


def test_where_only_the_mirror_tests_a_file_those_of_its_room_that_come_next_do_too(tree):
    (tree / "tests/models/test_user.py").write_text("from forerun.models import user")
    for name in ("test_toy.py", "test_other.py"):
        (tree / "tests/models" / name).write_text("")
    expected = ["tests/models/test_toy.py", "tests/models/test_user.py"]
    assert nearest_tests(tree, "models/toy.py") == expected


def test_a_name_that_a_package_passes_on_is_imported_from_its_module(tree):
    (tree / "models/__init__.py").write_text("from forerun.models.toy import share")
    (tree / "tests/models/test_other.py").write_text("from forerun.models import share")
    assert "tests/models/test_other.py" in nearest_tests(tree, "models/toy.py")


@pytest.mark.slow
def test_every_file_of_numerical_code_has_a_nearest_test():
    assert not [path for path in files(REPOSITORY) if not nearest_tests(REPOSITORY, path)]


def test_a_file_is_as_it_was_after_a_trial(tree):
    compiled = tree / "models/__pycache__/toy.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.touch()
    with pytest.raises(KeyboardInterrupt), changed(tree, "models/toy.py", "changed"):
        assert (tree / "models/toy.py").read_text() == "changed"
        assert not compiled.exists()
        raise KeyboardInterrupt
    assert (tree / "models/toy.py").read_text() == CODE


def test_an_outcome_is_known_until_code_or_tests_change(tree, tmp_path):
    (mutant,) = draw(tree, ["models/toy.py"], 1, seed=0)
    tests = nearest_tests(tree, mutant.path)
    journal = Journal(tmp_path / "journal")
    journal.add(key_of(tree, mutant, tests), mutant, "survived", "", tests)
    again = Journal(Path(journal.path))
    assert again.get(key_of(tree, mutant, tests)) == "survived"
    (tree / tests[0]).write_text("def test_more(): ...")
    assert again.get(key_of(tree, mutant, tests)) is None
