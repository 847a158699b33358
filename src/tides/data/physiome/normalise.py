"""Small repairs that older CellML models need before libCellML accepts them, and their text form."""

import copy
from decimal import Decimal
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from tides.data.physiome.cellml import CELLML, MATHML, XLINK_HREF, Document, local_name, split_name

# The units every CellML model may use without defining them; the last row is accepted in CellML 1.x only.
STANDARD_UNITS = frozenset(
    [
        "ampere",
        "becquerel",
        "candela",
        "coulomb",
        "dimensionless",
        "farad",
        "gram",
        "gray",
        "henry",
        "hertz",
        "joule",
        "katal",
        "kelvin",
        "kilogram",
        "litre",
        "lumen",
        "lux",
        "metre",
        "mole",
        "newton",
        "ohm",
        "pascal",
        "radian",
        "second",
        "siemens",
        "sievert",
        "steradian",
        "tesla",
        "volt",
        "watt",
        "weber",
        "liter",
        "meter",
        "celsius",
        "boolean",
    ]
)
_TEXT_ELEMENTS = ("cn", "ci", "sep")


def normalise(documents: dict[str, Document]) -> list[str]:
    """Repair the documents of one model in place; returns one line per repair that touches its meaning.

    Plain numbers with an exponent are written out as decimals. A unit that a file uses without defining it is
    copied from another file of the same model, or counts as dimensionless if no file defines it.
    """
    notes: list[str] = []
    for key, document in documents.items():
        _write_out_exponents(document.root)
        notes += _define_missing_units(key, document, documents)
    return notes


def to_text(root: Element) -> str:
    """The document as XML, one default namespace per element and the `cellml` and `xlink` prefixes."""
    model_namespace, _ = split_name(root.tag)
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    _write(root, "", model_namespace, parts)
    return "".join(parts)


def _write_out_exponents(root: Element) -> None:
    for number in root.iter(f"{MATHML} cn"):
        text = (number.text or "").strip()
        # e-notation carries its exponent after a <sep/>; in every other type libCellML wants plain digits.
        if number.get("type", "real") == "real" and "e" in text.lower():
            number.text = format(Decimal(text), "f")


def _define_missing_units(key: str, document: Document, documents: dict[str, Document]) -> list[str]:
    copied: dict[str, list[str]] = {}
    replaced = []
    # A copied definition may use further units, so look again until nothing is missing.
    while missing := _undefined_units(document):
        name = missing[0]
        donor = _find_units(name, key, documents)
        if donor is None:
            replaced.append(name)
            _replace_units(document.root, name, "dimensionless")
        else:
            copied.setdefault(donor[0], []).append(name)
            document.root.insert(0, copy.deepcopy(donor[1]))
    notes = [f"{key}: {_listed(names)} not defined there; copied from {donor}" for donor, names in copied.items()]
    if replaced:
        notes.append(f"{key}: {_listed(replaced)} not defined anywhere; read as dimensionless")
    return notes


def _listed(names: list[str], most: int = 3) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"unit {shown} is" if len(names) == 1 else f"units {shown}{more} are"


def _undefined_units(document: Document) -> list[str]:
    namespace = document.namespace
    defined = set(STANDARD_UNITS)
    for units in document.root.iter(f"{namespace} units"):
        defined.add(units.get("name", ""))
    used = {
        value
        for element in document.root.iter()
        for name, value in element.attrib.items()
        if split_name(name)[1] == "units" and local_name(element) != "units"
    }
    return sorted(used - defined)


def _find_units(name: str, key: str, documents: dict[str, Document]) -> tuple[str, Element] | None:
    for other, document in documents.items():
        if other == key:
            continue
        for child in document.root:
            if child.tag == f"{document.namespace} units" and child.get("name") == name:
                return other, child
    return None


def _replace_units(root: Element, old: str, new: str) -> None:
    for element in root.iter():
        for name, value in element.attrib.items():
            if split_name(name)[1] == "units" and value == old:
                element.set(name, new)


def _write(element: Element, outer_namespace: str, model_namespace: str, parts: list[str]) -> None:
    namespace, local = split_name(element.tag)
    namespace = model_namespace if namespace in CELLML else namespace
    parts.append(f"<{local}")
    if namespace != outer_namespace:
        parts.append(f' xmlns="{namespace}"')
    if not outer_namespace:
        parts.append(f' xmlns:cellml="{model_namespace}" xmlns:xlink="{split_name(XLINK_HREF)[0]}"')
    for name, value in element.attrib.items():
        prefix = "xlink:" if name == XLINK_HREF else "cellml:" if split_name(name)[0] else ""
        parts.append(f" {prefix}{split_name(name)[1]}={quoteattr(value)}")
    parts.append(">")
    keeps_text = local in _TEXT_ELEMENTS
    if keeps_text and element.text:
        parts.append(escape(element.text.strip()))
    for child in element:
        _write(child, namespace, model_namespace, parts)
        if keeps_text and child.tail:
            parts.append(escape(child.tail.strip()))
    parts.append(f"</{local}>\n" if not keeps_text else f"</{local}>")
