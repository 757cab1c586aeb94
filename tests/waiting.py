"""The one way in which a test waits for something: by polling, never by asserting on a clock."""

import time


def eventually(condition, within_s=120.0, every_s=0.01):
    """Poll until `condition()` holds.

    Args:
        condition: takes nothing; anything that counts as true ends the wait.
        within_s: seconds after which it is taken to hang. Far beyond what any machine needs: it
            ends a run that would never end, and says nothing about speed.
        every_s: seconds between two looks.

    Raises:
        TimeoutError: it never held.
    """
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(every_s)
