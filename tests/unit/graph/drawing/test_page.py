"""The page about drawing does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "draw-a-graph.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_programs_run_and_the_first_prints_the_text_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    # A module that is not in sys.modules would have no annotations to resolve.
    names: dict[str, Any] = {"__name__": "builtins"}

    for language, code in blocks:
        if language == "python":
            exec(compile(code, str(PAGE), "exec"), names)

    [shown] = [code for language, code in blocks if language == "mermaid"]
    assert capsys.readouterr().out == shown + "\n"
    assert [*names["outer"].nodes] == ["__start__", "think", "check", "__end__"]
    assert "classDef default fill:#e8f0fe" in names["text"]
    assert "theme: neutral" in names["text"]
