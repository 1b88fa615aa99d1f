"""Where rows come from: CSV and Parquet files in a stream, DataFrames and dicts of arrays in one piece.

Everything becomes Arrow arrays, one batch at a time, so that a large file is never in memory as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import _validate
from .._types import IntArray
from ..errors import DataError

BATCH = 1 << 20  # rows of a batch of Parquet
BLOCK = 1 << 24  # bytes of a block of CSV
NULLS = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"]
PURPOSE = "Reading tables"


def arrow(part: str = "") -> Any:
    """Return pyarrow or one of its modules."""
    return _validate.optional_import("pyarrow" + part, "tables", PURPOSE)


@dataclass(eq=False)
class Source:
    """Names of columns, and batches of the chosen ones."""

    name: str
    names: list[str]
    unit: str = "row"
    broken: list[int] = field(default_factory=list)  #: lines that do not have the right number of fields

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches with these columns."""
        raise NotImplementedError

    def numbers(self, index: IntArray) -> IntArray:
        """Return the numbers by which the source counts these rows."""
        return index

    def holes(self) -> IntArray:
        """Return, for each line that could not be read, the index of the row that follows it, ascending."""
        return np.empty(0, np.int64)

    def fingerprint(self) -> str:
        """Return a digest of the bytes of a file, or nothing."""
        return ""


@dataclass(eq=False)
class CsvSource(Source):
    """A CSV file; the header is line 1."""

    path: Path = Path()
    delimiter: str = ","

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches with these columns."""
        pa, csv = arrow(), arrow(".csv")

        def refuse(row: Any) -> str:
            self.broken.append(int(row.number))
            return "skip"

        try:
            with _open(self.path) as file:
                reader = csv.open_csv(
                    file,
                    read_options=csv.ReadOptions(use_threads=False, block_size=BLOCK),  # else lines have no numbers
                    parse_options=csv.ParseOptions(
                        delimiter=self.delimiter, invalid_row_handler=refuse, ignore_empty_lines=False
                    ),
                    convert_options=csv.ConvertOptions(
                        include_columns=list(columns),
                        column_types={name: pa.string() for name in columns},
                        strings_can_be_null=True,
                        null_values=NULLS,
                    ),
                )
                yield from reader
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{self.path} cannot be read as CSV: {_plain(error)}; is it complete, and UTF-8?"
            ) from error

    def numbers(self, index: IntArray) -> IntArray:
        """Return line numbers; lines that were skipped count."""
        return np.asarray(index + 2 + np.searchsorted(self.holes(), index, side="right"))

    def holes(self) -> IntArray:
        """Return, for each line that could not be read, the index of the row that follows it, ascending."""
        broken = np.sort(np.asarray(self.broken, dtype=np.int64))
        return np.asarray(broken - 2 - np.arange(len(broken)))

    def fingerprint(self) -> str:
        """Return the digest of the file."""
        return file_fingerprint(self.path)


@dataclass(eq=False)
class ParquetSource(Source):
    """A Parquet file, or a folder of them."""

    path: Path = Path()

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches with these columns."""
        pa, dataset = arrow(), arrow(".dataset")
        try:
            files = dataset.dataset(self.path, format="parquet")
            yield from files.to_batches(columns=list(dict.fromkeys(columns)), batch_size=BATCH, batch_readahead=2)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path} cannot be read as Parquet: {_plain(error)}; is it complete?") from error

    def fingerprint(self) -> str:
        """Return the digest of the file."""
        return file_fingerprint(self.path)


@dataclass(eq=False)
class MemorySource(Source):
    """A DataFrame, an Arrow table or a dict of arrays."""

    table: Any = None

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches with these columns."""
        yield from self.table.select(list(dict.fromkeys(columns))).to_batches(max_chunksize=BATCH)


def open_source(data: Any) -> Source:
    """Return the source for a path, a DataFrame (pandas, polars), an Arrow table or a dict of arrays."""
    if isinstance(data, str | Path):
        return _file(Path(data))
    pa = arrow()
    try:
        table = data if isinstance(data, pa.Table) else pa.table(dict(data) if isinstance(data, dict) else data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"A table must be a path, a DataFrame or a dict of columns of equal length: {_plain(error)}."
        ) from error
    names = [str(name) for name in table.column_names]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"The table has the column {twice[0]!r} more than once; rename one of them.")
    return MemorySource("the table", names, table=table)


def _file(path: Path) -> Source:
    try:
        found = path.exists()
    except OSError as error:  # a folder that may not be searched, a name that is too long
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    if not found:
        raise DataError(f"There is no file {path}; check the name and the folder you are in.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if path.is_dir() or suffixes[-1:] in ([".parquet"], [".pq"]):
        return _parquet(path)
    if ".csv" in suffixes or ".tsv" in suffixes or ".txt" in suffixes:
        return _csv(path)
    raise DataError(f"{path} is neither .csv, .tsv nor .parquet; give it the ending that says what it is.")


def _parquet(path: Path) -> Source:
    pa, dataset = arrow(), arrow(".dataset")
    try:
        files = dataset.dataset(path, format="parquet")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {_plain(error)}; is it complete?") from error
    if not files.schema.names:
        raise DataError(f"{path} is empty: there is no column in it.")
    return ParquetSource(path.name, list(files.schema.names), path=path)


def _csv(path: Path) -> Source:
    import codecs
    import csv

    pa = arrow()
    try:
        with _open(path) as file:  # what was read may end within a character: an incremental decoder waits for the rest
            head = codecs.getincrementaldecoder("utf-8-sig")().decode(file.read(1 << 16))
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text in UTF-8; save it as CSV in that encoding.") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {_plain(error)}.") from error
    header = head.splitlines()[0] if head.strip() else ""
    if not header.strip():
        raise DataError(f"{path} is empty: there is no header line with the names of the columns.")
    delimiter = max(",;\t", key=header.count)
    names = next(csv.reader([header], delimiter=delimiter))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"The header of {path} has the column {twice[0]!r} more than once; rename one of them.")
    return CsvSource(path.name, names, "line", path=path, delimiter=delimiter)


def _open(path: Path) -> Any:
    return arrow().input_stream(str(path), compression="detect")


def file_fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of a folder's files."""
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    try:
        for file in files:
            if path.is_dir():
                digest.update(str(file.relative_to(path)).encode())
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    return "sha256:" + digest.hexdigest()


def _plain(error: BaseException) -> str:
    """Return the first sentence of a library's message, without its full stop."""
    text = getattr(error, "strerror", None) or str(error)
    return str(text).splitlines()[0].split(". ")[0].rstrip(".")[:160] if str(text).strip() else type(error).__name__
