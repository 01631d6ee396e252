from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from examples import map_reduce
from examples.map_reduce import word_comparison

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "README.md": "Graphs last. Runs last and last.",
        "docs/why.md": "Because runs last.",
        "engine.py": "class Graph: pass  # runs",
        "nested/deep/channel.py": "class Channel: pass\nGRAPH = None",
        "notes.txt": "ignored ignored",
        ".venv/lib/other.py": "ignored",
        "lib/site-packages/other.py": "ignored",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


async def test_each_file_is_counted_once_and_all_counts_are_added_up(project: Path) -> None:
    result = await word_comparison().ainvoke({"folder": str(project)})

    assert [Path(file).name for file in result["files"]] == ["README.md", "why.md", "engine.py", "channel.py"]
    assert result["prose"] == Counter({"last": 4, "runs": 2, "graphs": 1, "and": 1, "because": 1})
    assert result["code"] == Counter({"class": 2, "pass": 2, "graph": 2, "channel": 1, "runs": 1, "none": 1})


async def test_what_is_typical_of_a_side_is_ranked_without_the_words_of_python(project: Path) -> None:
    result = await word_comparison().ainvoke({"folder": str(project)})

    assert result["prosaic"][0] == "last"
    assert result["technical"][0] == "graph"
    assert not {"and", "class", "pass", "none"} & {*result["prosaic"], *result["technical"]}


@pytest.mark.parametrize("max_concurrency", [1, 2, None])
async def test_the_join_goes_on_once_after_the_last_task(project: Path, max_concurrency: int | None) -> None:
    config = {} if max_concurrency is None else {"max_concurrency": max_concurrency}
    ran = [next(iter(update)) async for update in word_comparison().astream({"folder": str(project)}, config)]

    assert sorted(ran[:2]) == ["find_files", "know_python"]
    assert ran[2:] == ["count_words"] * 4 + ["compare"]


async def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no \.md and no \.py files below"):
        await word_comparison().ainvoke({"folder": str(tmp_path)})


async def test_this_project_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    await map_reduce.main(ROOT / "runtime")

    printed = capsys.readouterr().out
    assert f"files below {ROOT / 'runtime'}" in printed
    assert re.search(r"code: \d{5,} words, \d+ different; most typical:\n  (self|the) ", printed)
