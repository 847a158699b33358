"""A training step leaves nothing to the host: no tensor is copied to the device and no number is read from it.

A GPU waits for such copies, and a step that has one cannot be captured as a CUDA graph. The meta device stands for
a GPU here: it computes no values, so that reading one fails, and mixing it with a tensor of the host shows.
"""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.baselines.small import SMALL, answer, draw
from tides import baselines, kernels


class HostTraffic(TorchDispatchMode):
    """Operations that see tensors of the host beside those of the device, or move one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        if {x.device.type for x in tensors} > {"meta"}:
            self.found.append(str(func))
        return result


QUICK = ("lru", "mamba", "rformer", "logsig-ssm")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in baselines.names()]
)
def test_a_step_stays_on_the_device(name: str) -> None:
    batch = type(draw())(*(x.to("meta") for x in draw()))
    model = baselines.build(name, **SMALL[name]).to("meta").train()
    with kernels.use_backend("torch"), HostTraffic() as traffic:
        output = answer(name, model, batch)
        if output.requires_grad:
            output.sum().backward()
    assert traffic.found == []


def test_traffic_is_noticed() -> None:
    x = torch.ones(3, device="meta")
    with HostTraffic() as traffic:
        x * 2
        x + torch.tensor(2.0)
        torch.arange(3).to("meta")
    assert len(traffic.found) == 2
    with pytest.raises(Exception, match="meta"):
        x.sum().item()
