#!/usr/bin/env python3
"""Asynchronous against synchronous training, standard library only.

    async_table.py learning [--preset NAME] [--steps N] [--seeds N]     returns at the same number of steps
    async_table.py speed [--seeds N] [--wait-us N]                      wall time to CartPole's target

`learning` trains each seed in both modes with two actor processes, evaluates the last checkpoint, and prints the
ratio of the mean returns with its bootstrapped 95 % interval. `speed` gives CartPole an environment that waits
(no core busy) until a rollout takes as long as an update in mode: sync, and compares the seconds to the target.
There one actor process acts in both modes, for env.rows is the total in sync mode and each actor's in async.
Runs go to a temporary folder. Each line is printed as soon as it is known.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "build/release/millrace"


def train(folder, preset, seed, mode, *sets, steps=None):
    run = pathlib.Path(folder) / f"{preset}-{mode}-{seed}"
    command = [PROGRAM, "train", preset, "--seed", seed, "--run", run, "--quiet"]
    command += ["--steps", steps] if steps else []
    for setting in (f"mode={mode}", "actors.processes=2", "actors.threads=1", *sets):
        command += ["--set", setting]
    subprocess.run([str(c) for c in command], check=True)
    return run, json.loads((run / "summary.json").read_text())


def evaluate(run):
    out = subprocess.run([PROGRAM, "eval", run, "--checkpoint", "latest", "--episodes", "50", "--json"],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out)["return_mean"]


def lower_bound(sync, asynchronous, draws=10000):
    """The 2.5 % and 97.5 % points of mean(async) / mean(sync), resampling seeds of each mode."""
    source = random.Random(1)
    ratios = sorted(statistics.fmean(source.choices(asynchronous, k=len(asynchronous))) /
                    statistics.fmean(source.choices(sync, k=len(sync))) for _ in range(draws))
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws)]


def learning(arguments):
    returns = {"sync": [], "async": []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, arguments.seeds + 1):
            for mode in returns:
                run, summary = train(folder, arguments.preset, seed, mode, "run.stop_window=0", "eval.every=0",
                                     *arguments.set, steps=arguments.steps)
                returns[mode].append(evaluate(run))
                print(f"{arguments.preset} {mode} seed {seed}: {returns[mode][-1]:.1f} after {summary['steps']} steps, "
                      f"{summary['seconds']:.1f} s", flush=True)
    low, high = lower_bound(returns["sync"], returns["async"])
    means = {mode: statistics.fmean(values) for mode, values in returns.items()}
    print(f"{arguments.preset}: sync {means['sync']:.1f}, async {means['async']:.1f}, ratio "
          f"{means['async'] / means['sync']:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    return 0 if low >= 0.9 else 1


def rollout_and_update(run):
    """Median milliseconds of a rollout and of an update in metrics.jsonl."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [statistics.median(row[name] for row in rows) for name in ("ms_rollout", "ms_update")]


def speed(arguments):
    seconds = {"sync": [], "async": []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, arguments.seeds + 1):
            for mode in seconds:
                run, summary = train(folder, "cartpole", seed, mode, "actors.processes=1",
                                     f"env.step_wait_us={arguments.wait_us}",
                                     *arguments.set)
                seconds[mode].append(summary["target_seconds"] if summary["target_reached"] else float("inf"))
                rollout, update = rollout_and_update(run)
                print(f"cartpole {mode} seed {seed}: target after {seconds[mode][-1]:.2f} s, "
                      f"{summary['steps']} steps; rollout {rollout:.2f} ms, update {update:.2f} ms", flush=True)
    ratio = statistics.median(seconds["async"]) / statistics.median(seconds["sync"])
    print(f"cartpole, waiting {arguments.wait_us} us a step: async over sync {ratio:.2f} (medians)")
    return 0 if ratio <= 0.7 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("learning")
    command.add_argument("--preset", default="cartpole")
    command.add_argument("--steps", type=int, default=200000)
    command.add_argument("--seeds", type=int, default=10)
    command.add_argument("--set", action="append", default=[])
    command = commands.add_parser("speed")
    command.add_argument("--seeds", type=int, default=10)
    command.add_argument("--wait-us", type=int, default=60)
    command.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    return learning(arguments) if arguments.command == "learning" else speed(arguments)


if __name__ == "__main__":
    sys.exit(main())
