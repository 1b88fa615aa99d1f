"""The same study on a real Dask cluster: a scheduler and two workers on loopback, one of which is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bitl.errors import DataError
from bitl.experiments import dask_engine
from bitl.experiments.unit import How, Unit

STUDY = ["reproduce", "synthetic", "--stochastic", "0", "--datasets", "2", "--worlds", "1", "--per-world", "1"]
STUDY += ["--sweep", "1", "--draws", "8", "--rounds", "10", "--method", "ITL", "--method", "PS", "--method", "BITL"]
PATIENCE = 120


def wait_until(condition, words):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {words}"
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path):
    """Yield the scheduler's address and its two worker processes."""
    file = tmp_path / "scheduler.json"
    environment = {**os.environ, "BITL_WORKERS": "1", "OPENBLAS_NUM_THREADS": "1"}
    quiet = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}

    def start(kind, *arguments):
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.dask_{kind}",
            "--scheduler-file",
            str(file),
            "--no-dashboard",
        ]
        return subprocess.Popen([*command, *arguments], **quiet)

    processes = [start("scheduler", "--host", "127.0.0.1", "--port", "0")]
    try:
        wait_until(file.exists, "the scheduler's file")
        workers = [start("worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny") for _ in range(2)]
        processes += workers
        yield json.loads(file.read_text())["address"], workers
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def run(folder, *arguments):
    folder.mkdir()
    command = [sys.executable, "-c", "from bitl.cli import main; main()", *STUDY, *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def tables(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "out" / "reproduce" / "tables").iterdir())}


def test_a_cluster_that_loses_a_worker_gives_the_same_tables(cluster, tmp_path):
    address, workers = cluster
    there = run(tmp_path / "there", "--engine", "dask", "--scheduler", address)
    done = tmp_path / "there" / "out" / "reproduce" / "synthetic"
    wait_until(lambda: there.poll() is not None or len(list(done.glob("*/level*.parquet"))) >= 8, "the first units")
    assert there.poll() is None, there.stderr.read()
    workers[0].send_signal(signal.SIGKILL)
    _, trouble = there.communicate(timeout=PATIENCE)
    assert there.returncode == 0, trouble
    here = run(tmp_path / "here", "--workers", "1")
    _, trouble = here.communicate(timeout=PATIENCE)
    assert here.returncode == 0, trouble
    assert tables(tmp_path / "there") == tables(tmp_path / "here")
    assert workers[0].poll() is not None
    assert workers[1].poll() is None


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(dask_engine, "CONNECT_SECONDS", 0.5)
    engine = dask_engine.DaskEngine("tcp://127.0.0.1:9")
    unit = Unit("synthetic", "0", "gridworld", 0, 0.0, "MLE", How())
    with pytest.raises(DataError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9 \(\w+\); start one with"):
        next(engine.results(str, [unit]))


def test_a_worker_with_other_code_is_refused():
    unit = Unit("synthetic", "0", "gridworld", 0, 0.0, "MLE", How())
    assert dask_engine._compute(lambda unit: unit.key, unit, unit.settings()["code"]) == unit.key
    with pytest.raises(DataError, match="has another version of bitl than this process; install the same one"):
        dask_engine._compute(lambda unit: unit.key, unit, "other")
