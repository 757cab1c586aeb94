"""Drawing a sample of mutants that another run, and another state of the code, draws again."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation.operators import operators

FOLDERS = ("features", "models", "training")

# What tests inherit from, and what traced the packaged tables once from libraries of networks.
EXCLUDED = ("models/contract.py", "features/published/")

# Text for people, types and conventions: changes there are not changes of numbers.
NOT_NUMERICAL = ("raise_stmt", "assert_stmt", "decorator", "fstring", "import_from")
NODES = {
    "number", "operator", "keyword", "name", "comparison", "factor", "not_test", "for_stmt",
    "if_stmt", "while_stmt", "assert_stmt", "test",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: the file, from the root of the repository.
        line: of the change, from 1.
        column: of the change, from 0.
        operator: which kind of change.
        occurrence: which of the places in the file where this kind of change can be made.
        before: the line as it is.
        place: names the line by its text, so that a sample stays when lines around it move.
    """

    path: str
    line: int
    column: int
    operator: str
    occurrence: int
    before: str
    place: str

    def source(self, original):
        """The text of the file with the change; `original` is the text without."""
        return mutate_code(original, _operators()[self.operator], self.occurrence)

    def after(self, original):
        """The line with the change."""
        changed = self.source(original).splitlines()
        return changed[self.line - 1].strip() if len(changed) >= self.line else ""

    def place_rank(self, seed, *more):
        """A number that depends on the place and the seed alone."""
        named = ":".join(map(str, (seed, self.path, self.place, self.column, *more)))
        return hashlib.sha256(named.encode()).hexdigest()

    def rank(self, seed):
        """A number that depends on the change and the seed alone."""
        return self.place_rank(seed, self.operator)

    def text(self, root):
        """The change of a file under `root` as one line."""
        after = self.after((Path(root) / self.path).read_text())
        return f"{self.path}:{self.line}  {self.before}  ->  {after}"


@cache
def _operators():
    return operators()


def files(root):
    """The files of numerical code, from the root: all of `FOLDERS` but a few."""
    found = (path for folder in FOLDERS for path in sorted((Path(root) / folder).rglob("*.py")))
    kept = (path.relative_to(root).as_posix() for path in found if path.name != "__init__.py")
    return [path for path in kept if not path.startswith(EXCLUDED)]


def mutants_of(root, path):
    """Every mutant of a file, as it stands under `root`."""
    source = (Path(root) / path).read_text()
    lines, seen, places = source.splitlines(), {}, []
    for line in lines:
        text = line.strip()
        seen[text] = seen.get(text, 0) + 1
        places.append(f"{text}#{seen[text]}")
    nodes = [node for node in ast_nodes(get_ast(source)) if node.type in NODES]
    found = []
    for name, operator in _operators().items():
        occurrence = 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                if _is_numerical(node):
                    text = lines[line - 1].strip()
                    place = places[line - 1]
                    found.append(Mutant(path, line, column, name, occurrence, text, place))
                occurrence += 1
    return found


def draw(root, paths, count, seed):
    """A sample: places are drawn evenly, then one change at each.

    Args:
        root: of the repository.
        paths: files to draw from, from the root.
        count: how many mutants at most.
        seed: another seed draws another sample.

    Returns:
        Mutants, in an order that depends on the seed alone, so that a smaller sample is the
        beginning of a larger one.
    """
    best = {}
    for path in paths:
        for mutant in mutants_of(root, path):
            at = (path, mutant.line, mutant.column)
            if at not in best or mutant.rank(seed) < best[at].rank(seed):
                best[at] = mutant
    drawn = []
    for mutant in sorted(best.values(), key=lambda mutant: mutant.place_rank(seed)):
        if len(drawn) == count:
            break
        if _compiles(root, mutant):
            drawn.append(mutant)
    return drawn


def _is_numerical(node):
    parent = node.parent
    if node.search_ancestor(*NOT_NUMERICAL) is not None:
        return False
    if node.type == "number" and _names_a_seed(node):
        return False
    if node.type == "keyword" and parent.type == "argument":
        return parent.children[0].get_code().strip() not in ("strict", "frozen", "slots")
    return not (node.type == "if_stmt" and "TYPE_CHECKING" in node.children[1].get_code())


def _names_a_seed(number):
    """Whether a number is what a field or an argument called `seed` has by default."""
    whole = number.search_ancestor("param", "expr_stmt")
    return whole is not None and whole.get_first_leaf().value == "seed"


def _compiles(root, mutant):
    """Whether a change is Python; cosmic-ray takes some stars of signatures for products."""
    try:
        compile(mutant.source((Path(root) / mutant.path).read_text()), mutant.path, "exec")
    except SyntaxError:
        return False
    return True
