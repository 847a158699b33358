"""From a table to a data set: read columns, give each series its rows, encode labels, weights and static columns."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.data.assemble import assemble
from tides.data.attributes import (
    LabelKind,
    class_name,
    describe_static,
    encode_labels,
    encode_static,
    encode_weights,
)
from tides.data.clock import settle_clock
from tides.data.columns import ranked
from tides.data.dataset import IrregularDataset
from tides.data.new_categories import NewCategories, known_codes
from tides.data.pivot import Block, Duplicates, Names, Rows, pivot
from tides.data.roles import Roles, check_roles
from tides.data.schema import Schema, StaticColumn
from tides.data.sources import Table, shown
from tides.data.spill import RowSpill
from tides.data.store import FlatStore
from tides.data.table_reader import TableReader
from tides.errors import DataError

Unlabelled = Literal["error", "drop"]


def ingest(
    table: Table,
    roles: Roles,
    unit: str | None,
    duplicates: Duplicates,
    unlabelled: Unlabelled,
    new_categories: NewCategories,
    label_kind: LabelKind,
    ordinal: bool,
    schema: Schema | None,
    spill: str | Path | None,
) -> IrregularDataset:
    """Read `table` into a data set; `from_long` and `from_wide` say what the arguments mean."""
    _check(table, roles, unit, duplicates, unlabelled, new_categories, schema)
    reader = TableReader(table, roles)
    if spill is None:
        rows: Iterator[Rows] = iter([_joined(reader.chunks())])
        folder = None
    else:
        folder = Path(spill)
        folder.mkdir(parents=True, exist_ok=True)
        dealt = RowSpill(folder, len(roles.values), list(roles.per_series), long=roles.channel is not None)
        for chunk in reader.chunks():
            dealt.add(chunk)
        rows = dealt.parts()
    if schema is not None and schema.unit is None and reader.clock.kind not in ("number", "count"):
        raise DataError(
            f"{reader.clock.where}: found {reader.clock.kind}s, but the schema's times are numbers without a unit; "
            "give numbers, or state unit= for the training data"
        )
    series_names, key_rank = _series(reader)
    channels, channel_place = _channels(reader, schema)
    names = Names(
        table.name,
        roles.id or "series",
        roles.time,
        lambda key: f"{roles.id or 'series'} {series_names[key] if series_names is not None else key!r}",
        lambda place: repr(channels[place]),
        lambda column, code: repr(reader.codes[column].values[code]),
    )
    sparse = None if spill is None else roles.channel is not None
    blocks = (
        pivot(_renumbered(part, key_rank, channel_place), len(channels), duplicates, names, sparse=sparse)
        for part in rows
    )
    known = (schema.origin, schema.offset) if schema else (None, None)
    clock = settle_clock(reader.clock, unit or (schema.unit if schema else None), reader.earliest, *known)
    merged, times = assemble(blocks, clock, folder, n_channels=len(channels), long=roles.channel is not None)
    ids = merged.keys if series_names is None else np.array(series_names, object)[merged.keys]
    if reader.chosen is not None:
        reader.chosen.warn(key_rank, series_names, merged.keys)
    base = Schema(channels, clock.unit, clock.origin, offset=0 if clock.resolution else clock.zero)
    return _finish(reader, merged, times, ids, base, unlabelled, new_categories, label_kind, ordinal, schema)


def _check(
    table: Table,
    roles: Roles,
    unit: str | None,
    duplicates: str,
    unlabelled: str,
    new_categories: str,
    schema: Schema | None,
) -> None:
    check_roles(table, roles)
    if duplicates not in ("error", "mean", "last"):
        raise DataError(f"duplicates={duplicates!r}; wanted 'error', 'mean' or 'last'")
    if unlabelled not in ("error", "drop"):
        raise DataError(f"unlabelled={unlabelled!r}; wanted 'error' or 'drop'")
    if new_categories not in ("error", "missing"):
        raise DataError(f"new_categories={new_categories!r}; wanted 'error' or 'missing'")
    if schema is not None and unit is not None and unit != schema.unit:
        raise DataError(f"unit={unit!r}, but the schema's unit is {schema.unit!r}")
    if schema is not None and tuple(column.name for column in schema.static) != roles.static:
        known = [column.name for column in schema.static]
        raise DataError(f"static={list(roles.static)}, but the schema has {known}")


def _joined(chunks: Iterator[Rows]) -> Rows:
    """One set of rows. A single chunk is passed on; of many, each column is released once it is joined."""
    import pyarrow as pa

    first, second = next(chunks), next(chunks, None)
    if second is None:
        return first
    n_values, code_names = len(first.values), list(first.codes)
    parts: dict[Any, list[NDArray[Any]]] = {}
    for chunk in chain((first, second), chunks):
        columns: dict[Any, NDArray[Any] | None] = {"key": chunk.key, "time": chunk.time, "channel": chunk.channel}
        columns["number"] = chunk.numbers
        columns |= {("value", i): column for i, column in enumerate(chunk.values)}
        columns |= {("code", name): column for name, column in chunk.codes.items()}
        for name, column in columns.items():
            if column is not None:
                # A copy, so that Arrow can use the chunk's memory again for the next one.
                parts.setdefault(name, []).append(column.copy())
    del first, second, chunk, columns, column
    pa.default_memory_pool().release_unused()
    return Rows(
        key=np.concatenate(parts.pop("key")),
        time=np.concatenate(parts.pop("time")),
        values=[np.concatenate(parts.pop(("value", i))) for i in range(n_values)],
        codes={name: np.concatenate(parts.pop(("code", name))) for name in code_names},
        channel=np.concatenate(parts.pop("channel")) if "channel" in parts else None,
        numbers=np.concatenate(parts.pop("number")) if "number" in parts else None,
    )


def _series(reader: TableReader) -> tuple[list[Any] | None, NDArray[np.int64] | None]:
    """Ids in sorted order and the place of each code among them; None for whole-number ids."""
    if reader.whole_ids:
        return None, None
    values = reader.ids.typed(names=True)
    if all(isinstance(value, float) and value.is_integer() for value in values):
        values = [int(value) for value in values]
    rank = ranked(values, reader.ids.where)
    ordered: list[Any] = [None] * len(values)
    for value, place in zip(values, rank, strict=True):
        ordered[place] = value
    return ordered, rank


def _channels(reader: TableReader, schema: Schema | None) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    """Channel names in their order and the place of each code among them."""
    if reader.roles.channel is None:
        found = tuple(reader.roles.values)
        if schema is not None and found != schema.channels:
            raise DataError(f"{reader.table.name}: channels {list(found)} differ from the schema's")
        return found, None
    values = reader.channels.typed(names=True)
    names = [class_name(value) for value in values]
    if reader.chosen is not None:
        return reader.chosen.names, reader.chosen.order(names, schema)
    if schema is None:
        rank = ranked(values, reader.channels.where)
        return tuple(names[i] for i in np.argsort(rank)), rank
    place = {name: i for i, name in enumerate(schema.channels)}
    unknown = sorted(set(names) - set(place))
    if unknown:
        raise DataError(
            f"{reader.channels.where}: channel {unknown[0]!r} is not among the schema's: {shown(schema.channels)}. "
            "Leave out its rows, or name the channels to read (`--ignore-new` in commands)"
        )
    return schema.channels, np.array([place[name] for name in names], np.int64)


def _renumbered(rows: Rows, key_rank: NDArray[Any] | None, channel_place: NDArray[Any] | None) -> Rows:
    key = rows.key if key_rank is None else key_rank.astype(np.int32)[rows.key]
    channel = rows.channel
    if channel is not None and channel_place is not None:
        channel = channel_place.astype(np.int32)[channel]
    return replace(rows, key=key, channel=channel)


def _finish(
    reader: TableReader,
    block: Block,
    times: NDArray[np.float64],
    ids: NDArray[Any],
    base: Schema,
    unlabelled: Unlabelled,
    new_categories: NewCategories,
    label_kind: LabelKind,
    ordinal: bool,
    schema: Schema | None,
) -> IrregularDataset:
    """Encode what belongs to each series, and put the data set together in the order of ids."""
    roles, labels, weights, groups = reader.roles, None, None, None
    class_names = None if schema is None else schema.class_names
    order = np.argsort(block.keys, kind="stable")
    if roles.label is not None:
        coder, codes = reader.codes[roles.label], block.codes[roles.label]
        order = _with_label(order, codes, coder.where, ids, unlabelled)
        # Series without a label are not among those of the data set, whatever stands there for them.
        known = np.maximum(codes, 0)
        labels, class_names = encode_labels(coder.typed(), known, coder.where, kind=label_kind, class_names=class_names)
    if roles.weight is not None:
        coder, codes = reader.codes[roles.weight], block.codes[roles.weight]
        blank = order[codes[order] < 0]
        if len(blank):
            raise DataError(f"{coder.where}: {roles.id} {ids[blank].tolist()[0]!r} has no weight; wanted a number ≥ 0")
        weights = encode_weights(coder.typed(), np.maximum(codes, 0), coder.where)
    if roles.group is not None:
        coder, codes = reader.codes[roles.group], block.codes[roles.group]
        groups = np.array([*coder.typed(), None], object)[codes]
    columns: list[StaticColumn] = []
    features: list[NDArray[np.float64]] = []
    for position, name in enumerate(roles.static):
        coder = reader.codes[name]
        column = describe_static(name, coder.typed(), ordinal=ordinal) if schema is None else schema.static[position]
        columns.append(column)
        codes = known_codes(reader, column, block.codes[name], ids, new_categories)
        features.append(encode_static(column, coder.typed(), codes, coder.where))
    statics = np.hstack(features) if features else None
    store = FlatStore(block.bounds, times, block.cells, ids, labels, statics, groups, weights)
    full = replace(base, class_names=class_names, static=tuple(columns))
    return IrregularDataset(store, schema=full, _index=order)


def _with_label(
    order: NDArray[np.intp], codes: NDArray[Any], where: str, ids: NDArray[Any], unlabelled: Unlabelled
) -> NDArray[np.intp]:
    """The places of the series that have a label."""
    has = codes[order] >= 0
    if has.all():
        return order
    if not has.any():
        raise DataError(f"{where}: no series has a label")
    without = ids[order[~has]].tolist()
    found = f"{where}: {len(without)} of {len(order)} series without a label: {shown(without)}"
    if unlabelled == "error":
        raise DataError(f"{found}; leave them out, or let unlabelled='drop' do so (`--unlabelled drop` in commands)")
    warnings.warn(f"{found}; left out", stacklevel=5)
    return order[has]
