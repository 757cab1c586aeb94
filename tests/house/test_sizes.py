"""Functions stay small enough to be read at once; explanation is free."""

from tests.house.sources import code_lines, functions, modules, name_of, text_of

MOST_IN_A_FUNCTION = 45

EXAMPLE = '''"""Text
over lines."""

import os  # counted


# not counted
def outer(a: int) -> int:
    """Not
    counted."""

    def inner() -> str:
        return """counted,
        twice"""

    return a


LIMIT = 3
"""What the limit is for: not counted."""
'''


def test_explanations_do_not_count_and_all_else_does():
    assert code_lines(EXAMPLE) == {4, 8, 12, 13, 14, 16, 19}
    assert [f.name for f in functions(EXAMPLE)] == ["outer", "inner"]


def test_no_function_is_too_long():
    long = {}
    for path in modules():
        source = text_of(path)
        lines = code_lines(source)
        for function in functions(source):
            size = len(lines & set(range(function.lineno, function.end_lineno + 1)))
            if size > MOST_IN_A_FUNCTION:
                long[f"{name_of(path)}:{function.name}"] = size
    assert not long, f"over {MOST_IN_A_FUNCTION} code lines: {long}"
