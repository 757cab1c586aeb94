"""A torchvision that misses its compiled operators can be imported; without one nothing is done."""

import subprocess
import sys
import textwrap

import pytest

from forerun.features.readers import torch_trace as torchvision_operators
from forerun.features.readers.torch_trace import declare_operators


def test_without_torchvision_nothing_is_declared(monkeypatch):
    monkeypatch.setattr(torchvision_operators, "find_spec", lambda name: None)
    assert declare_operators.__wrapped__() is None


@pytest.mark.slow
def test_a_torchvision_of_another_build_can_be_imported(tmp_path):
    """Its import describes `nms` and `qnms`, which only its compiled part defines."""
    pytest.importorskip("torch")
    (tmp_path / "torchvision.py").write_text(
        textwrap.dedent("""
            import torch
            for name in ("nms", "qnms"):
                torch.library.register_fake(f"torchvision::{name}", lambda *given: given[0])
            ready = True
        """)
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            import torchvision
        except RuntimeError as error:
            print("alone:", error)
        from forerun.features.readers.torch_trace import declare_operators
        declare_operators()
        import torchvision
        print("declared:", torchvision.ready)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "alone: operator torchvision::nms does not exist" in done.stdout
    assert "declared: True" in done.stdout
