"""Virtual environments for the pinned peer and for our package at another commit.

Each is made once, and made again when its requirements change.
"""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "benchmarks" / "peer-requirements.txt"
LIST_VERSIONS = (
    "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
)

Install = Callable[..., object]
"""A function that runs `pip install` with its arguments in the new environment."""


class CommandFailedError(Exception):
    """A command failed. The message contains its output."""


def peer_python(folder: Path) -> Path:
    """Return the Python of an environment with the pinned peer and without our package."""
    return made_once(folder, REQUIREMENTS.read_text(), lambda install: install("-r", REQUIREMENTS))


def commit_python(folder: Path, commit: str) -> Path:
    """Return the Python of an environment with our package at `commit`.

    Its dependencies have the versions that are installed here, unless the commit refuses them.
    """
    versions = "".join(f"{name}=={version}\n" for name, version in versions_in(sys.executable).items())

    def fill(install: Install) -> None:
        constraints = folder / "constraints.txt"
        constraints.write_text(versions)
        with checked_out(commit, folder) as tree:
            try:
                install("--constraint", constraints, tree)
            except CommandFailedError:
                install(tree)

    return made_once(folder, versions, fill)


def made_once(folder: Path, made_from: str, fill: Callable[[Install], object]) -> Path:
    """Make the environment in `folder`, unless it exists with equal requirements and this Python."""
    python = folder / "bin" / "python"
    stamp = folder / "made-from"
    wanted = hashlib.sha256((made_from + sys.version).encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    run(sys.executable, "-m", "venv", "--clear", folder)
    fill(lambda *arguments: run(python, "-m", "pip", "--disable-pip-version-check", "install", *arguments))
    stamp.write_text(wanted)
    return python


def versions_in(python: Path | str) -> dict[str, str]:
    """Return the version of each package that this Python has, except our own and pip."""
    listed = dict(line.split("==", 1) for line in run(python, "-I", "-c", LIST_VERSIONS).split())
    return {name: version for name, version in sorted(listed.items()) if name not in {"perdure", "pip"}}


def commit_of(reference: str) -> str:
    """Return the full id of the commit that a branch, a tag or a short id denotes."""
    return git("rev-parse", "--verify", f"{reference}^{{commit}}")


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """Provide the files of a commit in a worktree below `folder`, and remove it at the end."""
    with TemporaryDirectory(prefix="tree-", dir=folder) as temporary:
        tree = Path(temporary) / "perdure"
        git("worktree", "add", "--detach", tree, commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", tree)


def git(*arguments: Path | str) -> str:
    return run("git", "-C", ROOT, *arguments)


def run(*command: Path | str) -> str:
    """Run a command and return its output.

    Raises:
        CommandFailedError: its exit code is not 0.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise CommandFailedError(f"`{words}` said\n{done.stderr.strip()}")
    return done.stdout.strip()
