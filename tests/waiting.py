"""The one way in which a test waits for something: by polling, never by asserting on a clock."""

import time

LONGEST_PAUSE_S = 0.5


def eventually(condition, within_s=120.0, every_s=0.01):
    """Poll until `condition()` holds; the longer it takes, the longer the pauses become.

    Pauses are a tenth of the time waited so far, so that waiting leaves the processor to what is
    waited for.

    Args:
        condition: takes nothing; anything that counts as true ends the wait.
        within_s: seconds after which it is taken to hang. Far beyond what any machine needs: it
            ends a run that would never end, and says nothing about speed.
        every_s: shortest pause between two looks, seconds; the longest is half a second.

    Raises:
        TimeoutError: it never held.
    """
    start = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - start
        if waited_s > within_s:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(max(every_s, min(waited_s / 10, LONGEST_PAUSE_S)))
