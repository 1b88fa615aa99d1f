"""The same tables in a real PostgreSQL server give the same transitions: ``make test-postgres``.

A server of our own is started on a free port, with a password, and removed afterwards.
"""

import contextlib
import gzip
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from bitl import DataError
from bitl.icu import Rules, build, synthesise
from bitl.icu.source import TABLES

DEMO = Path(__file__).parents[3] / "shared" / "data" / "mimic-iv-demo"
PASSWORD = "s3cret-word"  # noqa: S105  # of a server that lives for this test
TYPES = {"int64": "BIGINT", "float64": "DOUBLE PRECISION", "timestamp": "TIMESTAMP(0)", "string": "VARCHAR"}
pytestmark = pytest.mark.skipif("BITL_TEST_POSTGRES" not in os.environ, reason="run by make test-postgres")


def program(name):
    found = shutil.which(name) or next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return str(found)


USER = {"user": "postgres"} if os.geteuid() == 0 else {}  # PostgreSQL refuses to run as root


@pytest.fixture(scope="module")
def server():
    top = Path(tempfile.mkdtemp(prefix="bitl-pg-"))
    folder, secret = top / "data", top / "password"
    folder.mkdir()
    secret.write_text(PASSWORD)
    for path in (top, folder, secret) if USER else ():
        shutil.chown(path, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"cwd": top, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **USER}
    first = [program("initdb"), "-D", folder, "-U", "reader", "-A", "scram-sha-256", f"--pwfile={secret}", "-N"]
    subprocess.run(first, check=True, **quiet)
    run = [program("postgres"), "-D", folder, "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    process = subprocess.Popen([*run, "-c", "fsync=off"], **quiet)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        shutil.rmtree(top, ignore_errors=True)


def load(server, folder):
    """Load the five tables as mimic-code's scripts do, into schemas mimiciv_hosp and mimiciv_icu."""
    psycopg = pytest.importorskip("psycopg")
    host, port = server.split(":")
    with psycopg.connect(host=host, port=port, user="reader", password=PASSWORD, dbname="postgres") as connection:
        for schema in ("mimiciv_hosp", "mimiciv_icu"):
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            connection.execute(f"CREATE SCHEMA {schema}")
        for table, (module, kinds) in TABLES.items():
            path = folder / module / f"{table}.csv.gz"
            with gzip.open(path, "rt") as file:
                names = next(file).strip().split(",")
                columns = ", ".join(f"{name} {TYPES[kinds.get(name, 'string')]}" for name in names)
                connection.execute(f"CREATE TABLE mimiciv_{module}.{table} ({columns})")
                with connection.cursor().copy(f"COPY mimiciv_{module}.{table} FROM STDIN (FORMAT csv)") as copy:
                    while block := file.read(1 << 20):
                        copy.write(block)


def same(server, folder, scratch, rules):
    files = build(folder, scratch=scratch, rules=rules)
    database = build(f"postgresql://reader:{PASSWORD}@{server}/postgres", scratch=scratch, rules=rules)
    for name in ("patient", "stay", "step", "state", "action", "next_state"):
        np.testing.assert_array_equal(getattr(files.batch, name), getattr(database.batch, name), err_msg=name)
    assert files.audit.plain(protect=False) == database.audit.plain(protect=False)
    return len(files.batch.state)


@pytest.mark.parametrize("rules", [Rules(), Rules(window_hours=0, within_step="mean", state_time="during")])
def test_made_up_tables_give_the_same_transitions(server, tmp_path, rules):
    synthesise(tmp_path / "mimic", patients=60, seed=1)
    load(server, tmp_path / "mimic")
    assert same(server, tmp_path / "mimic", tmp_path, rules) > 1000


@pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV demo is not here")
def test_the_real_demo_gives_the_same_transitions(server, tmp_path):
    load(server, DEMO)
    assert same(server, DEMO, tmp_path, Rules()) == 4770


def test_refusals_name_no_password(server, tmp_path):
    wrong = f"postgresql://reader:wr0ng-{PASSWORD}@{server}/postgres"
    with pytest.raises(DataError, match=r"Cannot connect to the database 'postgres' at 127.0.0.1:\d+: ") as refusal:
        build(wrong, scratch=tmp_path)
    assert PASSWORD not in str(refusal.value)
    nobody = f"postgresql://reader:{PASSWORD}@127.0.0.1:1/postgres"
    command = [sys.executable, "-c", "from bitl.cli import main; main()", "icu", "build"]
    command += ["--mimic", nobody, "--out", "t.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("bitl: Cannot connect to the database 'postgres' at 127.0.0.1:1: ")
    assert PASSWORD not in done.stdout + done.stderr
    assert not (tmp_path / "t.parquet").exists()


def test_a_database_without_mimic(server, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    host, port = server.split(":")
    with contextlib.closing(
        psycopg.connect(host=host, port=port, user="reader", password=PASSWORD, dbname="postgres", autocommit=True)
    ) as connection:
        connection.execute("CREATE DATABASE empty")
    with pytest.raises(DataError, match=r"There is no table mimiciv_hosp.patients in the database 'empty' at"):
        build(f"postgresql://reader:{PASSWORD}@{server}/empty", scratch=tmp_path)
