"""Where MIMIC-IV lies: a folder of CSV or Parquet files, read through DuckDB, or a PostgreSQL database.

Both give Ibis tables with the same columns and types, so that each query is written once. Messages of the engines may
quote rows of patients; they are never passed on.
"""

from __future__ import annotations

import csv
import gzip
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from .. import _validate
from ..errors import DataError

ID, NUMBER, TIME, TEXT = "int64", "float64", "timestamp", "string"
TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "patients": ("hosp", {"subject_id": ID, "anchor_age": ID, "anchor_year": ID}),
    "icustays": ("icu", {"subject_id": ID, "stay_id": ID, "intime": TIME, "outtime": TIME}),
    "chartevents": ("icu", {"stay_id": ID, "charttime": TIME, "itemid": ID, "valuenum": NUMBER}),
    "labevents": ("hosp", {"subject_id": ID, "charttime": TIME, "itemid": ID, "valuenum": NUMBER}),
    "inputevents": (
        "icu",
        {
            "stay_id": ID,
            "itemid": ID,
            "starttime": TIME,
            "endtime": TIME,
            "amount": NUMBER,
            "amountuom": TEXT,
            "rate": NUMBER,
            "rateuom": TEXT,
            "patientweight": NUMBER,
            "statusdescription": TEXT,
        },
    ),
}
DUCKDB = {ID: "BIGINT", NUMBER: "DOUBLE", TIME: "TIMESTAMP", TEXT: "VARCHAR"}
SUFFIXES = (".csv.gz", ".csv", ".parquet")
MEMORY = "1500MB"
SCHEMAS = {"hosp": ("mimiciv_hosp", "mimic_hosp", "hosp"), "icu": ("mimiciv_icu", "mimic_icu", "icu")}


@dataclass(frozen=True, eq=False)
class Source:
    """An open MIMIC-IV."""

    name: str  #: for messages; never a password
    connection: Any
    raw: Mapping[str, Any]  #: Ibis tables as they are
    failures: tuple[type[Exception], ...]  #: what the engine raises; its text may quote patients
    renamed: Mapping[str, str] = field(default_factory=dict)  #: "table.column" -> its name in this copy

    def table(self, name: str) -> Any:
        """Return the columns of a table that are used here, under MIMIC-IV's names and with one set of types."""
        raw = self.raw[name]
        columns = {}
        for column, kind in TABLES[name][1].items():
            actual = self.renamed.get(f"{name}.{column}", column)
            columns[column] = _find_column(raw.columns, actual, column, name, self.name)
            columns[column] = raw[columns[column]].cast(kind)
        return raw.select(**columns)

    def fetch(self, expression: Any) -> Any:
        """Run a query and return an Arrow table."""
        try:
            if self.connection.name == "duckdb":
                return self.connection.to_pyarrow(expression)
            return self.connection.to_pyarrow_batches(expression).read_all()  # a cursor of the server, in pieces
        except self.failures as error:
            raise DataError(_without_rows(error, self.name)) from None


@contextmanager
def open_source(
    mimic: str | Path, *, scratch: Path, renamed: Mapping[str, str] | None = None, memory: str = MEMORY
) -> Iterator[Source]:
    """Open a folder or a ``postgresql://`` address; ``scratch`` is where DuckDB may spill, removed afterwards."""
    ibis = _validate.optional_import("ibis", "icu", "Reading MIMIC-IV")
    renamed = renamed or {}
    unknown = [key for key in renamed if key.partition(".")[2] not in TABLES.get(key.partition(".")[0], ("", {}))[1]]
    if unknown:
        raise DataError(f"There is no column {unknown[0]!r} to rename; name it like 'chartevents.stay_id'.")
    if str(mimic).startswith(("postgresql://", "postgres://")):
        with _postgres(ibis, str(mimic), renamed) as source:
            yield source
        return
    files = {name: _find_files(Path(mimic), name) for name in TABLES}
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        spill = Path(tempfile.mkdtemp(prefix=".duckdb-", dir=scratch))
    except OSError as error:
        raise DataError(f"Cannot write to {scratch}: {error.strerror}; choose another folder.") from error
    connection = None
    try:
        duckdb = _validate.optional_import("duckdb", "icu", "Reading MIMIC-IV")
        try:
            connection = ibis.duckdb.connect(
                memory_limit=memory,
                temp_directory=str(spill),
                threads=_validate.workers(None),
                preserve_insertion_order=False,
            )
        except duckdb.Error:
            raise DataError(f"DuckDB cannot work with a memory of {memory!r}; give more, such as 1500MB.") from None
        try:
            raw = {name: _read(connection, name, found, renamed) for name, found in files.items()}
        except duckdb.Error as error:
            raise DataError(_without_rows(error, str(mimic))) from None
        yield Source(str(mimic), connection, raw, (duckdb.Error, OSError), renamed)
    finally:
        if connection is not None:
            connection.disconnect()
        shutil.rmtree(spill, ignore_errors=True)


def _find_files(folder: Path, table: str) -> list[Path]:
    """Return the files of one table: hosp/ or icu/, as CSV, compressed CSV, Parquet, or a folder of Parquet parts."""
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}; give the one that holds MIMIC-IV's hosp and icu.")
    module = TABLES[table][0]
    for base in (folder / module, folder / "core", folder):  # core/ held the patients in MIMIC-IV 1.0
        for suffix in SUFFIXES:
            if (base / f"{table}{suffix}").is_file():
                return [base / f"{table}{suffix}"]
        parts = sorted((base / table).glob("*.parquet"))
        if parts:
            return parts
    raise DataError(
        f"There is no table {module}/{table} in {folder} (looked for {', '.join(SUFFIXES)} and a folder of Parquet "
        "parts); give the folder that holds MIMIC-IV's hosp and icu."
    )


def _read(connection: Any, table: str, files: list[Path], renamed: Mapping[str, str]) -> Any:
    if files[0].suffix == ".parquet":
        try:
            return connection.read_parquet([str(path) for path in files], table_name=table)
        except Exception as error:
            raise DataError(f"Cannot read {files[0]}: it is not a Parquet file, or damaged.") from error
    header = _header(files[0])
    wanted = {renamed.get(f"{table}.{c}", c).lower(): kind for c, kind in TABLES[table][1].items()}
    # every column is declared, so that no type is guessed from the first rows
    columns = {name: DUCKDB[wanted.get(name.lower(), TEXT)] for name in header}
    return connection.read_csv(
        str(files[0]), table_name=table, columns=columns, header=True, auto_detect=False, delim=",", quote='"'
    )


def _header(path: Path) -> list[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            header = next(csv.reader(file), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise DataError(f"Cannot read {path}: {type(error).__name__}; is it a complete CSV file?") from error
    if not header or len(set(header)) < len(header):
        raise DataError(f"The first line of {path} must name the columns, each once.")
    return header


def _find_column(columns: Any, actual: str, column: str, table: str, where: str) -> str:
    for name in columns:
        if name.lower() == actual.lower():  # MIMIC-III and some copies write capitals
            return str(name)
    have = ", ".join(columns)
    raise DataError(
        f"The table {table} of {where} has no column {actual!r}, which MIMIC-IV 2 and 3 have (it has {have}); "
        f"if it goes by another name there, say so with --rename {table}.{column}=NAME."
    )


@contextmanager
def _postgres(ibis: Any, address: str, renamed: Mapping[str, str]) -> Iterator[Source]:
    psycopg = _validate.optional_import("psycopg", "postgres", "Reading MIMIC-IV from PostgreSQL")
    try:
        parts = urlsplit(address)
        port = parts.port or 5432
    except ValueError:
        raise DataError("The address of the database must read like postgresql://user@host:5432/mimiciv.") from None
    if "@" in parts.path + parts.query + parts.fragment:  # then a part of the password was taken for host or database
        raise DataError(
            "The address of the database has an '@' after the host; write '/', '?', '#' and '@' of a password as %2F, "
            "%3F, %23 and %40."
        )
    options = dict(parse_qsl(parts.query))  # such as sslmode=require, which must not be ignored
    secret = unquote(parts.password or "") or options.pop("password", "")
    name = f"the database {parts.path.strip('/') or 'postgres'!r} at {parts.hostname or 'localhost'}:{port}"
    try:
        given = {
            "host": parts.hostname or "localhost",
            "port": port,
            "user": unquote(parts.username) if parts.username else None,
            "password": secret or None,
            "database": parts.path.strip("/") or "postgres",
            "connect_timeout": 10,
        }
        connection = ibis.postgres.connect(**{**given, **options})
    except (psycopg.Error, OSError) as error:  # some quote the address
        why = _first_line(error)
        why = why.replace(secret, "***") if secret else why
        raise DataError(f"Cannot connect to {name}: {why}; check address, user and password.") from None
    try:
        raw = {table: _postgres_table(connection, table, module, name) for table, (module, _) in TABLES.items()}
        yield Source(name, connection, raw, (psycopg.Error, OSError), renamed)
    finally:
        connection.disconnect()


def _postgres_table(connection: Any, table: str, module: str, where: str) -> Any:
    for schema in SCHEMAS[module]:
        try:
            return connection.table(table, database=schema)
        except Exception:  # noqa: BLE001, S112  # not in this schema: look in the next
            continue
    raise DataError(
        f"There is no table {SCHEMAS[module][0]}.{table} in {where}; load MIMIC-IV with mimic-code's scripts, or allow "
        "this user to read it."
    )


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else type(error).__name__


def _without_rows(error: BaseException, where: str) -> str:
    """Say what went wrong without the engine's text, which may quote the row of a patient."""
    text, kind = str(error), type(error).__name__
    if kind in ("OperationalError", "AdminShutdown", "ConnectionTimeout"):
        return f"The connection to {where} was lost; try again."
    if kind == "InsufficientPrivilege":
        return f"This user may not read {where}; ask for the right to read mimiciv_hosp and mimiciv_icu."
    if "No space left" in text or "Out of Memory" in text or "could not allocate" in text.lower():
        return (
            f"Not enough memory or disk space to read {where}; allow more memory, or make room where the output goes."
        )
    line = re.search(r"[Ll]ine:? (\d+)", text)
    column = re.search(r"[Cc]olumn:? \"?(?:at position \d+, )?\"?(\w+)", text)
    file = re.search(r"(?:file|file_path)[ =]+\"?'?([^\s\"']+\.(?:csv|csv\.gz|parquet))", text)
    place = ", ".join(
        words
        for words in (
            f"in {file[1]}" if file else "",
            f"line {line[1]}" if line else "",
            f"column {column[1]}" if column else "",
        )
        if words
    )
    return (
        f"Cannot read {where}: {type(error).__name__}{' ' + place if place else ''}; is a value there not of its type?"
    )
