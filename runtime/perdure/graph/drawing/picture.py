"""Pictures, made by Graphviz's program on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

from perdure.errors import DrawingError, MissingExtraError

_PROGRAMS = ("dot", "graphviz-pure")
"""Graphviz itself first; then the port of it that comes as a wheel, with the extra `draw`."""

_LIMIT_SECONDS = 60.0
_PNG = b"\x89PNG\r\n\x1a\n"


def png(dot: str, output_file_path: str | Path | None = None) -> bytes:
    """A picture of a graph in Graphviz's language; written to a file, too, if one is named."""
    picture = _run(_program(), dot)
    if output_file_path is not None:
        Path(output_file_path).write_bytes(picture)
    return picture


def _program() -> str:
    """The first program there is: on the path, or where this Python's packages put theirs."""
    for name in _PROGRAMS:
        found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
        if found is not None:
            return found
    raise MissingExtraError(
        "A picture is made by Graphviz, and neither `dot` nor `graphviz-pure` is there: install Graphviz "
        "(Debian, Ubuntu: apt-get install graphviz; macOS: brew install graphviz), or pip install "
        "'perdure[draw]'. draw_mermaid() and draw_dot() need nothing."
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
