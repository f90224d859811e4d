#!/usr/bin/env python3
"""Opens a run's folder with the tools that users have, not with ours.

    read_run.py RUN

Checkpoints with the `safetensors` package, events with TensorBoard's own reader, metrics.jsonl with json. Prints a
summary; exits with 1 and a line a finding where something does not open or the events differ from metrics.jsonl.
Packages: requirements.txt beside this file.
"""

import argparse
import json
import math
import pathlib
import struct
import sys

import numpy
from safetensors import safe_open
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

HEADER_FIELDS = {"update", "steps"}  # the axis of the curves


def read_checkpoint(path, findings):
    """The number of tensors and of values in them."""
    values = 0
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        if len(metadata.get("xxh3_64", "")) != 16 or "update" not in metadata:
            findings.append(f"{path}: metadata lacks the checksum or the update")
        names = list(file.keys())
        for name in names:
            array = file.get_tensor(name)
            values += array.size
            if array.dtype.kind == "f" and not numpy.isfinite(array).all():
                findings.append(f"{path}: {name} has values that are not finite")
    return len(names), values


def read_metrics(path, findings):
    rows = []
    text = path.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        findings.append(f"{path}: the last line is torn")
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            findings.append(f"{path}:{number}: {error}")
            continue
        if rows and row["update"] <= rows[-1]["update"]:
            findings.append(f"{path}:{number}: update {row['update']} after {rows[-1]['update']}")
        rows.append(row)
    return rows


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def compare_events(run, rows, findings):
    """Each curve must have exactly the points that metrics.jsonl has."""
    accumulator = EventAccumulator(str(run), size_guidance={"scalars": 0})
    accumulator.Reload()
    curves = {tag.split("/")[-1]: tag for tag in accumulator.Tags()["scalars"]}
    for field in sorted({name for row in rows for name in row} - HEADER_FIELDS):
        wanted = [(row["steps"], as_float32(row[field])) for row in rows if row[field] is not None]
        events = accumulator.Scalars(curves[field]) if field in curves else []
        found = [(event.step, event.value) for event in events]
        if found != wanted:
            findings.append(f"{run}: {field} has {len(found)} points in the events and {len(wanted)} in metrics.jsonl, "
                            "or their values differ")
    return len(curves)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", type=pathlib.Path)
    run = parser.parse_args().run
    findings = []

    checkpoints = sorted((run / "checkpoints").glob("*.safetensors"))
    if not checkpoints:
        findings.append(f"{run}: no checkpoint")
    for path in checkpoints:
        tensors, values = read_checkpoint(path, findings)
        print(f"{path.name}: {tensors} tensors, {values} values")
    rows = read_metrics(run / "metrics.jsonl", findings)
    print(f"metrics.jsonl: {len(rows)} rows")
    if any(run.glob("events.out.tfevents.*")):
        print(f"events: {compare_events(run, rows, findings)} curves")
    summary = run / "summary.json"
    if summary.exists():
        steps = json.loads(summary.read_text(encoding="utf-8"))["steps"]
        print(f"summary.json: {steps} steps")
        if rows and (not math.isfinite(steps) or steps < rows[-1]["steps"]):
            findings.append(f"{summary}: {steps} steps where metrics.jsonl has {rows[-1]['steps']}")

    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
