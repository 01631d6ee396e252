"""The worker process: measures one case on one side and prints the figures as one line of JSON.

    python worker.py peer chain_10 time
    {"samples": {"time_us": [612.4, 609.8, 620.1]}, "state": "5d0a3c..."}

The Python of the side's environment runs it. Each figure is per unit of the case, one per repetition. `state`
is a digest of the final states.
"""

import argparse
import asyncio
import cProfile
import json
import sys
import time
import traceback
import tracemalloc
from typing import Any, get_args

from cases import CASES, METRICS, Case, Pass
from rig import Rig, opened_rig
from sides import Side

Samples = dict[str, list[float]]

MOST_REPETITIONS = 9
LEAST_SECONDS = 0.02
"""The minimum duration of a timed sample. A shorter run is repeated within the sample."""
COUNTED_REPETITIONS = 3


async def measure_time(rig: Rig, seconds: float) -> Samples:
    """Take samples until `seconds` have passed, including their preparation, but at least one.

    The first sample decides how many runs a sample has. It is dropped if that is more than one.
    """
    samples: list[float] = []
    runs = 1
    deadline = time.perf_counter() + seconds
    while not samples or (time.perf_counter() < deadline and len(samples) < MOST_REPETITIONS):
        elapsed = await time_runs(rig, runs)
        if elapsed < LEAST_SECONDS:
            runs = 1 + int(runs * LEAST_SECONDS / elapsed)
        else:
            samples.append(elapsed * 1e6 / rig.case.units / runs)
    return {"time_us": samples}


async def time_runs(rig: Rig, runs: int) -> float:
    """Measure the duration of `runs` runs in a row, in seconds, without their preparation."""
    ready = [await rig.prepare(rig.case.input) for _ in range(runs)]
    start = time.perf_counter()
    results = [await run() for run in ready]
    elapsed = time.perf_counter() - start
    for states in results:
        rig.check(states)
    return elapsed


async def measure_calls(rig: Rig) -> Samples:
    """Count calls of Python functions in the loop's thread. Calls in other threads are not counted."""
    run = await rig.prepare(rig.case.input)
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    states = await run()
    profile.disable()
    rig.check(states)
    calls = sum(entry.callcount for entry in profile.getstats())
    return {"calls": [calls / rig.case.units]}


async def measure_peak(rig: Rig) -> Samples:
    """Measure the peak memory of a whole run above the memory before it, in KiB."""
    run = await rig.prepare(rig.case.input)
    tracemalloc.start()
    states = await run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    rig.check(states)
    return {"peak_kb": [peak / 1024]}


async def measure_traffic(rig: Rig, traffic: Any, uri: str) -> Samples:
    """Count the traffic to Postgres, and measure what Postgres writes to its log."""
    import psycopg

    samples: Samples = {metric: [] for metric in METRICS["traffic"]}
    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as observer:
        for _ in range(COUNTED_REPETITIONS):
            run = await rig.prepare(rig.case.input)
            log, trips, sent = await log_position(observer), traffic.round_trips, traffic.bytes_sent
            rig.check(await run())
            samples["round_trips"].append((traffic.round_trips - trips) / rig.case.units)
            samples["bytes_sent"].append((traffic.bytes_sent - sent) / rig.case.units)
            samples["wal_bytes"].append((await log_position(observer) - log) / rig.case.units)
    return samples


async def log_position(observer: Any) -> int:
    cursor = await observer.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    return int((await cursor.fetchone())[0])


async def measure(side: Side, case: Case, what: Pass, uri: str | None, seconds: float) -> dict[str, Any]:
    if what == "traffic":
        from proxy import counting_proxy

        assert uri is not None
        with counting_proxy(uri) as proxy:
            async with opened_rig(side, case, proxy.uri) as rig:
                samples = await measure_traffic(rig, proxy.traffic, uri)
    else:
        async with opened_rig(side, case, uri) as rig:
            if what == "time":
                samples = await measure_time(rig, seconds)
            else:
                samples = await (measure_calls(rig) if what == "calls" else measure_peak(rig))
    return {"samples": samples, "state": rig.digest}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure one case on one side.")
    parser.add_argument("side", choices=get_args(Side))
    parser.add_argument("case", choices=[case.name for case in CASES])
    parser.add_argument("what", choices=get_args(Pass))
    parser.add_argument("--uri", help="an empty database, for the cases that need one")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long to repeat a timed run")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    case = next(case for case in CASES if case.name == arguments.case)
    try:
        answer = asyncio.run(measure(arguments.side, case, arguments.what, arguments.uri, arguments.seconds))
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
