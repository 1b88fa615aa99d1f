"""The folder of a case: what was asked, what was found, and with what; complete without the data it came from.

``summary.json``  settings, versions, seeds, fingerprints, commands and the numbers of every step
``problem.npz``   counts, rewards, start, valid actions and labels
``estimate.npz``  ``T`` float64 [S, A, S] with labels
``posterior.nc``  the draws, readable by ArviZ

Files are moved into place when they are complete, the summary last. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import platform
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .. import _files, _validate
from .._version import __version__
from ..errors import DataError
from ..estimate import Estimate
from ..expert import ExpertActions
from ..labels import Labels
from ..posterior.posterior import Posterior
from ..tables import Columns
from ..tables.sources import file_fingerprint
from ..task import Task
from ..transitions import Counts
from .case import COLUMN, MINARI, Case, Settings

SUMMARY, PROBLEM, ESTIMATE, POSTERIOR = "summary.json", "problem.npz", "estimate.npz", "posterior.nc"
FORMAT = 1  # of the summary; folders of another format are not guessed at
PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "arviz", "xarray")


def versions() -> dict[str, str]:
    """Return the versions of everything that computed."""
    found = {"bitl": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(eq=False)
class Folder:
    """A folder with its summary."""

    path: Path
    summary: dict[str, Any]
    new: Case | None = None  #: the case of a folder that is not written yet

    @classmethod
    def create(cls, path: Path, case: Case, *, replace: bool = False) -> Folder:
        """Open the folder for a case, new or of the same case; another case is not overwritten unless asked to.

        A new folder is written by :meth:`begin`, so that a run that fails leaves everything as it was.
        """
        check_writable(path)
        if (path / SUMMARY).exists() and not replace:
            folder = cls.open(path)
            folder.check_same(case)
            return folder
        summary: dict[str, Any] = {
            "format": FORMAT,
            "versions": versions(),
            "data": dict(case.about),
            "settings": case.settings.as_dict(),
            "data_from_here": _relative(case.settings.data, path),
            "reward_from_here": _relative(case.settings.reward, path),
            "commands": [],
        }
        return cls(path, summary, case)

    def begin(self) -> None:
        """Write what a new folder begins with, once there is a result; only now the case it replaces goes."""
        if self.new is None:
            return
        for name in (ESTIMATE, POSTERIOR):
            (self.path / name).unlink(missing_ok=True)
        save_problem(self.path / PROBLEM, self.new)
        self.write()
        self.new = None

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open an existing folder."""
        if not path.is_dir():
            raise DataError(f"There is no folder {path}; make one with bitl fit or bitl sample and --out {path}.")
        file = path / SUMMARY
        if not file.exists():
            raise DataError(
                f"{path} has no {SUMMARY}: it is not a folder of bitl fit or bitl sample, or that run was interrupted; "
                "run it again."
            )
        try:
            summary = json.loads(file.read_text(encoding="utf-8"))
            summary["settings"], summary["data"], summary["versions"], summary["commands"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} cannot be read ({error}); run bitl fit or bitl sample again.") from error
        if summary.get("format") != FORMAT:
            raise DataError(f"{file} was written by another version of bitl; run bitl fit or bitl sample again.")
        return cls(path, summary)

    def check_same(self, case: Case) -> None:
        """Raise if the folder holds another case, so that nothing of it is lost."""
        old, new = self.summary["settings"], json.loads(json.dumps(case.settings.as_dict()))
        advice = "choose another folder, or add --replace to begin it anew"
        for kind, key in (("data", "fingerprint"), ("reward file", "reward_fingerprint")):
            if self.summary["data"].get(key) != case.about[key]:
                raise DataError(f"The {kind} changed since {self.path} was written; {advice}.")
        was, now = (about.get("columns", {}).get("reward") for about in (self.summary["data"], case.about))
        if was != now:  # columns of the same file: no fingerprint tells them apart
            raise DataError(f"{self.path} was written with the reward column {_word(was)}, not {_word(now)}; {advice}.")
        for key in old.keys() | new.keys():
            if old.get(key) != new.get(key) and key not in ("data", "reward"):
                was, now = _word(old.get(key)), _word(new.get(key))
                raise DataError(f"{self.path} was written with {key} {was}, not {now}; {advice}.")

    def check_unchanged(self) -> list[str]:
        """Raise if a file this folder was made from has changed; return notes about files that are gone."""
        notes = []
        settings, about = self.summary["settings"], self.summary["data"]
        for kind, name, here, known in (
            ("data file", settings["data"], self.summary.get("data_from_here"), about.get("fingerprint")),
            ("reward file", settings["reward"], self.summary.get("reward_from_here"), about.get("reward_fingerprint")),
        ):
            if known is None or name.startswith((COLUMN, MINARI)):
                continue
            places = [Path(name)] + ([self.path / here] if here else [])
            found = [place for place in places if place.exists()]
            if not found:
                notes.append(f"The {kind} {name} is not where it was; the answers rest on what {self.path} recorded.")
            elif all(file_fingerprint(place) != known for place in found):
                raise DataError(
                    f"The {kind} {found[0]} changed since {self.path} was written; fit and sample again into another "
                    "folder, or add --changed-data to go on with what was recorded."
                )
        return notes

    def case(self) -> Case:
        """Return the case as it was recorded."""
        return load_problem(self.path / PROBLEM, self.settings(), self.summary["data"])

    def settings(self) -> Settings:
        """Return the recorded settings."""
        recorded = dict(self.summary["settings"])
        try:
            return Settings(**{**recorded, "columns": Columns(**recorded["columns"])})
        except (TypeError, KeyError) as error:
            raise DataError(f"{self.path / SUMMARY} was written by another version of bitl ({error}).") from error

    def estimate(self) -> Estimate | None:
        """Return the estimate, if there is one."""
        if "fit" not in self.summary or not (self.path / ESTIMATE).exists():
            return None
        return load_estimate(self.path / ESTIMATE)

    def posterior(self, case: Case) -> Posterior | None:
        """Return the posterior, if there is one."""
        if "sample" not in self.summary or not (self.path / POSTERIOR).exists():
            return None
        return load_posterior(self.path / POSTERIOR, case.task, case.labels, self.summary["sample"])

    def learned_by(self) -> dict[str, Any] | None:
        """Return what tells the run behind the answers from others: of the posterior, else of the estimate."""
        step = self.summary.get("sample") or self.summary.get("fit")
        return None if step is None else {key: step[key] for key in ("method", "seed", "seconds")}

    def record(self, step: str, content: Any, command: str) -> None:
        """Add the result of a step and how it was made, and write the summary."""
        self.summary[step] = content
        self.summary["commands"] = [c for c in self.summary["commands"] if c != command] + [command]
        self.write()

    def write(self) -> None:
        """Write the summary."""
        write_json(self.path / SUMMARY, self.summary)


def write_json(path: Path, content: Any) -> None:
    """Write JSON that every reader takes: no NaN, no NumPy."""
    _files.write_text(path, json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a table as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _files.write_text(path, text.getvalue())


def plain(value: Any) -> Any:
    """Return a value as JSON knows it; what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def check_writable(path: Path) -> None:
    """Raise before any long work if nothing can be written there; a folder is not made yet."""
    place = path
    try:
        while not place.exists():  # raises where a folder may not be searched or a name is too long
            place = place.parent
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise DataError(f"Cannot write to {path}: {error.strerror}; choose another folder.") from error


def save_problem(path: Path, case: Case) -> None:
    """Write counts, task and valid actions; labels as text arrays, not as objects."""
    at = np.argwhere(case.counts.N > 0)
    arrays = {
        "count_index": at.astype(np.int32),
        "count": case.counts.N[tuple(at.T)],
        "reward": case.task.reward,
        "start": case.task.start,
        "valid": case.expert.valid,
        "states": np.array(case.labels.states, dtype=np.str_),
        "actions": np.array(case.labels.actions, dtype=np.str_),
    }
    with _files.replacing(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def load_problem(path: Path, settings: Settings, about: Mapping[str, Any]) -> Case:
    """Read what :func:`save_problem` wrote."""
    arrays = _load(path, ("count_index", "count", "reward", "start", "valid", "states", "actions"))
    labels = Labels(tuple(arrays["states"].tolist()), tuple(arrays["actions"].tolist()))
    S, A = arrays["valid"].shape
    N = np.zeros((S, A, S))
    N[tuple(arrays["count_index"].T)] = arrays["count"]
    task = Task(arrays["reward"], settings.discount, arrays["start"], labels=labels)
    return Case(settings, Counts(N, labels), task, ExpertActions(arrays["valid"], labels), about)


def save_estimate(path: Path, estimate: Estimate, case: Case) -> None:
    """Write an estimate with its labels and, where it was learned, the reward."""
    arrays = {
        "T": estimate.T,
        "states": np.array(case.labels.states, dtype=np.str_),
        "actions": np.array(case.labels.actions, dtype=np.str_),
        "method": np.array(estimate.method),
        "epsilon": np.array(case.epsilon),
        "discount": np.array(case.task.discount),
        "reward": np.asarray(estimate.info.get("reward", case.task.reward)),
    }
    with _files.replacing(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def load_estimate(path: Path) -> Estimate:
    """Read an estimate; its certificate is counted anew by whoever needs one."""
    arrays = _load(path, ("T", "states", "actions", "method"))
    labels = Labels(tuple(arrays["states"].tolist()), tuple(arrays["actions"].tolist()))
    return Estimate(arrays["T"], str(arrays["method"]), None, {}, labels)


def _load(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read ({_first(error)}); run the step that wrote it again.") from error


def save_posterior(path: Path, posterior: Posterior) -> None:
    """Write the draws as ArviZ reads them."""
    data = posterior.to_arviz()
    with _files.replacing(path) as temporary:
        data.to_netcdf(str(temporary))


def load_posterior(path: Path, task: Task, labels: Labels, info: Mapping[str, Any]) -> Posterior:
    """Read the draws back."""
    arviz = _validate.arviz("Reading a posterior")
    try:
        data = arviz.from_netcdf(str(path))
        if "posterior" not in data.groups():
            raise KeyError("it has no group 'posterior'")
        T = np.asarray(data.posterior["T"].values, dtype=np.float64)
        data.close()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"{path} cannot be read ({_first(error)}); run bitl sample again.") from error
    runs, draws = T.shape[:2]
    keep = {key: info[key] for key in ("rounds", "chains", "sampler", "log_evidence", "log_evidence_se") if key in info}
    method = str(info.get("method", "BITL"))
    return Posterior(T.reshape(-1, *T.shape[2:]), method, np.repeat(np.arange(runs), draws), task, keep, labels)


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _word(value: Any) -> str:
    return "by default" if value is None else json.dumps(value)


def _relative(name: str, folder: Path) -> str | None:
    path = Path(name)
    return os.path.relpath(path.resolve(), folder.resolve()) if path.exists() else None
