"""What a training step holds equals what torch holds, and set-ups change it as they should."""

from dataclasses import replace

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.liveness import Walk
from forerun.features.memory.plan import memory_plan
from forerun.features.memory.training_step import training_requests
from forerun.features.readers.torch_trace import trace_module

BATCH = 6
PLAIN = TrainingSetup("sgd")


def tracker(weights):
    """Counts bytes of storages that are alive, but weights."""
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Tracker(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.alive, self.peak = {}, 0

        def keep(self, tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in weights:
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

        def now(self):
            self.alive = {k: v for k, v in self.alive.items() if not v[0].expired()}
            return sum(size for _, size in self.alive.values())

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for tensor in tree_leaves(out):
                if hasattr(tensor, "untyped_storage"):
                    self.keep(tensor)
            self.peak = max(self.peak, self.now())
            return out

    return Tracker()


def held_by_torch(module, x):
    """Bytes alive once forward is done, and most bytes in forward and backward together."""
    import torch

    torch.set_num_threads(1)
    tensors = [*module.parameters(), *module.buffers()]
    with tracker({t.untyped_storage()._cdata for t in tensors}) as track:
        track.keep(x)
        y = module(x)
        after = track.now()
        y.backward(torch.ones_like(y))
    return after, track.peak


def held_by_walk(graph):
    walk, kept = Walk(graph, "fp32", PLAIN), {}
    weights = sum(w.elements for w in walk.all_weights()) * 4
    walk.forward(range(len(graph)), {}, kept)
    asked = walk.tape.requests()
    return int(asked.live(asked.sizes(1.0))[-1]) - weights


def modules():
    from torch import nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.one, self.two = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

        def forward(self, x):
            return x + self.two(nn.functional.gelu(self.one(self.norm(x))))

    class Excited(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.gate = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x):
            x = nn.functional.silu(self.norm(self.conv(x)))
            return x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid()

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4).unbind(0)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).flatten(2))

    activations = (nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.ReLU6, nn.ELU)
    plain = {
        a.__name__: (nn.Sequential(nn.Linear(16, 32), a(), nn.Linear(32, 8)), (16,))
        for a in activations
    }
    pooled = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.AvgPool2d(2))
    stem = nn.Sequential(
        *(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        nn.Conv2d(16, 32, 3, 2, 1),
    )
    return {
        **plain,
        "stem": (stem, (3, 32, 32)),
        "residual": (Residual(), (5, 32)),
        "excited": (Excited(), (3, 12, 12)),
        "pooled": (pooled, (3, 14, 14)),
        "softmax": (nn.Sequential(nn.Linear(16, 8), nn.Softmax(-1), nn.Linear(8, 2)), (16,)),
        "attention": (Attention(), (10, 32)),
    }


NAMES = (
    *("ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Hardswish", "ReLU6", "ELU"),
    *("stem", "residual", "excited", "pooled", "softmax", "attention"),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_forward_leaves_and_what_backward_adds_is_what_torch_holds(name):
    import torch

    module, shape = modules()[name]
    after, peak = held_by_torch(module.train(), torch.zeros(BATCH, *shape))
    graph = trace_module(module, (torch.zeros(BATCH, *shape),), batch_size=BATCH)
    assert held_by_walk(graph) == after
    asked = training_requests(graph, "fp32", PLAIN)
    weights = asked.sizes(1.0)[asked.category == 0].sum()
    assert asked.live(asked.sizes(1.0)).max() - weights == pytest.approx(peak, rel=0.10)


WIDE = 1024


def chain(layers=8, batch=64):
    """A tower of square linear layers with activations between them."""
    ops = []
    for layer in range(layers):
        before = (2 * layer - 1,) if layer else ()
        shape = ((batch, WIDE),)
        ops.append(Operator("linear", "fc", shape, shape, WIDE * WIDE, inputs=before))
        gelu = {"function": "gelu"}
        ops.append(Operator("elementwise", "aten.gelu", shape, shape, 0, gelu, (2 * layer,)))
    return OperatorGraph(tuple(ops), batch_size=batch)


CHAIN = chain()
WEIGHTS_MIB = 8 * 4.0


def plan(setup=PLAIN, batch=64, precision="fp32", phase="training", graph=CHAIN):
    return memory_plan(Network(graph, batch, precision, phase, setup))


def test_adamw_is_the_default_and_its_step_copies_every_weight():
    small = plan(None, batch=1)
    assert small == plan(TrainingSetup("adamw"), batch=1)
    # Weights, gradients, two moments and the root of the second.
    assert small.live == pytest.approx(5 * WEIGHTS_MIB, rel=0.02)


def test_accumulation_trains_large_batches_in_small_ones():
    whole, parted = plan(batch=6400), plan(replace(PLAIN, accumulation=10), batch=6400)
    assert parted.parts["activations"] == pytest.approx(whole.parts["activations"] / 10, rel=0.05)
    assert parted.live >= plan(batch=640).live


def test_autocast_keeps_weights_twice_and_half_the_activations():
    full, auto = plan(batch=6400), plan(batch=6400, precision="amp")
    assert auto.parts["weights"] == pytest.approx(1.5 * full.parts["weights"], rel=0.01)
    assert auto.parts["activations"] < 0.75 * full.parts["activations"]
