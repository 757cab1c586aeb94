"""A mark for tests that need yosys and nextpnr-ice40 (Debian has both)."""

import shutil

import pytest

from forerun.data.collectors.circuits import tools

needs_circuit_tools = pytest.mark.skipif(
    not all(map(shutil.which, (tools.YOSYS, tools.NEXTPNR))), reason="needs yosys and nextpnr-ice40"
)
