"""A test of many cases tries all of them, names each that fails, and needs one at least."""

import pytest

from tests.every import for_every


def test_every_case_that_fails_is_named_with_its_reason():
    tried = []

    @for_every("number, text", [(1, "a"), (2, "b"), (3, "c")])
    def check(fixture, number, text):
        tried.append((fixture, text))
        assert number == 2, f"{number} is odd"

    with pytest.raises(AssertionError, match="2 of 3 cases fail") as error:
        check("of pytest")
    assert "(1, 'a'): AssertionError: 1 is odd" in str(error.value)
    assert "(3, 'c'): AssertionError: 3 is odd" in str(error.value)
    assert tried == [("of pytest", "a"), ("of pytest", "b"), ("of pytest", "c")]


def test_no_cases_are_no_success():
    @for_every("name", [])
    def check(name):
        raise NotImplementedError

    with pytest.raises(AssertionError, match="there are no cases"):
        check()
