import json

import pytest

from tides.cli import main


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


def test_doctor_names_the_extra_of_a_missing_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import util

    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    with pytest.raises(SystemExit):
        main.app(["doctor"], prog_name="tides")
    assert 'matplotlib     not installed: pip install "tides-ssm[plots]"' in capsys.readouterr().out
