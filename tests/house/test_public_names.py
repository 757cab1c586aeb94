"""Every public name explains itself and says what it returns."""

import ast

from tests.house.sources import Function, modules, name_of, public, text_of, tree


def findings(check):
    """One line for every public name that the check is true for."""
    return "\n".join(_found(check))


def _found(check):
    for path in modules():
        for node in public(tree(text_of(path))):
            if check(node):
                yield f"{name_of(path)}:{node.lineno} {node.name}"


def test_every_module_says_what_it_is_for():
    silent = [name_of(p) for p in modules() if not ast.get_docstring(tree(text_of(p)))]
    assert not silent


def test_every_public_name_has_a_docstring():
    def is_silent(node):
        return not ast.get_docstring(node) and not is_overload(node)

    assert findings(is_silent) == ""


def test_every_public_function_says_what_it_returns():
    assert findings(lambda node: isinstance(node, Function) and node.returns is None) == ""


def is_overload(node):
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)
