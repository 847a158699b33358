"""Reading CellML: repairs of old models, and hostile or broken files that must end in a clear DataError."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.physiome.models import as_version_1_1, importing, oscillator
from tides.data.physiome import cellml, expressions
from tides.data.physiome.equations import Equations, convert
from tides.data.physiome.rhs import compile_source, write_source
from tides.errors import DataError

pytest.importorskip("libcellml", reason="libCellML is not installed")


def write(folder: Path, text: str | bytes, name: str = "model.cellml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rates(equations: Equations, y: list[float], t: float = 0.0) -> list[float]:
    source = write_source(equations, range(len(equations.states)), range(len(equations.constants)))
    constants = np.array([constant.value for constant in equations.constants])
    return compile_source(source)(t, np.array(y), constants, np.empty(len(y))).tolist()


def test_converts_states_constants_and_rates(tmp_path: Path) -> None:
    equations = convert(write(tmp_path, oscillator()))
    assert [state.legend for state in equations.states] == [
        "v in component spring (dimensionless)",
        "x in component spring (dimensionless)",
    ]
    assert [(constant.name, constant.value) for constant in equations.constants] == [("k", 2.0), ("k_double", 4.0)]
    assert ("time", "clock") in equations.time.aliases
    assert rates(equations, [5.0, 3.0]) == [-12.0, 5.0]


def test_plain_exponents_and_bad_ids_are_repaired(tmp_path: Path) -> None:
    equations = convert(write(tmp_path, oscillator(one="2.5e-3")))
    assert rates(equations, [2.0, 0.0])[1] == 2.5e-3 * 2.0
    assert equations.notes == ()


def test_undefined_units_count_as_dimensionless_and_are_noted(tmp_path: Path) -> None:
    equations = convert(write(tmp_path, oscillator(unit="nanomolar")))
    assert equations.notes == ("model.cellml: unit 'nanomolar' is not defined anywhere; read as dimensionless",)


def test_units_are_copied_from_another_file_of_the_model(tmp_path: Path) -> None:
    write(tmp_path, as_version_1_1(oscillator(unit="per_cent")), "parts/child.cellml")
    units = '<units name="per_cent"><unit units="dimensionless" multiplier="0.01"/></units>'
    clock = '<component name="clock"><variable name="time" units="second" public_interface="out"/></component>'
    path = write(tmp_path, importing("parts/child.cellml", before=units + clock, connect=True))
    assert list(cellml.read(path)) == ["model.cellml", "parts/child.cellml"]
    equations = convert(path)
    assert equations.notes == ("parts/child.cellml: unit 'per_cent' is not defined there; copied from model.cellml",)
    assert [state.name for state in equations.states] == ["v", "x"]


BOMB = """<?xml version="1.0"?><!DOCTYPE model [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><model xmlns="http://www.cellml.org/cellml/1.0#" name="m">&b;</model>"""
EXTERNAL = """<?xml version="1.0"?><!DOCTYPE model [<!ENTITY x SYSTEM "file:///etc/hostname">]>
<model xmlns="http://www.cellml.org/cellml/1.0#" name="m">&x;</model>"""
PARAMETER = """<?xml version="1.0"?><!DOCTYPE model [<!ENTITY % x SYSTEM "http://example.org/x.dtd"> %x;]>
<model xmlns="http://www.cellml.org/cellml/1.0#" name="m"/>"""
SKIPPED = """<?xml version="1.0"?><!DOCTYPE model SYSTEM "http://example.org/x.dtd">
<model xmlns="http://www.cellml.org/cellml/1.0#" name="m">&unknown;</model>"""


@pytest.mark.parametrize("text", [BOMB, EXTERNAL, PARAMETER, SKIPPED])
def test_entities_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"model\.cellml: .*entities"):
        convert(write(tmp_path, text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not well-formed"),
        (b"<model", "not well-formed"),
        (b"\x00\xff\xfe<", "not well-formed"),
        (b'<?xml version="1.0" encoding="no-such-code"?><model/>', "not well-formed"),
        (b"<html/>", "root element is 'html'"),
        (b'<model xmlns="http://www.cellml.org/cellml/9.9#"/>', "root element"),
        (b'<model xmlns="http://www.cellml.org/cellml/1.0#" name="empty"/>', "libCellML|differential"),
    ],
)
def test_files_that_are_not_models(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        convert(write(tmp_path, content))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such CellML file"):
        convert(tmp_path / "absent.cellml")
    with pytest.raises(DataError, match="no such CellML file"):
        convert(tmp_path)


def test_size_depth_and_count_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = '<model xmlns="http://www.cellml.org/cellml/1.0#" name="m">'
    deep = head + "<group>" * 400 + "</group>" * 400 + "</model>"
    with pytest.raises(DataError, match="nested deeper"):
        convert(write(tmp_path, deep))
    monkeypatch.setattr(cellml, "MAX_ELEMENTS", 50)
    with pytest.raises(DataError, match="more than 50 elements"):
        convert(write(tmp_path, head + "<group/>" * 60 + "</model>"))
    monkeypatch.setattr(cellml, "MAX_FILE_BYTES", 100)
    with pytest.raises(DataError, match="bytes; CellML files of up to 100 bytes"):
        convert(write(tmp_path, oscillator()))


@pytest.mark.parametrize(("terms", "message"), [(400, "nested too deeply"), (600, "equation with 602 terms")])
def test_endless_sums(tmp_path: Path, terms: int, message: str) -> None:
    text = oscillator().replace("<apply><times/><ci>v</ci>", "<apply><plus/>" + "<ci>v</ci>" * terms)
    with pytest.raises(DataError, match=rf"model\.cellml: .*{message}"):
        convert(write(tmp_path, text))


@pytest.mark.parametrize(
    ("href", "message"),
    [
        ("absent.cellml", "which is not in the folder"),
        ("../outside.cellml", "leaves the folder"),
        ("a/../../outside.cellml", "leaves the folder"),
        ("%2e%2e/outside.cellml", "leaves the folder"),
        ("/etc/passwd", "only files inside"),
        ("file:///etc/passwd", "only files inside"),
        ("http://example.org/x.cellml", "only files inside"),
        ("link.cellml", "leaves the folder"),
        ("", "no xlink:href"),
    ],
)
def test_imports_stay_inside_the_folder(tmp_path: Path, href: str, message: str) -> None:
    folder = tmp_path / "inside"
    path = write(folder, importing(href))
    outside = write(tmp_path, oscillator(), "outside.cellml")
    (folder / "link.cellml").symlink_to(outside)
    with pytest.raises(DataError, match=message):
        convert(path)


def test_circular_imports(tmp_path: Path) -> None:
    write(tmp_path, importing("b.cellml"), "a.cellml")
    write(tmp_path, importing("a.cellml"), "b.cellml")
    with pytest.raises(DataError, match=r"circular import a\.cellml → b\.cellml → a\.cellml"):
        convert(tmp_path / "a.cellml")


@pytest.mark.parametrize("text", ["__import__('os').abort()", "1 if print('x') else 2", "1e9999", "", "abc"])
def test_numbers_that_are_not_numbers(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="component 'spring': a <cn> element holds"):
        convert(write(tmp_path, oscillator(one=text)))
    if text != "abc":  # a name is allowed there
        with pytest.raises(DataError, match=r"variable 'k' has initial_value"):
            convert(write(tmp_path, oscillator(k=text)))


def test_underdetermined_and_circular_equations(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model\.cellml: libCellML"):
        convert(write(tmp_path, oscillator().replace(' initial_value="1.0"', "")))
    loop = '<apply><times/><cn cellml:units="dimensionless">2</cn><ci>k_double</ci></apply>'
    text = oscillator().replace('<apply><times/><cn cellml:units="dimensionless">2</cn><ci>k</ci></apply>', loop)
    with pytest.raises(DataError, match=r"cannot be computed|algebraic loop|libCellML"):
        convert(write(tmp_path, text))


def test_the_name_of_a_file_is_no_code(tmp_path: Path) -> None:
    equations = convert(write(tmp_path, oscillator(), '"""\nraise SystemExit\n"""{0}.cellml'))
    assert rates(equations, [5.0, 3.0]) == [-12.0, 5.0]


@pytest.mark.parametrize(
    "code",
    [
        "rates[0] = __import__('os').getcwd()",
        "rates[0] = open('x')",
        "rates[0] = states[0].__class__",
        "rates[0] = exp(states[0], 2)",
        "rates[0] = [1.0][0]",
        "rates[0] = (lambda: 1.0)()",
        "rates[0] = 2 ** 9999999",
        "rates[0] = 'text'",
        "rates[0] = other[0]",
        "rates[0] = states[states[0]]",
        "import os",
        "x = 1.0",
        "for i in range(9): rates[0] = 1.0",
    ],
)
def test_only_arithmetic_passes_the_whitelist(code: str) -> None:
    tree = ast.parse(f"def compute_rates(states, rates):\n    {code}")
    prefixes = {"states": lambda i: f"y{i}", "rates": lambda i: f"r{i}"}
    with pytest.raises(DataError):
        list(expressions.statements("m", tree, "compute_rates", prefixes))


def test_nested_conditions_do_not_explode(tmp_path: Path) -> None:
    code = "states[0]"
    for _ in range(40):
        code = f"min({code}, and_func(lt_func(states[0], 1.0), states[0]))"
    tree = ast.parse(f"def compute_rates(states, rates):\n    rates[0] = {code}")
    prefixes = {"states": lambda i: f"y{i}", "rates": lambda i: f"r{i}"}
    ((_, expression),) = expressions.statements("m", tree, "compute_rates", prefixes)
    assert len(ast.unparse(expression)) < 10_000
    assert expressions.evaluate("m", expression, {"y0": 0.5}) == 0.5


@given(
    position=st.integers(0, len(oscillator()) - 1),
    junk=st.one_of(st.binary(max_size=6), st.sampled_from([b"<", b"/>", b"<apply>", b"NaN", b"-1", b"&lt;"])),
    cut=st.integers(0, 12),
)
def test_damaged_files_never_end_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, position: int, junk: bytes, cut: int
) -> None:
    text = oscillator().encode()
    path = write(tmp_path_factory.mktemp("damaged"), text[:position] + junk + text[position + cut :])
    try:
        names = [state.name for state in convert(path).states]
    except DataError:
        return
    assert names
