"""Results are written in one step: a failure leaves what was there before."""

import pytest

from bitl import _files
from bitl.errors import DataError


def test_a_failure_while_writing_keeps_the_old_file(tmp_path):
    path = tmp_path / "result.txt"
    path.write_text("old")

    def fail_half_way():
        with _files.replacing(path) as temporary:
            temporary.write_text("half of the new")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left behind"


def test_a_finished_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "new folder" / "result.txt"
    _files.write_text(path, "first")
    _files.write_text(path, "second")
    assert path.read_text() == "second"
    assert list(path.parent.iterdir()) == [path]


def test_an_impossible_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"Cannot write to .*file/out: .*; choose another folder"):
        _files.write_text(tmp_path / "file" / "out" / "x.txt", "text")
