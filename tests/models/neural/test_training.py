"""Training restores torch's state, and repeats itself with one seed."""

from dataclasses import dataclass

import numpy as np

from forerun.models.neural import minimise, onnx_bytes, onnx_session, seeded_torch, stacked


@dataclass(frozen=True)
class Few:
    epochs: int = 5
    learning_rate: float = 0.1
    weight_decay: float = 0.0


def line():
    """A line fitted to y = 3 x, with its weights."""
    import torch

    with seeded_torch(0):
        module = torch.nn.Linear(1, 1)
        x = torch.rand(8, 1)
        batches = torch.utils.data.DataLoader(x, 4, shuffle=True)
        minimise(
            module,
            batches,
            lambda batch: (module(batch) - 3.0 * batch).abs().mean(),
            Few(),
            largest_gradient=1.0,
        )
    return module


def test_the_same_seed_gives_the_same_weights():
    assert [p.item() for p in line().parameters()] == [p.item() for p in line().parameters()]


def test_it_ends_in_evaluation_mode():
    assert not line().training


def test_torchs_seed_and_threads_are_as_before_afterwards():
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    with seeded_torch(3):
        assert torch.get_num_threads() == 1
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


def test_an_exported_ensemble_answers_for_each_of_its_members():
    import torch
    from torch.export import Dim

    with seeded_torch(0):
        members = [torch.nn.Linear(2, 1) for _ in range(3)]
    whole, free = stacked(members), (({0: Dim("n")},),)
    session = onnx_session(onnx_bytes(whole, (torch.ones(3, 2),), free, ("x",), ("y",)))
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    found = session.run(None, {"x": x})[0]
    wanted = [member(torch.from_numpy(x)).detach().numpy() for member in members]
    np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-5)
