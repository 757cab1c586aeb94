"""Work ends at its deadline, or when nobody waits for it; other work goes on."""

from contextvars import copy_context

import pytest

from forerun.data.errors import DeadlineExceeded, ModelTooLarge
from forerun.features.deadline import Deadline, check, check_operators, current, within


def test_without_a_deadline_work_goes_on():
    check()


def test_work_goes_on_before_its_deadline():
    with within(Deadline.after(3600)):
        check()


def test_work_ends_at_its_deadline_and_the_message_says_how_long_it_had():
    with within(Deadline.after(-1)), pytest.raises(DeadlineExceeded, match="-1 seconds"):
        check()


def test_work_that_nobody_waits_for_ends_before_its_deadline():
    deadline = Deadline.after(3600)
    with within(deadline):
        deadline.abandoned.set()
        with pytest.raises(DeadlineExceeded):
            check()


def test_a_deadline_ends_with_its_block():
    with within(Deadline.after(-1)):
        pass
    check()


def test_a_deadline_holds_in_its_own_context_only():
    with within(Deadline.after(-1)):
        inside = copy_context()
    check()
    with pytest.raises(DeadlineExceeded):
        inside.run(check)


def test_work_for_all_has_no_deadline_and_those_around_it_keep_theirs():
    with within(Deadline.after(-1)):
        with within(None):
            check()
        with pytest.raises(DeadlineExceeded):
            check()


def test_the_deadline_of_this_context_is_the_innermost():
    outer, inner = Deadline.after(3600), Deadline.after(60)
    assert current() is None
    with within(outer), within(inner):
        assert current() is inner


def test_a_graph_may_have_as_many_operators_as_the_work_allows():
    with within(Deadline.after(3600, max_operators=3)):
        check_operators(3, "a graph")
        with pytest.raises(ModelTooLarge, match="a graph: it has 4 operators; 3 at most"):
            check_operators(4, "a graph")
    check_operators(4, "a graph")
    with within(Deadline.after(3600)):
        check_operators(4, "a graph")
