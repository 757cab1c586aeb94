"""The kinds of changes: those of cosmic-ray that concern arithmetic, and two of our own."""

import ast
import re

import parso
from cosmic_ray import plugins
from cosmic_ray.operators.number_replacer import NumberReplacer
from cosmic_ray.operators.operator import Operator

# Of cosmic-ray's: arithmetic becomes other arithmetic (never bits, `**` or `%`), an order another
# order and equality its negation, conditions, signs and loops change.
KINDS = re.compile(
    r"ReplaceBinaryOperator_(Add|Sub|Mul|Div|FloorDiv|Mod|Pow)_(Add|Sub|Mul|Div)"
    r"|ReplaceComparisonOperator_(Lt|LtE|Gt|GtE)_(Lt|LtE|Gt|GtE)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is)"
    r"|ReplaceUnaryOperator_(USub_UAdd|Delete_Not)"
    r"|AddNot|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ZeroIterationForLoop"
)

# From this magnitude on adding one is less than 1 % and often looks like rounding.
LARGE = 100

OPPOSITES = {
    "min": "max",
    "minimum": "maximum",
    "argmin": "argmax",
    "nanmin": "nanmax",
    "floor": "ceil",
    "log": "exp",
    "log2": "exp2",
    "any": "all",
    "mean": "median",
}
OPPOSITES |= {after: before for before, after in OPPOSITES.items()}


class ReplaceNumber(NumberReplacer):
    """One more or one less; a large number is doubled or halved."""

    def mutate(self, node, index):
        value = ast.literal_eval(node.value)
        if abs(value) < LARGE:
            return super().mutate(node, index)
        changed = value * 2 if index == 0 else value // 2
        return parso.python.tree.Number(f"{node.prefix}{changed!r}", node.start_pos)


class ReplaceWithOpposite(Operator):
    """A function of numbers becomes its opposite: `min` becomes `max`, `log` becomes `exp`."""

    def mutation_positions(self, node):
        if node.type == "name" and node.value in OPPOSITES and _is_called(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        node.value = OPPOSITES[node.value]
        return node

    @classmethod
    def examples(cls):
        return ()


def _is_called(name):
    """Whether a name stands before the parenthesis of a call, in `max(x)` or `x.max()`."""
    after = name.get_next_leaf()
    return after is not None and after.value == "("


def operators():
    """All of them by name: what `cosmic_ray.mutating.mutate_code` takes."""
    names = (name for name in plugins.operator_names() if KINDS.fullmatch(name.split("/")[1]))
    found = {name.split("/")[1]: plugins.get_operator(name)() for name in names}
    return found | {
        "ReplaceNumber": ReplaceNumber(),
        "ReplaceWithOpposite": ReplaceWithOpposite(),
    }
