"""Work ends at its deadline, or when nobody waits for it; other work goes on."""

from contextvars import copy_context

import pytest

from forerun.data.errors import DeadlineExceeded
from forerun.features.deadline import Deadline, check, within


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
