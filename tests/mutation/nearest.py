"""Which tests are the nearest to a file of code: those that break first when it breaks."""

import ast
from functools import cache
from pathlib import Path

from tests.house.sources import nodes, text_of

FOLDERS = ("data", "features", "models", "training", "service", "tests")


def nearest_tests(root, path):
    """The test file that mirrors a file of code, and those that import it directly.

    Where there is none, those of the modules that import it, and so on; where the mirror is the
    only one, those of the same room that come next, too. Of several only those of its own floor
    count, where there are any. A file that nothing imports by name, because it is found where it is
    declared, has those of the nearest folder.

    Args:
        root: of the repository.
        path: the file of code, from the root.

    Returns:
        Test files from the root, the mirror first, then those of the same folder.
    """
    importers, mirror = _importers(str(root)), _mirror(_module(path))
    folder, floor = f"{Path(mirror).parent}/", f"tests/{Path(path).parts[0]}/"
    layer = seen = {_module(path)}
    tests = set()
    while layer:
        mirrors = {found for module in layer if (Path(root) / (found := _mirror(module))).is_file()}
        layer = {by for module in layer for by in importers.get(module, ())} - seen
        seen = seen | layer
        found = mirrors | {f"{module.replace('.', '/')}.py" for module in layer if _is_test(module)}
        near = {test for test in found if test.startswith(folder if tests else floor)}
        tests |= near or (set() if tests else found)
        if tests - {mirror}:
            break
    for above in () if tests else (Path(root) / mirror).parents:
        tests = {f"{test.relative_to(root)}" for test in above.glob("test_*.py")}
        if tests:
            break
    return sorted(tests, key=lambda test: (test != mirror, not test.startswith(folder), test))


def _mirror(module):
    *folders, name = module.split(".")
    return "/".join(["tests", *folders[1:], f"test_{name}.py"])


def _module(path):
    """The name by which a file is imported, of a path from the root."""
    parts = Path(path).with_suffix("").parts
    named = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return named if parts[0] == "tests" else f"forerun.{named}"


def _is_test(module):
    return module.startswith("tests.") and module.split(".")[-1].startswith("test_")


@cache
def _importers(root):
    """For each module the modules that import it, inside functions too.

    Who imports a name from a package imports the module that the package has it from.
    """
    paths = [path for folder in FOLDERS for path in sorted((Path(root) / folder).rglob("*.py"))]
    trees = {path.relative_to(root): nodes(text_of(path)) for path in paths}
    origins = {}
    for path, tree in trees.items():
        if path.name == "__init__.py":
            origins |= {f"{_module(path)}.{name}": module for module, name in _names(tree)}
    found = {}
    for path, tree in trees.items():
        for name in _imported(tree):
            found.setdefault(origins.get(name, name), set()).add(_module(path))
    return found


def _names(tree):
    """Modules, and the names that are imported from them."""
    for node in tree:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.asname or alias.name) for alias in node.names)


def _imported(tree):
    for node in tree:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
