"""Nothing that is loaded can run code: no pickles in the code, none among the bundled files."""

import ast
import gzip
import lzma

import pytest

from forerun.models.artifact.sealed_folder import ALLOWED, check
from tests.house.sources import REPOSITORY, modules, name_of, nodes, text_of

PRETRAINED = REPOSITORY / "models" / "pretrained"
MOST_BYTES = 19_400_000
RUNS_CODE = {"pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve"}
CALLS = {"eval", "exec", "read_pickle", "to_pickle"}
MAGIC = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")


def violations(source):
    """What in a module could run code from a file."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in RUNS_CODE)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from {node.module} & RUNS_CODE
        elif isinstance(node, ast.Call):
            yield from called(node)
            # Which loader a variable holds is more than the syntax tells: the module names one.
            if ast.unparse(node.func) == "yaml.load" and "SafeLoader" not in source:
                yield "yaml.load"


def called(node):
    name = ast.unparse(node.func)
    options = {k.arg: ast.unparse(k.value) for k in node.keywords}
    if name in CALLS or name.partition(".")[2] in {"read_pickle", "to_pickle"}:
        yield name
    if name == "torch.load" and options.get("weights_only") != "True":
        yield name
    if options.get("allow_pickle") == "True":
        yield f"{name}(allow_pickle=True)"


@pytest.mark.parametrize("source", [
    "import pickle", "def f():\n    from joblib import load", "eval('1')", "torch.load(p)",
    "np.load(p, allow_pickle=True)", "pd.read_pickle(p)", "yaml.load(text)",
])  # fmt: skip
def test_the_check_sees_what_it_looks_for(source):
    assert list(violations(source))
    assert not list(violations("model.eval(); torch.load(p, weights_only=True); yaml.safe_load(t)"))


def test_the_code_loads_nothing_that_runs_code():
    found = {name_of(p): list(violations(text_of(p))) for p in modules()}
    assert not {name: what for name, what in found.items() if what}


def test_bundled_files_are_text_small_and_sealed():
    files = sorted(p for p in PRETRAINED.rglob("*") if p.is_file())
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        elif path.suffix == ".xz":
            content = lzma.decompress(content)
        assert path.name.endswith(ALLOWED), name_of(path)
        assert not content.startswith(MAGIC), f"{name_of(path)} is a pickle or an archive"
    assert sum(p.stat().st_size for p in files) <= MOST_BYTES
    if files:
        check(PRETRAINED)
        assert (PRETRAINED / "card.md").is_file(), "bundled predictors come with their card"
