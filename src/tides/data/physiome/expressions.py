"""The arithmetic that generated equations may contain; anything else is refused.

libCellML writes Python, and text of a model travels into it. Only numbers, array elements, arithmetic and the
functions below pass, so a hostile model can compute a wrong number but nothing else.
"""

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from tides.errors import DataError

Prefixes = Mapping[str, Callable[[int], str]]

FUNCTIONS = (
    *("pow", "sqrt", "fabs", "exp", "log", "log10", "ceil", "floor", "fmod"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_TWO_ARGUMENTS = ("pow", "fmod", "min", "max")
_MATH = SimpleNamespace(**{name: getattr(math, name) for name in (*FUNCTIONS, "pi", "e", "inf", "nan")})
_SCOPE = {"__builtins__": {}, "math": _MATH, "min": min, "max": max}
_CONSTANTS = {"pi": "math.pi", "e": "math.e", "inf": "math.inf", "nan": "math.nan"}
# libCellML's own functions, written out over x and y; each argument stands once, so nesting cannot explode.
_TEMPLATES = {
    "eq_func": "1.0 if x == y else 0.0",
    "neq_func": "1.0 if x != y else 0.0",
    "lt_func": "1.0 if x < y else 0.0",
    "leq_func": "1.0 if x <= y else 0.0",
    "gt_func": "1.0 if x > y else 0.0",
    "geq_func": "1.0 if x >= y else 0.0",
    "and_func": "1.0 if x != 0.0 and y != 0.0 else 0.0",
    "or_func": "1.0 if x != 0.0 or y != 0.0 else 0.0",
    "xor_func": "1.0 if (x != 0.0) != (y != 0.0) else 0.0",
    "not_func": "1.0 if x == 0.0 else 0.0",
    "sec": "1.0 / math.cos(x)",
    "csc": "1.0 / math.sin(x)",
    "cot": "1.0 / math.tan(x)",
    "sech": "1.0 / math.cosh(x)",
    "csch": "1.0 / math.sinh(x)",
    "coth": "1.0 / math.tanh(x)",
    "asec": "math.acos(1.0 / x)",
    "acsc": "math.asin(1.0 / x)",
    "acot": "math.atan(1.0 / x)",
    "asech": "math.acosh(1.0 / x)",
    "acsch": "math.asinh(1.0 / x)",
    "acoth": "math.atanh(1.0 / x)",
}
_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_UNARY = (ast.UAdd, ast.USub)


def statements(name: str, tree: ast.Module, function: str, prefixes: Prefixes) -> Iterator[tuple[str, ast.expr]]:
    """Assignments of one generated function as (target, checked expression), arrays renamed to scalars."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    if len(found) != 1:
        raise DataError(f"{name}: the generated code holds {len(found)} functions {function!r}; wanted one")
    translator = _Translator(name, prefixes)
    for node in found[0].body:
        if isinstance(node, ast.Pass):
            continue
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            raise DataError(f"{name}: {function} holds a {type(node).__name__}; wanted assignments only")
        yield translator.element(node.targets[0]).id, translator.expression(node.value)


def evaluate(name: str, expression: ast.expr, values: Mapping[str, float]) -> float:
    """The number a checked expression stands for, given the scalars it uses."""
    tree = ast.fix_missing_locations(ast.Expression(expression))
    try:
        return float(eval(compile(tree, name, "eval"), _SCOPE, dict(values)))
    except (ArithmeticError, ValueError):
        return float("nan")
    except (NameError, MemoryError) as error:
        raise DataError(f"{name}: a nominal value cannot be computed: {error}") from None


class _Translator:
    """Copies an expression node by node; a node that is not on the list stops it."""

    def __init__(self, name: str, prefixes: Prefixes) -> None:
        self.name = name
        self.prefixes = prefixes

    def refuse(self, node: ast.AST) -> DataError:
        return DataError(f"{self.name}: the generated equations hold {ast.unparse(node)[:80]!r}, which is refused")

    def element(self, node: ast.expr) -> ast.Name:
        match node:
            case ast.Subscript(value=ast.Name(id=array), slice=ast.Constant(value=int(index))) if (
                array in self.prefixes
            ):
                return ast.Name(self.prefixes[array](index), ast.Load())
        raise self.refuse(node)

    def expression(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Constant(value=int(value) | float(value)) if not isinstance(value, bool):
                return ast.Constant(float(value))
            case ast.Subscript():
                return self.element(node)
            case ast.Name(id="voi"):
                return ast.Name("t", ast.Load())
            case ast.Name(id=constant) if constant in _CONSTANTS:
                return _parse(_CONSTANTS[constant])
            case ast.BinOp(op=op) if isinstance(op, _BINARY):
                return ast.BinOp(self.expression(node.left), op, self.expression(node.right))
            case ast.UnaryOp(op=op) if isinstance(op, _UNARY):
                return ast.UnaryOp(op, self.expression(node.operand))
            case ast.IfExp():
                test = ast.Compare(self.expression(node.test), [ast.NotEq()], [ast.Constant(0.0)])
                return ast.IfExp(test, self.expression(node.body), self.expression(node.orelse))
            case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
                return self.call(node, function, [self.expression(argument) for argument in arguments])
        raise self.refuse(node)

    def call(self, node: ast.Call, function: str, arguments: list[ast.expr]) -> ast.expr:
        right_count = len(arguments) == (2 if function in _TWO_ARGUMENTS else 1)
        if function in FUNCTIONS and right_count:
            return ast.Call(ast.Attribute(ast.Name("math", ast.Load()), function, ast.Load()), arguments, [])
        if function in ("min", "max") and right_count:
            return ast.Call(ast.Name(function, ast.Load()), arguments, [])
        if function in _TEMPLATES:
            template = _parse(_TEMPLATES[function])
            names = {n.id for n in ast.walk(template) if isinstance(n, ast.Name)} - {"math"}
            if len(names) == len(arguments):
                filled: ast.expr = _Fill(dict(zip(("x", "y"), arguments, strict=False))).visit(template)
                return filled
        raise self.refuse(node)


class _Fill(ast.NodeTransformer):
    def __init__(self, arguments: Mapping[str, ast.expr]) -> None:
        self.arguments = arguments

    def visit_Name(self, node: ast.Name) -> Any:
        return self.arguments.get(node.id, node)


def _parse(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body
