"""Pictures, made by Graphviz on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

from perdure.errors import DrawingError, MissingExtraError

_PROGRAMS = ("dot", "graphviz-pure")
"""Programs that draw: Graphviz itself, or its port, a wheel that comes with the extra `draw`."""

_LIMIT_SECONDS = 60.0
_PNG = b"\x89PNG\r\n\x1a\n"


def png(dot: str, output_file_path: str | Path | None = None) -> bytes:
    """Draw a graph that is written in Graphviz's language, and write the picture to a file if one is named.

    Raises:
        MissingExtraError: there is no Graphviz.
        DrawingError: Graphviz did not make a picture of it.
    """
    picture = _run(_program(), dot)
    if output_file_path is not None:
        Path(output_file_path).write_bytes(picture)
    return picture


def _program() -> str:
    """Find the first program that is on the path or among the scripts of this Python's packages."""
    for name in _PROGRAMS:
        found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
        if found is not None:
            return found
    raise MissingExtraError(
        "Graphviz, which makes pictures, is not installed: there is neither `dot` nor `graphviz-pure`. "
        "Install Graphviz (Debian, Ubuntu: apt-get install graphviz; macOS: brew install graphviz), or pip "
        "install 'perdure[draw]'. draw_mermaid() and draw_dot() need nothing."
    )


def _run(program: str, dot: str) -> bytes:
    try:
        result = subprocess.run(
            [program, "-Tpng"],
            input=dot.encode("utf-8", "replace"),
            capture_output=True,
            check=False,
            timeout=_LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise DrawingError(
            f"{program} did not finish a picture of this graph in {_LIMIT_SECONDS:.0f} seconds. "
            "draw_mermaid() needs no layout."
        ) from error
    except OSError as error:
        raise DrawingError(f"{program} could not be started: {error}.") from error
    if result.returncode or not result.stdout.startswith(_PNG):
        said = result.stderr.decode("utf-8", "replace").strip() or "nothing"
        raise DrawingError(
            f"{program} made no picture of this graph (exit status {result.returncode}). It said: {said}"
        )
    return result.stdout
