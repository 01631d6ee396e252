"""Programs in the place of Graphviz's: real processes, that do what a test wants."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest


def without_programs(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Simulate a machine whose only programs are those in `folder`."""
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder / name))


def add_program(file: Path, body: str) -> None:
    """Add a Python program with its standard input as `given` and its arguments as `sys.argv`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{sys.executable} -IS\nimport os, sys\ngiven = sys.stdin.buffer.read()\n{body}\n")
    file.chmod(0o755)


def only_program(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, body: str) -> None:
    """Simulate a machine with this program and no other."""
    without_programs(monkeypatch, folder)
    add_program(folder / name, body)
