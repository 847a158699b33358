"""From CellML files to explicit equations: libCellML analyses the model, a whitelist guards what it generates."""

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from tides.data.physiome import cellml, normalise
from tides.data.physiome.expressions import evaluate, statements
from tides.errors import DataError

MAX_GENERATED_CHARACTERS = 2_000_000


@dataclass(frozen=True)
class Quantity:
    """A state, a constant or time: its name in the model and its nominal value."""

    name: str
    component: str
    unit: str
    value: float
    aliases: frozenset[tuple[str, str]]
    """(name, component) of every variable connected to it, itself included."""

    @property
    def legend(self) -> str:
        return f"{self.name} in component {self.component} ({self.unit})"


@dataclass(frozen=True)
class Equations:
    """An explicit system dy/dt = f(t, y, c) in libCellML's order: literal constants, then derived ones.

    `body` holds assignments in the order of evaluation, over `t`, `y<i>`, `c<i>`, `a<i>` (algebraic variables)
    and `r<i>` (rates).
    """

    name: str
    time: Quantity
    states: tuple[Quantity, ...]
    constants: tuple[Quantity, ...]
    body: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def convert(path: str | Path) -> Equations:
    """The equations of the CellML model at `path` (its imports lie beside it)."""
    try:
        return _convert(path)
    except RecursionError:
        raise DataError(f"{Path(path).name}: an equation is nested too deeply") from None


def _convert(path: str | Path) -> Equations:
    documents = cellml.read(path)
    notes = normalise.normalise(documents)
    texts = {key: normalise.to_text(document.root) for key, document in documents.items()}
    name = Path(path).name
    model = _analyse(name, texts)
    code = _generate(name, model)
    tree = _parse(name, code)
    n_constants = model.constantCount()
    prefixes = {
        "states": lambda i: f"y{i}",
        "rates": lambda i: f"r{i}",
        "constants": lambda i: f"c{i}",
        "computed_constants": lambda i: f"c{n_constants + i}",
        "algebraic_variables": lambda i: f"a{i}",
    }
    starts = list(statements(name, tree, "initialise_arrays", prefixes))
    derived = list(statements(name, tree, "compute_computed_constants", prefixes))
    # A state may start at the value of a constant, so states come last.
    starts.sort(key=lambda statement: statement[0].startswith("y"))
    n_plain = sum(not target.startswith("y") for target, _ in starts)
    nominal: dict[str, float] = {}
    for target, expression in (*starts[:n_plain], *derived, *starts[n_plain:]):
        nominal[target] = evaluate(name, expression, nominal)
    constants = [*_all(model, "constant"), *_all(model, "computedConstant")]
    return Equations(
        name=Path(path).stem,
        time=_quantity(model.voi(), 0.0),
        states=tuple(_named(name, "y", i, v, nominal) for i, v in enumerate(_all(model, "state"))),
        constants=tuple(_named(name, "c", i, v, nominal) for i, v in enumerate(constants)),
        body=_in_order_of_use(name, dict(statements(name, tree, "compute_rates", prefixes))),
        notes=tuple(notes),
    )


def _analyse(name: str, texts: dict[str, str]) -> Any:
    try:
        import libcellml
    except ImportError:
        raise DataError("reading CellML needs libCellML: pip install 'tides-ssm[simulation]'") from None
    models = {}
    for key, text in texts.items():
        models[key] = libcellml.Parser(False).parseModel(text)
    top, *imported = models
    importer = libcellml.Importer(False)
    for key in imported:
        importer.addModel(models[key], key)
    # Every import is already in the importer's library, so it opens no file.
    importer.resolveImports(models[top], "")
    flat = importer.flattenModel(models[top])
    if flat is None:
        raise DataError(f"{name}: libCellML cannot resolve the model: {_issues(importer)}")
    analyser = libcellml.Analyser()
    analyser.analyseModel(flat)
    model = analyser.analyserModel()
    kind = model.typeAsString(model.type())
    if kind in ("dae", "nla"):
        raise DataError(f"{name}: has an algebraic loop; only explicit ordinary differential equations are simulated")
    if kind == "algebraic":
        raise DataError(f"{name}: has no differential equation")
    if kind != "ode":
        raise DataError(f"{name}: libCellML finds the model {kind}: {_issues(analyser)}")
    return model


def _issues(logger: Any, most: int = 3) -> str:
    errors = [logger.error(i).description() for i in range(logger.errorCount())]
    shown = "; ".join(" ".join(error.split()) for error in errors[:most])
    return shown + (f" (and {len(errors) - most} more)" if len(errors) > most else "")


def _generate(name: str, model: Any) -> str:
    import libcellml

    profile = libcellml.GeneratorProfile(libcellml.GeneratorProfile.Profile.PYTHON)
    code: str = libcellml.Generator().implementationCode(model, profile)
    if len(code) > MAX_GENERATED_CHARACTERS:
        raise DataError(f"{name}: equations of {len(code)} characters; at most {MAX_GENERATED_CHARACTERS} are compiled")
    return code


def _parse(name: str, code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{name}: the equations are too deep or malformed: {error}") from None


def _in_order_of_use(name: str, body: dict[str, ast.expr]) -> tuple[tuple[str, str], ...]:
    """The assignments such that each name is assigned before it is used.

    libCellML keeps this order for algebraic variables, but not where a rate stands on a right-hand side.
    """
    uses = {
        target: [n.id for n in ast.walk(expression) if isinstance(n, ast.Name) and n.id in body]
        for target, expression in body.items()
    }
    try:
        order = list(TopologicalSorter(uses).static_order())
    except CycleError as error:
        raise DataError(f"{name}: the equations depend on each other in a circle: {error.args[1]}") from None
    return tuple((target, ast.unparse(body[target])) for target in order)


def _all(model: Any, kind: str) -> Iterator[Any]:
    for i in range(getattr(model, f"{kind}Count")()):
        yield getattr(model, kind)(i)


def _named(name: str, prefix: str, i: int, analysed: Any, nominal: dict[str, float]) -> Quantity:
    value = nominal.get(f"{prefix}{i}", math.nan)
    quantity = _quantity(analysed, value)
    if not math.isfinite(value):
        raise DataError(f"{name}: {quantity.legend} has no finite nominal value (found {value})")
    return quantity


def _quantity(analysed: Any, value: float) -> Quantity:
    variable = analysed.variable()
    aliases: set[tuple[str, str]] = set()
    pending = [variable]
    while pending:
        current = pending.pop()
        alias = (current.name(), current.parent().name())
        if alias not in aliases:
            aliases.add(alias)
            pending += [current.equivalentVariable(i) for i in range(current.equivalentVariableCount())]
    return Quantity(variable.name(), variable.parent().name(), variable.units().name(), value, frozenset(aliases))
