"""How kernels multiply matrices of float32."""

import torch

# Tiles of a program must fit its registers.
WIDEST = 64


def matrix_precision() -> str:
    """Three products of halves keep float32 accuracy; one, of TF32's accuracy, is an explicit choice of the user.

    It follows `torch.set_float32_matmul_precision`, whose default is "highest".
    """
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
