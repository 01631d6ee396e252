from __future__ import annotations

import pytest

from examples.stdlib_survey import Report, ranking_of, report_on, source_files, survey
from perdure import InMemorySaver

SOURCE = b'''"""What it is about."""

class Graph:
    def run(self):
        """Runs."""
        try:
            pass
        finally:
            def inner():
                return 1

async def wait():
    if True:
        class Local: ...
    match 1:
        case 1:
            def matched(): ...
'''


def report(name: str, **counts: int) -> Report:
    zero = dict.fromkeys(("functions", "classes", "definitions", "documented", "longest_lines"), 0)
    return {"name": name, "files": 1, "longest": name, **zero, **counts}  # type: ignore[typeddict-item]


def test_definitions_are_counted_wherever_they_are() -> None:
    assert report_on("graph.py", SOURCE) == Report(
        name="graph.py",
        files=1,
        functions=4,
        classes=2,
        definitions=7,
        documented=2,
        longest="run",
        longest_lines=7,
    )


def test_an_empty_file_has_nothing() -> None:
    assert report_on("empty.py", b"")["longest"] == ""


def test_files_are_summed_up_by_package_and_those_with_most_functions_come_first() -> None:
    ranking = ranking_of(
        [
            report("asyncio/tasks.py", functions=3, longest_lines=5),
            report("ast.py", functions=4),
            report("asyncio/base/events.py", functions=2, longest_lines=9, documented=1),
            report("zlib.py", functions=4),
        ]
    )

    assert [(each["name"], each["files"], each["functions"]) for each in ranking] == [
        ("asyncio", 2, 5),
        ("ast", 1, 4),
        ("zlib", 1, 4),
    ]
    assert ranking[0]["longest"] == "asyncio/base/events.py"
    assert ranking[0]["documented"] == 1


def test_the_standard_library_has_hundreds_of_files() -> None:
    files = source_files()

    assert len(files) > 300
    assert "ast.py" in files
    assert not [file for file in files if file.startswith(("test/", "site-packages/"))]


@pytest.mark.parametrize("limit", [1, 7, 100_000])
def test_a_limit_takes_files_from_all_over(limit: int) -> None:
    everything = source_files()
    files = source_files(limit)

    assert len(files) == len(set(files)) == min(limit, len(everything))
    assert set(files) <= set(everything)
    assert files[0] == everything[0]


async def test_every_file_is_analysed_once_and_ranked() -> None:
    log: list[str] = []
    graph = survey(log.append).compile(checkpointer=InMemorySaver(), name="stdlib-survey")
    config = {"configurable": {"thread_id": "survey"}, "max_concurrency": 3}
    state = await graph.ainvoke({"limit": 12}, config, durability="sync")

    assert len(state["files"]) == 12
    assert [each["name"] for each in state["reports"]] == state["files"]
    assert sorted(log) == sorted(
        f"{event} {file}" for file in state["files"] for event in ("started", "finished")
    )
    assert state["ranking"] == ranking_of(state["reports"])
