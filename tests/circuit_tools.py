"""A mark for tests that need yosys and nextpnr-ice40 (Debian has both)."""

import pytest

from forerun.data.collectors.circuits import tools

needs_circuit_tools = pytest.mark.skipif(
    tools.missing() is not None, reason="needs yosys and nextpnr-ice40"
)
