"""torch.compile and torch.export of whole layers and models.

They run in a process of their own, because the shape checks that the test suite installs would break the graphs.
"""

import subprocess
import sys

import pytest

_SCRIPT = """
import sys, torch, tides
from tides import kernels

torch.manual_seed(0)
backend, task = sys.argv[1:]
config = tides.TIDESConfig(input_size=2, hidden_size=5, state_size=4, rank=2, depth=2, projector_init="random")
model = tides.SequenceClassifier(config, 3).double().eval()
x, gaps = torch.randn(2, 9, 2).double(), torch.rand(2, 9).double()
with kernels.use_backend(backend):
    if task == "compile":
        layer = model.backbone.blocks[0].ssm
        u = torch.randn(2, 9, 5).double()
        wanted, _ = layer(u, gaps)
        gradients = torch.autograd.grad(wanted.square().sum(), list(layer.parameters()))
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        found, _ = compiled(u, gaps)
        others = torch.autograd.grad(found.square().sum(), list(layer.parameters()))
        torch.testing.assert_close(found, wanted)
        for ours, theirs in zip(others, gradients):
            torch.testing.assert_close(ours, theirs)
    else:
        program = torch.export.export(model, (x, gaps))
        graphs = [part.graph for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
        names = {str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"}
        # A whole block is one operator where the backend has it.
        own = (f"tides.block_{backend}.", f"tides.evolve_{backend}")
        assert any(name.startswith(own) for name in names), sorted(names)
        torch.testing.assert_close(program.module()(x, gaps), model(x, gaps))
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("task", ["compile", "export"])
@pytest.mark.parametrize("backend", ["torch", "cpu"])
def test_graphs_without_breaks(backend: str, task: str) -> None:
    if backend == "cpu":
        pytest.importorskip("numba", reason="extra `speed` is not installed")
    outcome = subprocess.run(
        [sys.executable, "-c", _SCRIPT, backend, task], capture_output=True, text=True, check=False
    )
    assert outcome.stdout.strip().endswith("done"), outcome.stderr[-3000:]


_TRACES = """
import torch, tides

torch.manual_seed(0)
config = tides.TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=2, rank=2)
x, gaps, times = torch.randn(2, 5, 2).double(), torch.rand(2, 5).double(), torch.arange(5).double().repeat(2, 1)
for make, given in (
    (tides.SequenceClassifier, (x, gaps)),
    (tides.Forecaster, (x, times, torch.ones(2, 5, 2).bool(), times[:, :2] + 6)),
):
    model = make(config, 2).double().eval()
    traced = torch.jit.trace(model, given, check_trace=False)
    torch.testing.assert_close(traced(*given), model(*given))
print("done")
"""


@pytest.mark.slow
def test_traced_models_give_the_same_answers() -> None:
    words = [sys.executable, "-W", "ignore", "-c", _TRACES]
    outcome = subprocess.run(words, capture_output=True, text=True, check=False)
    assert outcome.stdout.strip() == "done", outcome.stderr[-3000:]


_WITHOUT = """
import sys
sys.modules["tides.kernels.cpu"] = None
import torch, tides

model = tides.Backbone(tides.TIDESConfig(input_size=2, hidden_size=4, state_size=4, depth=1)).eval()
x = torch.randn(2, 9, 2)
found, _ = torch.compile(model, backend="eager", fullgraph=True)(x, 0.5)
torch.testing.assert_close(found, model(x, 0.5)[0])
print("done")
"""


@pytest.mark.slow
def test_a_backend_that_is_not_installed_breaks_no_graph() -> None:
    words = [sys.executable, "-W", "ignore", "-c", _WITHOUT]
    outcome = subprocess.run(words, capture_output=True, text=True, check=False)
    assert outcome.stdout.strip() == "done", outcome.stderr[-3000:]
