"""Test-wide settings: one thread, float shapes checked at run time, a deterministic hypothesis profile."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Signatures of the mathematics are checked in tests only: the hook would break torch.compile(fullgraph=True).
if find_spec("beartype") is not None:
    install_import_hook("tides.functional", "beartype.beartype")

# Tensors in tests are small, and several test processes may share few cores.
torch.set_num_threads(1)

settings.register_profile(
    "tides", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tides")

_SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture(autouse=True)
def _one_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real test data beside the project; tests that need it are skipped where it is absent."""
    if not _SHARED.is_dir():
        pytest.skip("no ../shared folder with test data beside the project")
    return _SHARED
