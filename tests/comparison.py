"""How tests compare tensors: relative to the largest entry of the wanted one, so that zeros do not matter."""

from torch import Tensor


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """max |found − wanted| / max |wanted|; NaN counts as infinite."""
    if found.shape != wanted.shape:
        raise AssertionError(f"found shape {tuple(found.shape)}, wanted {tuple(wanted.shape)}")
    if wanted.numel() == 0:
        return 0.0
    error = (found.detach().to(wanted.dtype) - wanted.detach()).abs().max()
    scale = wanted.detach().abs().max().clamp_min(1e-300)
    ratio = float(error / scale)
    return float("inf") if ratio != ratio else ratio


def assert_close(found: Tensor, wanted: Tensor, tolerance: float, what: str = "") -> None:
    error = relative_error(found, wanted)
    assert error <= tolerance, f"{what}: relative error {error:.2e} exceeds {tolerance:.0e}"
