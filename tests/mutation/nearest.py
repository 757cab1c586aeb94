"""Which tests are the nearest to a file of code: those that break first when it breaks."""

import ast
from functools import cache
from pathlib import Path

FOLDERS = ("data", "features", "models", "training", "service", "tests")


def nearest_tests(root, path):
    """The test file that mirrors a file of code, and those that import it directly.

    Where no test does either, those that import a module that imports it, and so on. Of several
    importers only those of its own floor count, where there are any.

    Args:
        root: of the repository.
        path: the file of code, from the root.

    Returns:
        Test files from the root, the mirror first, then those of the same folder.
    """
    importers = _importers(str(root))
    layer, seen = [_module(path)], {_module(path)}
    mirror = _mirror(path)
    folder, floor = str(Path(mirror).parent), f"tests/{Path(path).parts[0]}/"
    while layer:
        layer = sorted({by for module in layer for by in importers.get(module, ())} - seen)
        seen.update(layer)
        tests = {f"{module.replace('.', '/')}.py" for module in layer if _is_test(module)}
        if (Path(root) / mirror).is_file():
            tests.add(mirror)
        if tests:
            near = {test for test in tests if test.startswith(floor)} or tests
            return sorted(near, key=lambda t: (t != mirror, not t.startswith(folder), t))
    return []


def _mirror(path):
    whole = Path("tests") / path
    return (whole.parent / f"test_{whole.name}").as_posix()


def _module(path):
    """The name by which a file is imported, of a path from the root."""
    parts = Path(path).with_suffix("").parts
    named = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return named if parts[0] == "tests" else f"forerun.{named}"


def _is_test(module):
    return module.startswith("tests.") and module.split(".")[-1].startswith("test_")


@cache
def _importers(root):
    """For each module the modules that import it, inside functions too."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((Path(root) / folder).rglob("*.py")):
            importer = _module(path.relative_to(root))
            for name in _imported(ast.parse(path.read_text())):
                found.setdefault(name, set()).add(importer)
    return found


def _imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
