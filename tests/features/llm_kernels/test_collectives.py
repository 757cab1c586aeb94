"""Collective operations as features: what crosses a link."""

import numpy as np
import pytest

from forerun.features.llm_kernels.families import COLLECTIVE_FEATURES, collective_table
from tests.devices import H100

MESSAGE, EIGHT = np.array([1e9]), np.array([8.0])


def test_a_sum_crosses_a_link_twice_but_for_the_own_share():
    """900 GB/s both ways is 450 GB/s each way; eight devices send 7/8 of the message, twice."""
    table = collective_table(MESSAGE, EIGHT, "all_reduce", H100)
    assert table.bound_s[0] == pytest.approx(2 * 7 / 8 * 1e9 / 450e9)
    assert table.features.shape == (1, len(COLLECTIVE_FEATURES))


def test_gathering_crosses_once_and_sending_takes_all():
    gathered, sent = (
        collective_table(MESSAGE, EIGHT, name, H100).bound_s[0]
        for name in ("all_gather", "send_receive")
    )
    assert gathered == pytest.approx(7 / 8 * 1e9 / 450e9)
    assert sent == pytest.approx(1e9 / 450e9)


def test_a_link_that_is_not_known_is_taken_as_pci_express():
    update = {"interconnect_gbs": None, "sources": {}, "name": "bare"}
    bare = H100.model_copy(update=update)
    assert collective_table(MESSAGE, EIGHT, "send_receive", bare).bound_s[0] == 1e9 / 32e9
