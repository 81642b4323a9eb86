#!/usr/bin/env python3
"""Runs evals of GradBench on Pullback and on other tools of the suite, side by side.

    compare.py --suite GRADBENCH --tool target/release/pullback-gradbench [--python PY] [--evals gmm,lse] [--quick]

Each eval runs as the suite has it. Every message goes to Pullback first, then to the other tools, one after the other. The eval is
given Pullback's answers, so the verdict in the table is the eval's verdict on Pullback. A time is the median over the runs of one message but the first.
A tool that fails, or is silent for longer than the limit, is left out for the rest of that eval.

Some data of the suite are not in every copy of it: `lstm` takes any text with --text, and `ht` stops before the largest hands.
The suite's tool for JAX stops its clock when a computation has been started, and JAX may return long before it has ended. Here it waits
for the result; --async leaves that out.
"""

import argparse
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# Which other tools know an eval, and which of its functions is the one with derivatives (all others
# compute values alone).
EVALS = {
    "hello": (["manual", "pytorch", "jax"], ["double"]),
    "ba": (["manual", "pytorch"], ["jacobian"]),
    "det": (["manual"], ["gradient"]),
    "gmm": (["manual", "pytorch", "jax"], ["jacobian"]),
    "ht": (["manual", "pytorch"], ["jacobian"]),
    "kmeans": (["manual", "pytorch", "jax"], ["dir"]),
    "llsq": (["manual", "jax"], ["gradient"]),
    "lse": (["manual", "pytorch", "jax"], ["gradient"]),
    "lstm": (["manual", "pytorch"], ["jacobian"]),
    "ode": (["manual", "jax"], ["gradient"]),
    "particle": (["finite"], ["rr", "ff", "fr", "rf"]),
    "saddle": (["finite"], ["rr", "ff", "fr", "rf"]),
}

# What an eval is given beside the number of runs: always, and with --quick.
SIZES = {"ht": ["--max", "10"]}
QUICK = {
    "ba": ["--max", "2"],
    "det": ["-l", "5", "6", "7"],
    "gmm": ["-d", "2", "10", "-k", "5", "10"],
    "ht": ["--max", "2"],
    "kmeans": ["-k", "10", "100", "-n", "1000"],
    "llsq": ["-n", "16", "128", "1024"],
    "lse": ["-n", "2500", "40000"],
    "lstm": ["-l", "2", "-c", "1024"],
    "ode": ["-n", "1000", "-s", "1", "10"],
}


# Runs the tool for JAX with functions that wait for their results. (An option of JAX for that
# leaves out what runs on several threads.)
WAITING = """
import runpy, sys
from gradbench import wrap

def waiting(plain):
    def decorator(**how):
        def decorate(function):
            import jax
            return plain(**how)(lambda x: jax.block_until_ready(function(x)))
        return decorate
    return decorator

wrap.multiple_runs, wrap.function = waiting(wrap.multiple_runs), waiting(wrap.function)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Silent(Exception):
    """A process has ended, or said nothing for too long."""


class Process:
    """A program that is sent lines and answers with lines."""

    def __init__(self, command, cwd, env, quiet=True):
        errors = subprocess.DEVNULL if quiet else None
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=errors
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def read(self, limit=None):
        try:
            line = self.lines.get(timeout=limit)
        except queue.Empty:
            raise Silent(f"no answer within {limit:g} s") from None
        if line is None:
            raise Silent("the process ended")
        return line

    def write(self, line):
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Silent("the process ended") from None

    def ask(self, line, limit):
        self.write(line)
        return json.loads(self.read(limit))

    def end(self):
        self.process.kill()
        self.process.wait()


def peer(name, options):
    """Starts a tool of the suite."""
    package = options.suite / "python/gradbench"
    env = dict(os.environ, PYTHONPATH=str(package))
    if name in ("pytorch", "jax"):
        tool = package / "gradbench/tools" / name
        env["PYTHONPATH"] += os.pathsep + str(tool)
        waiting = name == "jax" and not options.asynchronous
        command = [options.python, *(["-c", WAITING] if waiting else []), str(tool / "run.py")]
    else:
        command = [options.python, "-m", "gradbench.cpp", name]
    return Process(command, options.suite, env)


def with_text(options, scratch):
    """The suite with another text for `lstm`: links to all that is there, and the one file."""
    for entry in options.suite.iterdir():
        if entry.name != "evals":
            (scratch / entry.name).symlink_to(entry)
    data = scratch / "evals/lstm/data"
    data.mkdir(parents=True)
    for entry in (options.suite / "evals").iterdir():
        if entry.name != "lstm":
            (scratch / "evals" / entry.name).symlink_to(entry)
    (data / "lstm_full.txt").symlink_to(options.text)
    return scratch


def median(answer):
    """The median over the runs, without the first: in it JAX compiles, and others find their memory."""
    times = [t["nanoseconds"] for t in answer.get("timings") or [] if t["name"] == "evaluate"]
    return statistics.median(times[1:] or times) if times else math.nan


def human(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


class Comparison:
    """One eval, and what has been measured in it."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.rows, self.last, self.missing = [], None, {}
        others, self.derivatives = EVALS[name]
        self.others = [other for other in others if other in options.peers]

    def command(self):
        options = self.options
        run = options.suite / "python/gradbench/gradbench/evals" / self.name / "run.py"
        command = [options.python, str(run)]
        if self.name != "hello":
            command += ["--min-runs", str(options.min_runs)]
            command += ["--min-seconds", str(options.min_seconds)]
        command += SIZES.get(self.name, []) + (QUICK.get(self.name, []) if options.quick else [])
        return command + options.extra

    def run(self, cwd):
        options = self.options
        env = dict(os.environ, PYTHONPATH=str(options.suite / "python/gradbench"))
        ours = Process([str(options.tool)], None, None)
        self.peers = {name: peer(name, options) for name in self.others}
        eval_ = Process(self.command(), cwd, env, quiet=False)
        try:
            while True:
                line = eval_.read()
                message = json.loads(line)
                if message["kind"] == "end":
                    break
                # Pullback has as long as it takes: the eval waits for it.
                answer = ours.ask(line, None)
                self.note(message, answer, line)
                eval_.write(json.dumps(answer).encode() + b"\n")
        except Silent as silent:
            if ours.process.poll() is not None:
                print(f"{self.name}: pullback: {silent}")
        finally:
            for process in [ours, eval_, *self.peers.values()]:
                process.end()

    def note(self, message, answer, line):
        kind = message["kind"]
        if kind == "analysis":
            self.last["valid"] = message["valid"]
            self.last["error"] = message.get("error")
            self.show(self.last)
            return
        if kind == "define" and not answer["success"]:
            print(f"{self.name}: pullback: {answer.get('error')}")
        row = {
            "eval": self.name,
            "function": message.get("function"),
            "size": message.get("description", ""),
            "times": {},
            "valid": None,
        }
        for name in list(self.peers):
            # To define a module, a C++ tool compiles it: once is enough.
            built = self.options.suite / "tools" / name / "bin" / self.name
            if kind == "define" and built.exists():
                continue
            try:
                other = self.peers[name].ask(line, self.options.limit)
                if not other.get("success", True):
                    error = (other.get("error") or "failed").strip().splitlines()[-1]
                    raise Silent(error)
                if kind == "evaluate":
                    row["times"][name] = median(other)
            except Silent as silent:
                self.missing[name] = f"{row['size']}: {silent}"
                self.peers.pop(name).end()
        if kind == "evaluate":
            self.rows.append(row)
            self.last = row
            if answer["success"]:
                row["times"]["pullback"] = median(answer)
            else:
                row["valid"], row["error"] = False, answer.get("error")
                self.show(row)

    def show(self, row):
        times = row["times"]
        cells = [f"{row['eval']:8} {row['function']:9} {row['size']:24}"]
        cells.append("valid  " if row["valid"] else "INVALID")
        ours = times.get("pullback")
        cells.append(f"pullback {human(ours) if ours else '-':>8}")
        for name in self.others:
            if name in times:
                ratio = f" ({ours / times[name]:.2f})" if ours else ""
                cells.append(f"{name} {human(times[name]):>8}{ratio}")
        print("  ".join(cells), flush=True)
        if not row["valid"]:
            print("    " + str(row.get("error")).strip()[:2000].replace("\n", "\n    "))

    def summary(self):
        """The rows of functions with derivatives, together."""
        rows = [row for row in self.rows if row["function"] in self.derivatives]
        valid = sum(bool(row["valid"]) for row in self.rows)
        cells = [self.name, f"{valid} of {len(self.rows)}"]
        ours = sum(row["times"].get("pullback", math.nan) for row in rows)
        cells.append(human(ours) if rows and not math.isnan(ours) else "-")
        for name in ["manual", "pytorch", "jax", "finite"]:
            both = [r["times"] for r in rows if name in r["times"] and "pullback" in r["times"]]
            if not both:
                cells.append("-")
                continue
            ratios = [times["pullback"] / times[name] for times in both]
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            part = "" if len(both) == len(rows) else f" of {len(both)}"
            total = human(sum(times[name] for times in both))
            cells.append(f"{total}{part}; {mean:.2f}, {max(ratios):.2f}")
        return "| " + " | ".join(cells) + " |"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--suite", type=Path, required=True, help="a checkout of GradBench")
    add("--tool", type=Path, required=True, help="the program pullback-gradbench")
    add("--python", default=sys.executable, help="a Python with what the suite needs")
    add("--evals", default=",".join(EVALS), help="names, with commas between them")
    add("--peers", default="manual,pytorch,jax,finite", help="tools to compare with")
    add("--quick", action="store_true", help="small inputs only")
    add("--min-runs", type=int, default=3, help="runs of each message, at least")
    add("--min-seconds", type=float, default=0.5, help="seconds of runs, at least")
    add("--limit", type=float, default=60, help="seconds a message may take another tool")
    add("--text", type=Path, help="a text for lstm, if the suite has none")
    add("--async", dest="asynchronous", action="store_true", help="leave JAX asynchronous")
    add("--json", type=Path, help="write all that was measured to this file")
    add("extra", nargs="*", help="after --: more arguments for the evals")
    options = parser.parse_args()
    for name in ("suite", "tool", "text"):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).resolve())
    options.peers = options.peers.split(",")
    unknown = [name for name in options.evals.split(",") if name not in EVALS]
    if unknown:
        parser.error(f"there is no eval {unknown[0]!r}; there are {', '.join(EVALS)}")
    return options


def main():
    options = arguments()
    done = []
    started = time.strftime("%Y-%m-%d %H:%M")
    for name in options.evals.split(","):
        comparison = Comparison(name, options)
        with tempfile.TemporaryDirectory() as scratch:
            replaced = name == "lstm" and options.text
            cwd = with_text(options, Path(scratch)) if replaced else options.suite
            comparison.run(cwd)
        done.append(comparison)
    print("\nDerivatives: the sum of the medians over all sizes; for the other tools also Pullback's time")
    print("divided by theirs, as geometric mean and worst.\n")
    print("| eval | valid | Pullback | manual | PyTorch | JAX | finite |")
    print("|---|---|---|---|---|---|---|")
    for comparison in done:
        print(comparison.summary())
    for comparison in done:
        for name, reason in comparison.missing.items():
            print(f"\n{comparison.name}: {name} was left out from {reason}")
    if options.json:
        rows = [row for comparison in done for row in comparison.rows]
        missing = {comparison.name: comparison.missing for comparison in done}
        text = json.dumps({"started": started, "rows": rows, "left_out": missing}, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
