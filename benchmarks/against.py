"""A comparison of this working tree with another commit of this project: the cost of a change.

    make bench-against REF=main                        the cases in memory, about two minutes
    make bench-against REF=main ARGS=--postgres        adds the cases on Postgres
    make bench-against REF=HEAD ARGS="--most 1.05"     compares uncommitted changes, with another bound

Both sides run the graphs of the working tree, by turns and in processes of their own, as in `run.py`. The
commit's package is installed once into `.bench/against/<commit>`, with the dependencies that are installed
here. Each side's figure is that of its best process, because other load on the machine only adds to it. A
case whose time is above the bound is measured once more.

Python calls do not depend on the load of the machine, and the bound holds for them as well. If a time is
above the bound and the calls are not, the reason is either the load or an operation that costs time but no
calls.

The exit code is 1 if a ratio (here / commit) is above the bound, if a case fails here, or if nothing was
compared. A case that the commit cannot run is named and left out.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cases import Case, Pass
from environments import CommandFailedError, commit_of, commit_python, versions_in
from harness import WORK_FOLDER, add_only, chosen_cases, measure, opened_console
from jobs import Results, jobs_of
from report import amount
from sides import Side

ROUNDS = 5
MOST = 1.15
COMPARED: dict[Pass, str] = {"time": "time_us", "calls": "calls"}
"""The metric of each pass."""


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure this working tree against another commit.")
    parser.add_argument("ref", metavar="REF", help="a commit: a branch, a tag or an id")
    parser.add_argument(
        "--most", type=float, default=MOST, metavar="RATIO", help="maximum ratio (%(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="processes per side and case (%(default)s)"
    )
    parser.add_argument("--postgres", action="store_true", help="add the cases on Postgres")
    add_only(parser)
    return parser.parse_args(words)


def figures_of(results: Results, case: Case, metric: str) -> tuple[float | None, float | None]:
    """Return the commit's figure and ours."""
    return results.figure(case, metric, "ref", min), results.figure(case, metric, "ours", min)


def ratio_of(results: Results, case: Case, metric: str) -> float | None:
    ref, here = figures_of(results, case, metric)
    return here / ref if here and ref else None


def passed(results: Results, cases: list[Case], most: float) -> bool:
    ratios = [ratio_of(results, case, metric) for case in cases for metric in COMPARED.values()]
    known = [ratio for ratio in ratios if ratio is not None]
    failed_here = any(side == "ours" for _, side, _ in results.failures)
    return bool(known) and max(known) <= most and not failed_here


def show(console: Console, results: Results, cases: list[Case], commit: str, most: float) -> None:
    table = Table(
        caption=f"Best process of each side, per unit of the case. ratio = here / {commit}, at most {most:g}."
    )
    table.add_column("case", no_wrap=True)
    table.add_column("per")
    for heading in (f"{commit} us", "here us", "ratio", f"{commit} calls", "here calls", "ratio"):
        table.add_column(heading, justify="right")
    for case in cases:
        if any(ratio_of(results, case, metric) for metric in COMPARED.values()):
            cells = [cell for metric in COMPARED.values() for cell in cells_of(results, case, metric, most)]
            table.add_row(case.name, case.unit, *cells)
    console.print(table)
    lines = {
        f"[red]failed[/red] {name}: {escape(error)}"
        if side == "ours"
        else f"left out: {commit} does not run {name}: {escape(error)}"
        for (name, side, _), error in results.failures.items()
    }
    for line in sorted(lines):
        console.print(line)


def cells_of(results: Results, case: Case, metric: str, most: float) -> tuple[str, str, str]:
    ratio = ratio_of(results, case, metric)
    colour = "yellow" if ratio and ratio > most else "green"
    shown = f"[{colour}]{ratio:.2f}x[/{colour}]" if ratio else "-"
    ref, here = figures_of(results, case, metric)
    return amount(ref), amount(here), shown


def show_other_versions(console: Console, commit: str, python: Path) -> None:
    here, there = versions_in(sys.executable), versions_in(python)
    for name, version in there.items():
        if here.get(name, version) != version:
            console.print(f"{commit} uses {name} {version}, this tree uses {here[name]}")


def main() -> int:
    arguments = parse_arguments()
    console = opened_console()
    try:
        commit = commit_of(arguments.ref)
        with console.status(f"Making the environment of {arguments.ref} (once)"):
            python = commit_python(WORK_FOLDER / "against" / commit, commit)
    except CommandFailedError as error:
        console.print(f"[red]failed[/red] {escape(str(error))}")
        return 1
    short = commit[:8]
    show_other_versions(console, short, python)
    pythons: dict[Side, Path] = {"ref": python, "ours": Path(sys.executable)}
    cases = chosen_cases(arguments.only, slow=True, postgres=arguments.postgres)
    cases = [case for case in cases if not COMPARED.keys().isdisjoint(case.passes)]
    results = Results()
    timed = jobs_of(cases, "time", pythons, arguments.rounds)
    measure(console, pythons, results, timed, jobs_of(cases, "calls", pythons))
    over = [case for case in cases if (ratio_of(results, case, "time_us") or 0) > arguments.most]
    if over:
        console.print(f"above {arguments.most:g}, measuring again: {', '.join(case.name for case in over)}")
        measure(console, pythons, results, jobs_of(over, "time", pythons, arguments.rounds), [])
    show(console, results, cases, short, arguments.most)
    return 0 if passed(results, cases, arguments.most) else 1


if __name__ == "__main__":
    sys.exit(main())
