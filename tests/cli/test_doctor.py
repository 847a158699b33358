import json
import tomllib
from pathlib import Path

import pytest

from tides.cli import doctor, main


def test_doctor_reports_versions_and_devices_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.app(["doctor", "--json"], prog_name="tides")
    assert end.value.code == 0
    facts = json.loads(capsys.readouterr().out)
    assert {"versions", "devices", "libraries", "folders"} <= set(facts)
    assert facts["versions"]["torch"]
    assert "cores" in facts["devices"]["cpu"]
    assert facts["backends"]["reference"] == "ready"
    assert set(facts["backends"]) == {"auto", "reference", "torch", "cpu", "triton"}


def test_doctor_knows_what_every_extra_brings() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {name for name in project["optional-dependencies"] if name not in ("docs", "dev")}
    # Triton has no extra of its own where torch brings it along.
    assert extras - set(doctor._OPTIONAL.values()) == {"gpu"}
    for library, extra in doctor._OPTIONAL.items():
        if not extra.startswith("("):
            package = {"sklearn": "scikit-learn"}.get(library, library)
            brought = " ".join(project["optional-dependencies"][extra])
            assert package in brought, f"{library}: [{extra}] brings {brought}"


def test_doctor_names_the_extra_of_a_missing_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import util

    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    with pytest.raises(SystemExit):
        main.app(["doctor"], prog_name="tides")
    assert 'matplotlib      not installed: pip install "tides-ssm[plots]"' in capsys.readouterr().out
