"""Environments: made once per set of requirements. A commit's files come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

import environments


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with two commits of one file, the first of them tagged `first`."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.setattr(environments, "ROOT", folder)
    environments.git("init", "--quiet")
    for number in ("1", "2"):
        (folder / "file").write_text(number)
        environments.git("add", "file")
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
        environments.git(*author, "commit", "--quiet", "--message", number)
    environments.git("tag", "first", "HEAD~")
    return folder


def test_a_commit_is_checked_out_and_its_worktree_goes_again(repository: Path, tmp_path: Path) -> None:
    with environments.checked_out(environments.commit_of("first"), tmp_path) as tree:
        assert (tree / "file").read_text() == "1"

    assert not tree.exists()
    assert len(environments.git("worktree", "list").splitlines()) == 1
    assert (repository / "file").read_text() == "2"


@pytest.mark.usefixtures("repository")
def test_a_name_that_git_does_not_know_is_told_in_its_words() -> None:
    with pytest.raises(environments.CommandFailedError, match=r"rev-parse .*nowhere(.|\n)* said\nfatal: "):
        environments.commit_of("nowhere")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the commands that are run. None does anything, except making the folder of an environment."""
    commands: list[str] = []

    def run(*command: Path | str) -> str:
        commands.append(" ".join(map(str, command)))
        if "venv" in command:
            (Path(command[-1]) / "bin").mkdir(parents=True, exist_ok=True)
            (Path(command[-1]) / "bin" / "python").touch()
        return ""

    monkeypatch.setattr(environments, "run", run)
    return commands


def test_an_environment_is_made_once_and_again_when_it_is_made_from_something_else(
    tmp_path: Path, made: list[str]
) -> None:
    for made_from in ("a", "a", "b"):
        python = environments.made_once(tmp_path / "e", made_from, lambda install: install("package"))
        assert python == tmp_path / "e" / "bin" / "python"

    assert [command.split()[-1] for command in made] == [str(tmp_path / "e"), "package"] * 2


def test_an_environment_that_was_not_finished_is_made_again(tmp_path: Path, made: list[str]) -> None:
    def fail(install: environments.Install) -> None:
        raise environments.CommandFailedError("no network")

    with pytest.raises(environments.CommandFailedError):
        environments.made_once(tmp_path / "e", "a", fail)
    environments.made_once(tmp_path / "e", "a", lambda install: install("package"))

    assert made[-1].endswith("pip --disable-pip-version-check install package")


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("accepts", [True, False])
def test_a_commit_gets_the_versions_of_here_unless_it_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepts: bool
) -> None:
    installs: list[tuple[str, ...]] = []

    def made_once(folder: Path, made_from: str, fill: object) -> Path:
        assert callable(fill)
        folder.mkdir()

        def install(*arguments: Path | str) -> None:
            installs.append(tuple(map(str, arguments)))
            if not accepts and "--constraint" in installs[-1]:
                raise environments.CommandFailedError("conflict")

        fill(install)
        return folder

    monkeypatch.setattr(environments, "made_once", made_once)
    environments.commit_python(tmp_path / "e", environments.commit_of("first"))

    assert installs[0][:2] == ("--constraint", str(tmp_path / "e" / "constraints.txt"))
    assert [len(words) for words in installs] == ([3] if accepts else [3, 1])
    constraints = (tmp_path / "e" / "constraints.txt").read_text().splitlines()
    assert any(line.startswith("pydantic==") for line in constraints)
    assert not any(line.startswith("perdure==") for line in constraints)


def test_a_command_that_fails_is_shown_with_its_words() -> None:
    with pytest.raises(environments.CommandFailedError, match=r"^`git -C .* nonsense` said\ngit: 'nonsense'"):
        environments.git("nonsense")
