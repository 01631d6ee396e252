"""A comparison of this project with its peer: equal graphs, each side in its own processes and environment.

    .venv/bin/python benchmarks/run.py                     everything, about four minutes
    .venv/bin/python benchmarks/run.py --quick             one round, no slow cases, no counts of calls
    .venv/bin/python benchmarks/run.py --only 'chain_*'    some cases; repeatable
    .venv/bin/python benchmarks/run.py --no-postgres       the cases in memory
    .venv/bin/python benchmarks/run.py --strict            exit code 1 if a bar is missed

The first run makes the peer's environment in `.bench/peer` from `peer-requirements.txt`. Timed runs
alternate (ours, peer, ours, peer) and nothing else runs beside them. Each process warms up once, collects
garbage before each repetition, and measures neither imports nor `compile`. Counts (Python calls, peak memory,
round trips, bytes, write-ahead log) come from separate processes that are not timed. The Postgres cases run
against an embedded server with fsync on, each process with a new database.

The table goes to the screen and the figures to `benchmarks/out/latest.json`, a list of `{"case",
"metric", "ours", "peer", "ratio"}` with ratio = peer / ours. `metric` is one of time_us, calls,
round_trips, bytes_sent, wal_bytes, peak_kb. All figures are per unit of the case, except peak_kb, which is
per run. If a side fails, or its final state differs from the other's, its figure is null, the object has an
`error`, and the exit code is 1.
"""

import argparse
import sys
from pathlib import Path

import report
from cases import CASES
from environments import ROOT, peer_python
from harness import WORK_FOLDER, add_only, chosen_cases, measure, opened_console
from jobs import Results, jobs_of
from sides import Side

OUTPUT = ROOT / "benchmarks" / "out" / "latest.json"
ROUNDS = 3


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure this project and its peer side by side.")
    parser.add_argument("--quick", action="store_true", help="one round, no slow cases, no counts of calls")
    add_only(parser)
    parser.add_argument("--no-postgres", action="store_true", help="only the cases in memory")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a bar is missed")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    console = opened_console()
    cases = chosen_cases(arguments.only, slow=not arguments.quick, postgres=not arguments.no_postgres)
    with console.status("Making the peer's environment (once)"):
        pythons: dict[Side, Path] = {"ours": Path(sys.executable), "peer": peer_python(WORK_FOLDER / "peer")}
    timed = jobs_of(cases, "time", pythons, 1 if arguments.quick else ROUNDS)
    timed += jobs_of(cases, "traffic", pythons)
    counted = jobs_of(cases, "peak", pythons) + ([] if arguments.quick else jobs_of(cases, "calls", pythons))
    results = Results()
    measure(console, pythons, results, timed, sorted(counted, key=lambda job: not job.case.slow))
    rows = report.rows_of(cases, results)
    report.write(OUTPUT, rows)
    report.show(console, rows)
    within_bars = report.growth_passed(console, rows) and all(row.passed is not False for row in rows)
    left_out = [case.name for case in CASES if case not in cases]
    if left_out:
        console.print(f"Left out: {', '.join(left_out)}")
    console.print(f"Written to {OUTPUT.relative_to(ROOT)}")
    if results.failures:
        return 1
    return 0 if within_bars or not arguments.strict else 1


if __name__ == "__main__":
    sys.exit(main())
