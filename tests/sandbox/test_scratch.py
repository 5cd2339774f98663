"""Removing what a child leaves at home, however it left it."""

from __future__ import annotations

import os
from pathlib import Path

from dvk.config import Limits
from dvk.sandbox import Message, SandboxSession, scratch
from tests.python_path import python_path


def test_removes_what_can_be_made(tmp_path):
    home, outside = tmp_path / "home", tmp_path / "outside"
    for folder in (home / "a" / "b" / "c", home / "d", outside):
        folder.mkdir(parents=True)
    for file in (
        home / "file",
        home / "a" / "b" / "c" / "file",
        outside / "precious",
        home / "d" / ".hidden",
    ):
        file.write_text("x")
    (home / "a" / "to_folder").symlink_to(outside)
    (home / "a" / "to_file").symlink_to(outside / "precious")
    os.mkfifo(home / "d" / "pipe")
    (home / "a" / "b").chmod(0)
    (home / "d").chmod(0o400)
    home.chmod(0)
    scratch.remove(str(home))
    assert not home.exists()
    assert (outside / "precious").read_text() == "x"
    scratch.remove(str(home))  # again, and there is nothing


def test_a_link_is_no_folder(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("x")
    (tmp_path / "home").symlink_to(tmp_path / "outside")
    scratch.remove(str(tmp_path / "home"))
    assert (tmp_path / "outside" / "precious").exists()


def test_depth_is_no_obstacle(monkeypatch):
    """Deeper than Python recurses, than a process has descriptors, than a path may be long."""
    monkeypatch.setenv("PYTHONPATH", python_path())
    with SandboxSession("tests.sandbox.targets:digs", Limits(), isolate="cpu") as session:
        assert session.receive(30) == Message({"depth": 3000})
        home = Path(session.home)
        assert home.is_dir()
    assert not home.exists()
