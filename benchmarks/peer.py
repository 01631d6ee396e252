"""The peer's environment: a virtual environment that holds the pinned peer and nothing of ours."""

import hashlib
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("peer-requirements.txt")


def peer_python(folder: Path) -> Path:
    """Makes the environment in `folder`, unless it is there, of these requirements and this Python."""
    python = folder / "bin" / "python"
    stamp = folder / "made-from"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    run([str(python), "-m", "pip", "--disable-pip-version-check", "install", "-r", str(REQUIREMENTS)])
    stamp.write_text(wanted)
    return python


def run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip()
        raise RuntimeError(f"the peer's environment was not made: `{' '.join(command)}` said\n{said}")
