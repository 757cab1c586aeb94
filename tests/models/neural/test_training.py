"""Training restores torch's state, keeps the best epoch, and repeats itself with one seed."""

from dataclasses import dataclass

import numpy as np

from forerun.models.neural import minimise, onnx_bytes, onnx_session, seeded_torch, stacked


@dataclass(frozen=True)
class Few:
    epochs: int = 5
    learning_rate: float = 0.1
    weight_decay: float = 0.0


def line(held_out_error=None):
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
            held_out_error=None if held_out_error is None else lambda e: held_out_error(e, module),
        )
    return module


def test_the_same_seed_gives_the_same_weights():
    assert [p.item() for p in line().parameters()] == [p.item() for p in line().parameters()]


def test_it_ends_in_evaluation_mode_with_the_weights_of_the_best_epoch():
    errors, weights = [4.0, 1.0, 3.0, 2.0, 5.0], []

    def error(epoch, module):
        weights.append(module.weight.item())
        return errors[epoch]

    module = line(error)
    assert not module.training
    assert module.weight.item() == weights[1] != weights[-1]


def test_without_held_out_rows_the_last_epoch_is_kept():
    weights = []

    def error(epoch, module):
        weights.append(module.weight.item())
        return float(-epoch)

    assert line(error).weight.item() == weights[-1] == line().weight.item()


def test_torchs_seed_and_threads_are_as_before_afterwards():
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    with seeded_torch(3, threads + 1):
        assert torch.get_num_threads() == threads + 1
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


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
