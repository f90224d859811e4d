#!/usr/bin/env python3
"""Checks of the source tree itself, standard library only.

    check.py [--root DIR] includes|heads|length|words|readme|settings ...

Prints one line a finding, `path:line: what is wrong`, and exits with 1 where there is one.
"""

import argparse
import pathlib
import re
import sys

FOLDERS = ("common", "kernels", "actor", "learner", "cli", "proto", "tests", "benchmarks")
CPP = {".h", ".cc", ".cu", ".cuh"}
TEXT = CPP | {".py", ".sh", ".cmake", ".proto", ".txt", ".md", ".yaml"}
MAX_LINES = 600

# What a layer may include besides itself. Folders that are not named here (tests, benchmarks) may include anything.
LAYERS = {
    "common": {"common"},
    "kernels": {"kernels", "common"},
    "actor": {"actor", "kernels", "common"},
    "learner": {"learner", "kernels", "common"},
    "cli": {"cli", "actor", "learner", "kernels", "common"},
}
CUDA_HEADER = re.compile(r"(cuda|cublas|cudnn|curand|nccl|nvml|nvtx|nvToolsExt|cooperative_groups|cub/|thrust/)")
RPC_HEADER = re.compile(r"(google/protobuf/|grpc|.*\.pb\.h$)")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Split, so that this file is not its own finding.
UNFINISHED = re.compile("|".join([r"\bTO" r"DO\b", r"\bFIX" r"ME\b", r"\bXX" r"X\b", r"\bHA" r"CK\b", r"\bTB" r"D\b",
                                  "for " "now", "place" "holder", "lorem " "ipsum"]), re.IGNORECASE)
HOME_PATH = re.compile(r"(?<![\w.])/(root|home)/\w")


def files(root, suffixes):
    """The tree's own files with these suffixes, as paths relative to root, in order."""
    found = [p for folder in FOLDERS for p in (root / folder).rglob("*")]
    found += root.glob("*")
    found += (root / "cmake").glob("*")
    found += (root / "docs").rglob("*")
    return sorted({p.relative_to(root) for p in found if p.suffix in suffixes and p.is_file()})


def lines(root, path):
    return (root / path).read_text(encoding="utf-8").split("\n")


def may_use_cuda(path):
    in_cuda_folder = path.parts[0] == "kernels" and "cuda" in path.parts[1:-1]
    return in_cuda_folder or path.name.startswith("gemm_cublaslt") or path.suffix in (".cu", ".cuh")


def may_use_rpc(path):
    return path.parts[0] == "tests" or path.parts[:2] in (("common", "rpc"), ("common", "config")) \
        or path.stem.removesuffix("_test").endswith("_grpc")


def check_includes(root):
    """Who may include whom (ARCHITECTURE.md, "Folders")."""
    for path in files(root, CPP):
        layer = path.parts[0]
        for number, line in enumerate(lines(root, path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match[2]
            target = header.split("/")[0]
            if target in LAYERS and target not in LAYERS.get(layer, LAYERS):
                yield path, number, f"{layer} may not include {header}"
            if header.startswith(".") or ("/" not in header and (root / path.parent / header).exists()):
                yield path, number, f"{header}: our headers are included by their path from the root"
            if CUDA_HEADER.match(header) and not may_use_cuda(path):
                yield path, number, f"{header}: CUDA headers belong under kernels/**/cuda/, gemm_cublaslt*, *.cu, *.cuh"
            if RPC_HEADER.match(header) and not may_use_rpc(path):
                yield path, number, f"{header}: generated and gRPC headers belong in common/rpc, common/config, *_grpc.*"


def check_heads(root):
    """A header opens with its purpose and is guarded."""
    for path in files(root, {".h", ".cuh"}):
        text = lines(root, path)
        if not text[0].startswith("//"):
            yield path, 1, "a header opens with a comment: purpose, owner, thread rule, station"
        if "#pragma once" not in text:
            yield path, 1, "no #pragma once"


def check_length(root):
    paths = files(root, TEXT) + [p for p in (pathlib.Path("mill"), pathlib.Path(".ci/run")) if (root / p).exists()]
    for path in paths:
        count = len(lines(root, path)) - 1
        if count > MAX_LINES and path.suffix != ".md":
            yield path, count, f"{count} lines, more than {MAX_LINES}"


def check_words(root):
    """Marks of unfinished work, and paths of somebody's machine."""
    for path in files(root, TEXT):
        for number, line in enumerate(lines(root, path), 1):
            for pattern in (UNFINISHED, HOME_PATH):
                if match := pattern.search(line):
                    yield path, number, f"'{match[0]}'"


def check_readme(root):
    """The commands that README.md shows name presets, millrace commands and mill commands that exist."""
    presets = {p.stem for p in (root / "cli/presets").glob("*.yaml")}
    own = {"test", "build", "format", "install", "help"}
    program = {"train", "learner", "actor", "status", "control", "eval", "envs", "presets", "bench", "tune"}
    for number, line in enumerate(lines(root, pathlib.Path("README.md")), 1):
        match = re.match(r"\s*(?:\./mill|(?:build/release/)?millrace)\s+(\S+)(?:\s+([\w.-]+))?", line)
        if not match:
            continue
        command, argument = match[1], match[2]
        if not command.startswith("-") and command not in own | program:
            yield pathlib.Path("README.md"), number, f"no such command: {command}"
        if command == "train" and argument and not argument.endswith(".yaml") and argument not in presets:
            yield pathlib.Path("README.md"), number, f"no such preset: {argument}"


def settings_of(proto):
    """{"ppo.epochs": (line, default)} of the schema's text; the default as its comment states it."""
    fields, section, sections, comment = {}, None, {}, ""
    for number, line in enumerate(proto, 1):
        if match := re.match(r"message (\w+)", line):
            section = match[1]
        elif match := re.match(r"\s*//\s*(.*)", line):
            comment += match[1] + " "
            continue
        elif match := re.match(r"\s*(?:optional |repeated )?(\w+|map<.*>) (\w+) = \d+", line):
            default = re.search(r"\bDefault (.+?)(?::|\.(?: |$))", comment)
            fields[section, match[2]] = (number, default[1] if default else None)
            if section == "RunConfig" and match[1].endswith("Section"):
                sections[match[1]] = match[2]
                del fields[section, match[2]]
        comment = ""
    sections["RunConfig"] = ""
    return {f"{sections[s]}.{name}".lstrip("."): at for (s, name), at in fields.items() if s in sections}


def check_settings(root):
    """docs/settings.md has each setting of the schema once, with its default, and names no other."""
    proto, page = pathlib.Path("proto/millrace/v1/config.proto"), pathlib.Path("docs/settings.md")
    known = settings_of(lines(root, proto))
    sections = {key.split(".")[0] for key in known}
    seen = set()
    for number, line in enumerate(lines(root, page), 1):
        for key in re.findall(r"`(\w+\.\w+)[^`]*`", line):
            if key.split(".")[0] in sections and key not in known:
                yield page, number, f"no such setting: {key}"
        row = re.match(r"\| `([\w.]+)` \| `?([^`|]*?)`? \|", line)
        if not row:
            continue
        key, default = row[1], row[2]
        if key not in known and key.split(".")[0] not in sections:
            yield page, number, f"no such setting: {key}"
        elif key in seen:
            yield page, number, f"a second row for {key}"
        elif key in known and default != known[key][1]:
            yield page, number, f"{key}: the default is {known[key][1]}, not {default}"
        seen.add(key)
    for key, (number, _) in known.items():
        if key not in seen:
            yield proto, number, f"{key} has no row in {page}"


CHECKS = {"includes": check_includes, "heads": check_heads, "length": check_length, "words": check_words,
          "readme": check_readme, "settings": check_settings}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("checks", nargs="+", choices=CHECKS)
    arguments = parser.parse_args()
    findings = [f for name in arguments.checks for f in CHECKS[name](arguments.root)]
    for path, number, what in findings:
        print(f"{path}:{number}: {what}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
