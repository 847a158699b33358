"""Parts of the rows of a wide block: all of them once, as even as can be, and no larger than allowed."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton", reason="triton is not installed (extra `gpu`)")
from tides.kernels.triton import wide_mix
from tides.kernels.triton.buffers import Buffer


@given(rows=st.integers(1, 5000), width=st.integers(1, 300), most=st.integers(1, 1 << 18))
def test_parts_are_all_rows(rows: int, width: int, most: int) -> None:
    run: Any = SimpleNamespace(rows=rows)
    with mock.patch.object(wide_mix, "_PART", most):
        parts = wide_mix.rows_of(run, width)
    assert [part.start for part in parts] == [sum(before.size for before in parts[:k]) for k in range(len(parts))]
    assert sum(part.size for part in parts) == rows
    assert all(part.start % 64 == 0 and part.size * width <= max(most, 64 * width) for part in parts)
    assert all(0 < part.size <= parts[0].size for part in parts)
    assert len(parts) <= -(-rows // max(64, most // width // 64 * 64))


@pytest.mark.parametrize(("dtype", "wanted"), [(torch.float32, (1920, 30)), (torch.float16, (960, 15))])
def test_rows_of_a_buffer_are_counted_in_its_own_numbers(dtype: torch.dtype, wanted: tuple[int, int]) -> None:
    part = wide_mix.Rows(64, 1).of(Buffer(0, 0, 10_000, dtype), 30)
    assert (part.offset, part.size, part.dtype) == (*wanted, dtype)
