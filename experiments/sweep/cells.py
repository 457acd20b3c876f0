"""Cells, the pieces of work of an experiment, and the folder of finished cells.

A finished cell is one parquet file, written in one step, so it is always complete. It stores its function and
arguments, and its name contains a hash of them, so a changed definition is a new cell. A checksum in its metadata
covers all other bytes of the file, so a damaged file is noticed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kbo
from kbo._base.files import TEMPORARY, check_file, reading, replacing
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Rows = list[dict[str, Any]]

logger: logging.Logger = logging.getLogger(__name__)

_DEFINITION = b"kbo.cell"
"""Key of the metadata that has function, arguments and checksum."""

_CHECKSUM = "kbo.crc32"
_BEFORE_CHECKSUM = f'"{_CHECKSUM}": "'.encode()
_NO_CHECKSUM = "0" * 8
"""Placeholder of the checksum, which has eight hexadecimal digits."""


@dataclass(frozen=True)
class Cell:
    """One piece of work: a function and its arguments.

    Attributes:
        function: "module:name" of a function at the top level of a module. It takes the arguments by keyword and
            returns rows: a non-empty list of dictionaries of plain numbers and strings.
        arguments: Values that JSON can represent; tuples become lists.
        label: A short text for people, part of the file name; the hash in ``key`` makes the name unique.
    """

    function: str
    arguments: Mapping[str, Any] = field(hash=False)
    label: str

    def __post_init__(self) -> None:
        try:
            plain = json.loads(json.dumps(dict(self.arguments), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"the arguments of cell {self.label!r} must be plain values that JSON can hold (numbers, strings, "
                f"lists, dictionaries): {error}."
            ) from error
        object.__setattr__(self, "arguments", plain)

    @property
    def identity(self) -> str:
        """Version of kbo, function and arguments as one line of text, in which 10 and 10.0 are the same."""
        arguments = json.loads(json.dumps(self.arguments), parse_float=_number)
        return json.dumps([kbo.__version__, self.function, arguments], sort_keys=True)

    @property
    def key(self) -> str:
        """The name of the cell's files: the label and a hash of version, function and arguments."""
        label = re.sub(r"[^\w.+=-]+", "-", self.label, flags=re.ASCII).strip("-.")[:100]
        unique = hashlib.sha256(self.identity.encode()).hexdigest()[:10]
        return f"{label or 'cell'}-{unique}"

    def resolve(self) -> Callable[..., Rows]:
        """Return the function.

        Raises:
            InvalidInput: There is no such function at the top level of such a module.
        """
        module, _, name = self.function.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidInput(
                f"cell {self.label!r} names {self.function!r}, which cannot be imported ({error}); it must be "
                "'module:name' of a function at the top level of a module."
            ) from error
        return function

    def run(self) -> Rows:
        """Do the work."""
        return self.resolve()(**self.arguments)


class Folder:
    """The folder of a sweep, with KEY.parquet for a finished cell and KEY.error.txt for a failed one.

    Args:
        path: The folder; ``locked`` creates it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)

    def file(self, cell: Cell) -> Path:
        """Return the path of the rows of a finished cell."""
        return self.path / f"{cell.key}.parquet"

    def error_file(self, cell: Cell) -> Path:
        """Return the path of the traceback of a failed cell."""
        return self.path / f"{cell.key}.error.txt"

    def contains(self, cell: Cell) -> bool:
        """Return whether this cell is done. A file that is damaged or belongs to another cell does not count."""
        path = self.file(cell)
        if not path.exists():
            return False
        try:
            definition = json.loads(_table(path, sealed=True).schema.metadata[_DEFINITION])
            if definition["identity"] == cell.identity:
                return True
            reason = "it is of another cell"
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error)
        logger.warning("%s does not count, and is done again: %s", path, reason)
        return False

    def write(self, cell: Cell, rows: Rows) -> None:
        """Store the rows of a finished cell in one step."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        is_list = isinstance(rows, list) and bool(rows)
        if not is_list or not all(isinstance(row, dict) for row in rows):
            raise InvalidInput(
                f"{cell.function} must return a non-empty list of dictionaries, got {rows!r:.100}."
            )
        names = dict.fromkeys(itertools.chain.from_iterable(rows))
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
        definition = {
            "identity": cell.identity,
            "key": cell.key,
            "arguments": cell.arguments,
            _CHECKSUM: _NO_CHECKSUM,
        }
        table = table.replace_schema_metadata({_DEFINITION: json.dumps(definition)})
        content = pa.BufferOutputStream()
        pq.write_table(table, content)
        with replacing(self.file(cell)) as file:
            file.write(_sealed(content.getvalue().to_pybytes()))
        self.error_file(cell).unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps out of the folder, and remove unfinished files of sweeps that were killed.

        Raises:
            InvalidInput: Another sweep is at work in this folder, or it cannot be created or written to.
        """
        from filelock import FileLock, Timeout

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=0).acquire()
        except Timeout as error:
            raise InvalidInput(
                f"another sweep is at work in {self.path}: wait for it, or choose another folder (--out)."
            ) from error
        except OSError as error:
            raise InvalidInput(
                f"cannot write to the folder {self.path}: {error.strerror}. Choose another (--out)."
            ) from error
        with lock:
            for leftover in self.path.glob(f".*{TEMPORARY}"):
                leftover.unlink(missing_ok=True)
            yield


def read_rows(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the rows of a finished cell, or of all in a folder.

    The key of a cell and its arguments that are single values become columns; rows of other origin are unchanged.

    Raises:
        InvalidInput: There is no such file, the folder has no cell, or a file is damaged.
    """
    path = Path(path)
    if os.path.isdir(path):
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise InvalidInput(f"the folder {path} has no finished cells (no .parquet files).")
        return concatenate(map(read_rows, files))
    check_file(path, "Give a file of `kbo run`, or its folder.")
    with reading(path, "a table of rows (Parquet)", "Give a file of `kbo run`, or its folder."):
        table = _table(path)
        rows = table.to_pandas()
        definition = (table.schema.metadata or {}).get(_DEFINITION)
        if definition is None:
            return rows
        arguments = dict(json.loads(definition)["arguments"])
    single = {
        name: value
        for name, value in arguments.items()
        if not isinstance(value, (list, dict)) and name not in rows
    }
    return rows.assign(cell=path.stem, **single)[["cell", *single, *rows]]


def _sealed(content: bytes) -> bytes:
    """Return the content of a file with the checksum of all other bytes filled in, at its last placeholder."""
    start = content.rindex(_BEFORE_CHECKSUM) + len(_BEFORE_CHECKSUM)
    before = content[:start]
    after = content[start + len(_NO_CHECKSUM) :]
    checksum = f"{zlib.crc32(after, zlib.crc32(before)):08x}"
    return before + checksum.encode() + after


def _table(path: Path, sealed: bool = False) -> pa.Table:
    """Return the rows in a file.

    Args:
        path: The file.
        sealed: Whether a file without a checksum is refused: another program wrote it.

    Raises:
        InvalidInput: The file is damaged, or cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        content = path.read_bytes()
        if (sealed or _BEFORE_CHECKSUM in content) and _sealed(content) != content:
            raise ValueError("its bytes do not have their checksum")
        return pq.read_table(pa.BufferReader(content))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidInput(
            f"cannot read {path}, or it is damaged ({error!s:.200}): delete it, and run the experiment again."
        ) from error


def concatenate(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all tables in one table; it is empty if there are none."""
    import pandas as pd

    parts = list(tables)
    if not parts:
        return pd.DataFrame()
    return pd.concat(parts, ignore_index=True)


def _number(text: str) -> int | float:
    """Return the number in a text, as an int if it is whole."""
    value = float(text)
    if value.is_integer():
        return int(value)
    return value
