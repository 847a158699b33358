"""Run as a script: compiles models without the type-checking hook of the tests, which would break the graph.

Usage: compiled_models.py BACKEND KIND…; exits with an error when a result differs or the graph breaks.
"""

import sys

import torch
from torch._dynamo.utils import counters

from tides.nn import Backbone, Forecaster, SequenceClassifier, TIDESConfig


def compare(compiler: str, kind: str) -> None:
    torch.manual_seed(0)
    config = TIDESConfig(input_size=2, hidden_size=4, state_size=2, depth=2, rank=1, projector_init="random")
    x, gaps = torch.randn(2, 2, 2), torch.rand(2, 2)
    arguments: tuple[torch.Tensor | None, ...] = (x, gaps)
    extra = {"valid": torch.tensor([[True, True], [True, False]])}
    match kind:
        case "backbone":
            model: torch.nn.Module = Backbone(config)
        case "classifier":
            model = SequenceClassifier(config.replace(summary=True), 3)
        case _:
            model = Forecaster(config, 2, kind)  # type: ignore[arg-type]
            arguments = (x, gaps.double().cumsum(1), None, torch.rand(2, 2).double())
    results = []
    for compiled in (False, True):
        model.train()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.zero_grad()
        run = torch.compile(model, backend=compiler, fullgraph=True) if compiled else model
        output = run(*arguments, **extra)
        output = output[0] if isinstance(output, tuple) else output
        output.square().sum().backward()
        found = {"output": output.detach()}
        found |= {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found |= {name: buffer.clone() for name, buffer in model.named_buffers()}
        results.append(found)
        model.load_state_dict(state)
    eager, other = results
    assert eager.keys() == other.keys()
    for name, wanted in eager.items():
        scale = max(float(wanted.abs().max()), 1e-3)
        error = float((other[name] - wanted).abs().max()) / scale
        assert error < 1e-4, f"{kind}: {name} differs by {error:.1e}"
    assert not counters["graph_break"], f"{kind}: graph breaks {dict(counters['graph_break'])}"
    assert counters["stats"]["unique_graphs"] >= 1, f"{kind}: nothing was compiled"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind in sys.argv[2:]:
        torch._dynamo.reset()
        counters.clear()
        compare(sys.argv[1], kind)
        print(f"{kind}: same result, one graph")
