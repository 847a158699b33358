"""mean_p |B_k[p, h]|² for every column h, which the complex RMSNorm of a projected B_k or C_k divides by.

With 𝓑_h the factors of a column it is a quadratic form z̃ᵀ G_h z̃, G_h = 𝓑_hᵀ 𝓑_h / P: one matrix product of the
products z̃_i z̃_j with the entries of all G_h. The form squares the condition number of 𝓑_h, so it is taken in float64
whatever the data is; its gradients need no more than the data's own precision.
"""

from torch import Tensor


def column_forms(factors: Tensor) -> Tensor:
    """G_h[i, j] for every column of the factors (m, p, h, 2, i), as (m, i, i, h) in float64."""
    columns = _columns(factors).double()
    forms: Tensor = (columns.mT @ columns / factors.shape[1]).permute(0, 2, 3, 1).contiguous()
    return forms


def d_column_forms(products: Tensor, factors: Tensor) -> Tensor:
    """Gradient of the factors from Σ_k (z̃_i z̃_j)_k ds_k (m, i, i, h), symmetric, with ds_k that of the mean square."""
    p = factors.shape[1]
    slopes = (products.permute(0, 3, 1, 2) * (2 / p)).to(factors.dtype)
    gradient: Tensor = (_columns(factors) @ slopes).unflatten(2, (p, 2)).permute(0, 2, 1, 3, 4)  # (m, p, h, 2, i)
    return gradient


def _columns(factors: Tensor) -> Tensor:
    """(m, h, 2p, i)."""
    return factors.permute(0, 2, 1, 3, 4).flatten(2, 3)
