"""Programs in the place of Graphviz's: real processes, that do what a test wants."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest


def without_programs(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A machine on which there is no program but those in `folder`."""
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder / name))


def add_program(file: Path, body: str) -> None:
    """A Python program that has its standard input as `given`, and its arguments as `sys.argv`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{sys.executable} -IS\nimport os, sys\ngiven = sys.stdin.buffer.read()\n{body}\n")
    file.chmod(0o755)


def only_program(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, body: str) -> None:
    """A machine on which there is this program, and no other."""
    without_programs(monkeypatch, folder)
    add_program(folder / name, body)
