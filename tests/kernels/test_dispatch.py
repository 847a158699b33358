"""Which backend runs: an explicit choice never falls back, `auto` says once what it passed over."""

import sys
import threading
import warnings

import pytest
import torch
from torch._subclasses import FakeTensorMode

import tides.kernels
from tests.functional.layers import Case, random_input, random_layer
from tides.errors import BackendUnavailable, ConfigError, ShapeError
from tides.kernels import dispatch, explain, keep_backend, linear_scan, selective_ssm, use_backend
from tides.kernels.dispatch import last_backend


@pytest.fixture
def _without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The backend named by the parameter is not installed."""
    # None in sys.modules makes the import fail; the attribute would be found first if it was imported before.
    monkeypatch.setitem(sys.modules, f"tides.kernels.{request.param}", None)
    monkeypatch.delattr(tides.kernels, request.param, raising=False)
    monkeypatch.setattr(dispatch, "_told", set())


def run_layer() -> None:
    (u, gaps), case = random_input(), Case()
    selective_ssm(u, gaps, random_layer(case), case.spec)


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(ConfigError, match="'fast'"), use_backend("fast"):  # type: ignore[arg-type]
        pass


def test_triton_on_the_cpu_is_refused_with_a_reason() -> None:
    with use_backend("triton"), pytest.raises(BackendUnavailable, match="triton"):
        run_layer()


def test_a_gpu_without_a_c_compiler_runs_torch_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = pytest.importorskip("tides.kernels.triton", reason="triton is not installed")
    with FakeTensorMode():
        u = torch.ones(1, 4, 2, device="cuda")
    for compiler, wanted in (("gcc", "triton"), (None, "torch")):
        monkeypatch.setattr(backend, "_COMPILER", compiler)
        choice = explain(u)
        assert choice.backend == wanted
        assert ("C compiler" in choice.passed_over.get("triton", "")) == (compiler is None)


@pytest.mark.parametrize("_without", ["cpu"], indirect=True)
@pytest.mark.usefixtures("_without")
def test_an_explicit_choice_never_falls_back() -> None:
    with use_backend("cpu"):
        with pytest.raises(BackendUnavailable, match="not installed"):
            run_layer()
        with pytest.raises(BackendUnavailable, match="not installed"):
            linear_scan(torch.ones(1, 4, 2), torch.ones(1, 4, 2))
        with pytest.raises(BackendUnavailable, match="not installed"):
            explain(torch.ones(1, 4, 2))


@pytest.mark.parametrize("_without", ["cpu"], indirect=True)
@pytest.mark.usefixtures("_without")
def test_auto_falls_back_and_says_so_once() -> None:
    with pytest.warns(UserWarning, match="'cpu' is not used.*not installed"):
        run_layer()
    assert last_backend() == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_layer()


@pytest.mark.parametrize("u", [3, None, torch.ones(4)], ids=["number", "nothing", "vector"])
def test_what_is_no_data_is_not_explained(u: object) -> None:
    with pytest.raises(ShapeError, match=r"u: found .*, wanted a tensor \(b, l, h\)"):
        explain(u)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_the_backend_that_was_asked_for_runs(backend: str) -> None:
    with use_backend(backend):  # type: ignore[arg-type]
        run_layer()
        assert last_backend() == backend
        choice = explain(torch.ones(2, 5, 3))
        assert choice.backend == backend
        assert "asked" in choice.reason


def test_choices_nest_and_end() -> None:
    x = torch.ones(1, 4, 2)
    with use_backend("torch"):
        with use_backend("reference"):
            assert explain(x).backend == "reference"
        assert explain(x).backend == "torch"
        with pytest.raises(RuntimeError, match="inside"), use_backend("reference"):
            raise RuntimeError("inside")
        assert explain(x).backend == "torch"


def test_a_choice_is_its_threads_own() -> None:
    u, found = torch.ones(1, 4, 2), list[str]()
    entered, asked = threading.Event(), threading.Event()

    def other() -> None:
        with use_backend("reference"):
            entered.set()
            asked.wait()

    thread = threading.Thread(target=other)
    with use_backend("torch"):
        thread.start()
        entered.wait()
        found.append(explain(u).backend)
        asked.set()
        thread.join()
        found.append(explain(u).backend)
    assert found == ["torch", "torch"]


def test_what_is_run_again_keeps_its_choice() -> None:
    with use_backend("torch"):
        again = keep_backend(lambda: explain(torch.ones(1, 4, 2)).backend)
    with use_backend("reference"):
        assert again() == "torch"


def test_a_single_step_needs_no_scan() -> None:
    choice = explain(torch.ones(2, 1, 3))
    assert choice.backend == "reference"
    assert "single step" in choice.reason


def test_explain_runs_nothing() -> None:
    with use_backend("reference"):
        run_layer()
    explain(torch.ones(2, 9, 3))
    assert last_backend() == "reference"
