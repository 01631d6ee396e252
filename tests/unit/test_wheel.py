"""The contents of the wheel: three packages, complete, importable without the source tree."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "perdure": ROOT / "runtime" / "perdure",
    "perdure_checkpointers": ROOT / "checkpointers" / "perdure_checkpointers",
    "perdure_migrations": ROOT / "migrations" / "perdure_migrations",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert result.returncode == 0, result.stderr
    [built] = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def members(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def source_files(suffix: str) -> set[str]:
    """List the files of the source tree under their names in the wheel."""
    return {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in PACKAGES.items()
        for path in folder.rglob(f"*{suffix}")
    }


def test_top_level_names_are_our_three_packages(members: set[str]) -> None:
    names = {member.partition("/")[0] for member in members}
    metadata = {name for name in names if name.startswith("perdure-") and name.endswith(".dist-info")}
    assert names - metadata == set(PACKAGES)
    assert len(metadata) == 1


def test_every_module_and_every_sql_file_is_in_it(members: set[str]) -> None:
    assert source_files(".py") | source_files(".sql") <= members


def test_every_package_is_typed(members: set[str]) -> None:
    assert {f"{name}/py.typed" for name in PACKAGES} <= members


def test_licence_is_in_it(members: set[str]) -> None:
    assert any(member.endswith(".dist-info/licenses/LICENSE") for member in members)


def test_packages_import_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=50)
    python = str(environment / "bin" / "python")
    ask = [python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site_packages = Path(subprocess.check_output(ask, text=True, timeout=50).strip())
    with ZipFile(wheel) as archive:
        archive.extractall(site_packages)
    # The dependencies of this environment, but not its .pth files, which lead to the source tree.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    program = "\n".join(f"import {name}; print({name}.__file__)" for name in PACKAGES)
    imported = subprocess.check_output([python, "-I", "-c", program], text=True, timeout=50)

    folders = [Path(line).parent for line in imported.splitlines()]
    assert folders == [site_packages / name for name in PACKAGES]
