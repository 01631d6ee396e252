"""The pages hold together, and the README's first program does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_links_lead_somewhere_and_blocks_compile() -> None:
    result = subprocess.run(
        [sys.executable, "docs/check.py"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


def test_the_first_program_of_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    program = readme.split("```python\n", 1)[1].split("```", 1)[0]
    (promised,) = re.findall(r"^It prints `(.+)`\.$", readme, re.MULTILINE)
    file = tmp_path / "program.py"
    file.write_text(program)
    result = subprocess.run(
        [sys.executable, "-W", "error", str(file)], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == promised
