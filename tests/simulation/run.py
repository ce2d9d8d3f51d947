"""Runs schedules: ``python -m tests.simulation.run --seeds 0:100000 [--trace] [--processes 2]``, or one in
ten of the directed ones: ``--directed 10``, or one by its label: ``--case "a queue: …"``. ``--store sqlite`` and
``--store dynamodb`` run that adapter beside the simulated store."""

import argparse
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.directed import cases, run_case
from tests.simulation.schedule import Outcome, simulate

_CHUNK = 200


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def _failures(store: str, seeds: range) -> list[tuple[int, str]]:
    outcomes = [simulate(seed, store) for seed in seeds]
    return [(outcome.seed, repr(outcome.violation)) for outcome in outcomes if outcome.violation is not None]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description="Runs simulated schedules.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=_range, help="FIRST:LAST (LAST not included), or one seed")
    what.add_argument("--directed", type=int, metavar="N", help="every N-th directed schedule")
    what.add_argument("--case", metavar="LABEL", help="one directed schedule, with its trace")
    parser.add_argument("--store", choices=("sqlite", "dynamodb"), default="", help="run on this adapter too (slower)")
    parser.add_argument("--trace", action="store_true", help="print every call of every run")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--failures", type=int, default=1, help="stop after this many")
    options = parser.parse_args(arguments)
    # The errors that the library reports in a run are planned; any other error is a violation.
    logging.getLogger("hourwheel").setLevel(logging.CRITICAL)
    if options.seeds is None:
        return _run_directed(options.directed or 1, options.case, options.failures)
    if options.trace:
        for seed in options.seeds:
            _print(simulate(seed, options.store))
        return 0
    return _run_many(options.seeds, options.store, options.processes, options.failures)


def _run_directed(share: int, label: str | None, most: int) -> int:
    done, failed = 0, 0
    for case in cases(share):
        if label is not None and case.label != label:
            continue
        done += 1
        outcome = run_case(case)
        if label is not None:
            _print(outcome)
        if outcome.violation is not None:
            failed += 1
            _say(f"{case.label}: {outcome.violation!r}")
            if failed >= most:
                return 1
    _say(f"{done} directed schedules, {failed} failed")
    return 1 if failed else 0


def _run_many(seeds: range, store: str, processes: int, most: int) -> int:
    began, done, failed = time.monotonic(), 0, 0
    length = 10 if store else _CHUNK
    chunks = [seeds[at : at + length] for at in range(0, len(seeds), length)]
    run = partial(_failures, store)
    with ProcessPoolExecutor(processes) as pool:
        runs = pool.map(run, chunks) if processes > 1 else map(run, chunks)
        for chunk, failures in zip(chunks, runs, strict=True):
            done += len(chunk)
            rate = done / (time.monotonic() - began)
            _say(f"{done:>9} of {len(seeds)} schedules, {rate:.0f}/s, {failed + len(failures)} failed")
            for seed, what in failures:
                failed += 1
                if most == 1:
                    _print(simulate(seed, store))
                else:
                    _say(f"seed {seed}: {what}")
                if failed >= most:
                    pool.shutdown(cancel_futures=True)
                    return 1
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _print(outcome: Outcome) -> None:
    for line in outcome.lines():
        _say(line)
    _say(f"seed {outcome.seed}: {outcome.calls} calls, {outcome.violation or 'no violation'}")


if __name__ == "__main__":
    sys.exit(main())
