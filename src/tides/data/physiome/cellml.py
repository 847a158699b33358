"""CellML files from strangers: read with limits, without entities, network or paths outside their folder.

A CellML 1.0, 1.1 or 2.0 model and everything it imports become small element trees that hold CellML and MathML
only; documentation, metadata and identifiers are left behind.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote
from xml.etree.ElementTree import Element
from xml.parsers import expat

from tides.errors import DataError

MAX_FILE_BYTES = 8 * 2**20
MAX_FILES = 64
MAX_ELEMENTS = 300_000
MAX_DEPTH = 150
# Terms of one sum or product; libCellML nests them, and takes minutes over some ten thousand.
MAX_TERMS = 500

CELLML = tuple(f"http://www.cellml.org/cellml/{version}#" for version in ("1.0", "1.1", "2.0"))
MATHML = "http://www.w3.org/1998/Math/MathML"
XLINK_HREF = "http://www.w3.org/1999/xlink href"

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,254}", re.ASCII)


@dataclass(frozen=True)
class Document:
    """One CellML file as a tree; tags and attribute names are `namespace local` pairs or bare local names."""

    path: Path
    root: Element

    @property
    def namespace(self) -> str:
        return split_name(self.root.tag)[0]

    def imports(self) -> list[Element]:
        return [child for child in self.root if child.tag == f"{self.namespace} import"]


def split_name(name: str) -> tuple[str, str]:
    """Namespace (or an empty string) and local part of a tag or attribute name."""
    namespace, _, local = name.rpartition(" ")
    return namespace, local


def local_name(element: Element) -> str:
    return split_name(element.tag)[1]


def is_number(text: str) -> bool:
    """Whether `text` is a real number with an exponent of at most three digits."""
    return _NUMBER.fullmatch(text) is not None


def read(path: str | Path) -> dict[str, Document]:
    """The model at `path` and, recursively, its imports, keyed by path relative to the model's folder.

    The model itself comes first. Imports must be existing files inside that folder.
    """
    top = Path(path)
    if not top.is_file():
        raise DataError(f"{top}: no such CellML file")
    folder = top.resolve().parent
    documents: dict[str, Document] = {}
    _read_closure(top.resolve(), folder, documents, chain=())
    return documents


def imported_key(document: Document, element: Element, folder: Path) -> str:
    """Key of the file that an import element names, checked to lie inside `folder`."""
    where = document.path.name
    href = element.get(XLINK_HREF)
    if not href:
        raise DataError(f"{where}: an import has no xlink:href; it must name a file beside the model")
    # CellML allows a fragment; only whole files are imported here.
    name = unquote(href.split("#", 1)[0])
    if re.match(r"[A-Za-z][\w+.-]*:", name) or name.startswith(("/", "\\")) or "\0" in name:
        raise DataError(f"{where}: import of {href!r} refused; only files inside the model's folder are read")
    target = (document.path.parent / name.replace("\\", "/")).resolve()
    if not target.is_relative_to(folder):
        raise DataError(f"{where}: import of {href!r} refused; it leaves the folder {folder.name!r}")
    if not target.is_file():
        raise DataError(f"{where}: imports {href!r}, which is not in the folder {folder.name!r}")
    return target.relative_to(folder).as_posix()


def _read_closure(path: Path, folder: Path, documents: dict[str, Document], chain: tuple[str, ...]) -> None:
    key = path.relative_to(folder).as_posix()
    if key in chain:
        raise DataError(f"{key}: circular import {' → '.join([*chain, key])}")
    if key in documents:
        return
    if len(documents) >= MAX_FILES:
        raise DataError(f"{key}: the model imports more than {MAX_FILES} files")
    documents[key] = document = Document(path, parse(path))
    for element in document.imports():
        target = imported_key(document, element, folder)
        element.set(XLINK_HREF, target)
        _read_closure(folder / target, folder, documents, (*chain, key))


def parse(path: Path) -> Element:
    """The root of one file: CellML and MathML elements, their own attributes, checked numbers and names."""
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise DataError(f"{path.name}: {size} bytes; CellML files of up to {MAX_FILE_BYTES} bytes are read")
    reader = _Reader(path.name)
    try:
        reader.parser.Parse(path.read_bytes(), True)
    except OSError as error:
        raise DataError(f"{path.name}: cannot be read: {error}") from None
    except (expat.ExpatError, LookupError, ValueError) as error:
        # A DataError of the reader is a ValueError as well; the rest are unknown or broken encodings.
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path.name}: not well-formed XML: {error}") from None
    root = reader.builder.close()
    if split_name(root.tag) not in [(namespace, "model") for namespace in CELLML]:
        raise DataError(f"{path.name}: root element is {root.tag!r}; wanted a CellML 1.0, 1.1 or 2.0 model")
    _check_equations(root, path.name)
    return root


class _Reader:
    """An expat parser that refuses entities and keeps only what a simulation needs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.builder = ElementTree.TreeBuilder()
        self.depth = 0
        self.elements = 0
        # Depth at which a foreign element (documentation, RDF) opened; everything below it is left out.
        self.foreign_depth: int | None = None
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text
        self.parser.EntityDeclHandler = self.refuse_entity
        self.parser.ExternalEntityRefHandler = self.refuse_entity
        self.parser.SkippedEntityHandler = self.refuse_entity

    def refuse_entity(self, *details: object) -> int:
        raise DataError(f"{self.name}: declares or uses XML entities, which are refused")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        self.elements += 1
        if self.depth > MAX_DEPTH:
            raise DataError(f"{self.name}: elements nested deeper than {MAX_DEPTH}")
        if self.elements > MAX_ELEMENTS:
            raise DataError(f"{self.name}: more than {MAX_ELEMENTS} elements")
        if self.foreign_depth is None and self.elements > 1 and not _is_model_part(tag):
            self.foreign_depth = self.depth
        if self.foreign_depth is None:
            kept = {name: value for name, value in attributes.items() if _is_model_attribute(name)}
            self.builder.start(tag, kept)

    def end(self, tag: str) -> None:
        if self.foreign_depth is None:
            self.builder.end(tag)
        elif self.foreign_depth == self.depth:
            self.foreign_depth = None
        self.depth -= 1

    def text(self, data: str) -> None:
        if self.foreign_depth is None:
            self.builder.data(data)


def _is_model_part(tag: str) -> bool:
    namespace, _ = split_name(tag)
    return namespace in CELLML or namespace == MATHML


def _is_model_attribute(name: str) -> bool:
    # Identifiers carry no meaning for a simulation, and duplicated or ill-formed ones stop libCellML.
    namespace, local = split_name(name)
    return name == XLINK_HREF or (namespace in CELLML and local == "units") or (not namespace and local != "id")


def _check_equations(root: Element, file: str) -> None:
    """Bounded sums, and numbers that are numbers: libCellML copies their text into the code it generates."""
    for component in root.iter(f"{split_name(root.tag)[0]} component"):
        where = f"{file}: component {component.get('name')!r}"
        for variable in component.iter(f"{split_name(root.tag)[0]} variable"):
            value = variable.get("initial_value")
            if value is not None and not (is_number(value.strip()) or _IDENTIFIER.fullmatch(value.strip())):
                name = variable.get("name")
                raise DataError(f"{where}: variable {name!r} has initial_value {value!r}; wanted a number or a name")
            if value is not None:
                variable.set("initial_value", value.strip())
        for operation in component.iter(f"{MATHML} apply"):
            if len(operation) > MAX_TERMS:
                raise DataError(f"{where}: an equation with {len(operation)} terms; at most {MAX_TERMS} are read")
        for number in component.iter(f"{MATHML} cn"):
            for part in _number_parts(number):
                if not is_number(part):
                    raise DataError(f"{where}: a <cn> element holds {part!r}; wanted a number")


def _number_parts(number: Element) -> Iterator[str]:
    yield (number.text or "").strip()
    for child in number:
        if local_name(child) != "sep":
            yield f"<{local_name(child)}>"
        else:
            yield (child.tail or "").strip()
