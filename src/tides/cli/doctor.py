"""`tides doctor`: what is installed, what can run, and where files go."""

import json
from typing import Annotated

import typer

app = typer.Typer()

# Import name and the extra that brings it.
_OPTIONAL = {
    "matplotlib": "plots",
    "pandas": "tables",
    "pyarrow": "tables",
    "aeon": "uea",
    "sklearn": "sklearn",
    "numba": "speed",
    "libcellml": "simulation",
    "scipy": "simulation",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "huggingface_hub": "hub",
    "torchcde": "baselines",
    "torchdiffeq": "baselines",
    "accelerate": "distributed",
    "optuna": "sweep",
    "psycopg": "postgresql",
    "ray": "cluster",
    "triton": "(with a CUDA build of torch)",
}


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show versions, devices, libraries, backends and folders."""
    facts = _gather()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    for section, entries in facts.items():
        print(section)
        for name, value in entries.items():
            print(f"  {name:<15} {value}")


def _gather() -> dict[str, dict[str, str]]:
    import os
    import platform
    import sys
    from importlib import metadata, util

    import torch

    import tides
    from tides.data.cache import cache_root

    devices = {"cpu": f"{os.cpu_count()} cores, {torch.get_num_threads()} torch threads"}
    for index in range(torch.cuda.device_count()):
        devices[f"cuda:{index}"] = torch.cuda.get_device_name(index)
    if torch.backends.mps.is_available():
        devices["mps"] = "available"

    packages = metadata.packages_distributions()
    libraries = {}
    for name, extra in _OPTIONAL.items():
        if util.find_spec(name) is None:
            hint = extra if extra.startswith("(") else f'pip install "tides-ssm[{extra}]"'
            libraries[name] = f"not installed: {hint}"
        else:
            libraries[name] = metadata.version(packages[name][0]) if name in packages else "installed"
    return {
        "versions": {
            "tides": tides.__version__,
            "torch": str(torch.__version__),
            "python": sys.version.split()[0],
            "system": platform.platform(),
        },
        "devices": devices,
        "libraries": libraries,
        "backends": _backends(),
        "folders": {"data": str(cache_root())},
    }


def _backends() -> dict[str, str]:
    """Every kernel backend and whether it can run a small scan here."""
    from typing import get_args

    import torch

    from tides import kernels
    from tides.errors import BackendUnavailable

    found = {}
    for name in get_args(kernels.Backend):
        device = "cuda" if name == "triton" and torch.cuda.is_available() else "cpu"
        data = torch.zeros(1, 2, 1, device=device)
        try:
            with kernels.use_backend(name):
                choice = kernels.explain(data)
        except BackendUnavailable as error:
            found[name] = f"not available: {error}"
        else:
            found[name] = f"{choice.backend}: {choice.reason}" if name == "auto" else "ready"
    return found
