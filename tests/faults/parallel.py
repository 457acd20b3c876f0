"""Faults of parallel runs, each many times (Linux): ``python -m tests.faults.parallel [TIMES [FAULT ...]]``.

A script tunes with two workers into a journal. The fault comes, the same script is called again, and then every trial
must have the value of its parameters, must have been evaluated as often as the journal says that it was started, and no
process of the run may be left.
"""

import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from kbo.report.record import Record
from tests.processes import PATIENCE, wait_until

TRIALS = 24

SCRIPT = """
import os, signal, sys, time
import kbo
from kbo.workers import remote

remote.LOADING = 600.0
FOLDER, FAULT, MOMENT = sys.argv[1], sys.argv[2], int(sys.argv[3])

def objective(x, trial):
    with open(FOLDER + "/evaluations", "a") as file:
        file.write(f"{trial.number}\\n")
    if trial.number == MOMENT:
        if FAULT == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if FAULT == "os._exit":
            os._exit(1)
        if FAULT == "hanging trial":
            pow(3, 10**9)
    if FAULT == "leak of 4 GB":
        globals().setdefault("leaked", []).append(bytes(4_000_000_000 // 24))
        time.sleep(0.2)
    time.sleep(0.05)
    return (x[0] - 0.3) ** 2

workers = kbo.Processes(2, trials_each=2 if FAULT == "leak of 4 GB" else None)
timeout = 2.0 if FAULT == "hanging trial" else None
journal = FOLDER + "/disk/run.jsonl"
print(kbo.minimize(objective, [(0.0, 1.0)], 24, workers=workers, timeout=timeout, journal=journal))
"""


def processes(mark):
    """Return the processes that have a mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def once(fault, rng, folder):
    """Run the script with a fault; return a description of what went wrong, and the message that the user saw."""
    mark = f"KBO_FAULT={uuid.uuid4()}"
    moment = rng.randrange(TRIALS)
    disk = folder / "disk"
    disk.mkdir()
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, folder / "script.py", folder, fault, str(moment)]
    options = {"env": dict([*os.environ.items(), mark.split("=")]), "stderr": subprocess.STDOUT}
    if fault == "full disk":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4096", "tmpfs", disk], check=True)
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, **options)
        if fault in ("kill -9 of a worker", "kill -9 of the parent", "Ctrl-C"):
            while n_ended(disk) < moment and process.poll() is None:
                time.sleep(0.02)
            time.sleep(rng.random() * 0.2)
            if fault == "kill -9 of a worker":
                victims = [pid for pid in processes(mark) if pid != process.pid]
                if victims:
                    os.kill(rng.choice(victims), signal.SIGKILL)
            else:
                process.send_signal(signal.SIGINT if fault == "Ctrl-C" else signal.SIGKILL)
        process.wait(PATIENCE)
        wait_until(lambda: not processes(mark), lambda: "processes are left")
        message = log.read_text()
        if fault == "full disk":
            subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        subprocess.run(command, stdout=output, timeout=PATIENCE, **options)
    wrong = verdict(disk, folder, fault, moment)
    if fault == "full disk":
        subprocess.run(["umount", disk], check=True)
    return wrong, message


def n_ended(disk):
    journal = disk / "run.jsonl"
    return journal.read_text().count('"event":"tell"') if journal.exists() else 0


def verdict(disk, folder, fault, moment):
    """Return what is wrong with the finished run."""
    trials = Record.of(disk / "run.jsonl").trials
    evaluated = collections.Counter(map(int, (folder / "evaluations").read_text().split()))
    wrong = []
    for trial in trials:
        expected = "complete"
        if fault in ("segfault", "os._exit", "hanging trial") and trial.number == moment:
            expected = "failed"
        if trial.status != expected:
            wrong.append(f"trial {trial.number} is {trial.status} ({trial.failure})")
        if trial.value is not None and trial.value != (trial.params[0] - 0.3) ** 2:
            wrong.append(f"trial {trial.number} has the value of another")
        # A trial may be chosen and never begun, so it is evaluated less often than started.
        n_evaluations = evaluated[trial.number]
        if n_evaluations > trial.starts or (trial.value is not None and not n_evaluations):
            wrong.append(
                f"trial {trial.number}: {n_evaluations} evaluations, {trial.starts} starts"
            )
    if len(trials) != TRIALS:
        wrong.append(f"{len(trials)} trials")
    return wrong


FAULTS = (
    "kill -9 of a worker",
    "kill -9 of the parent",
    "Ctrl-C",
    "full disk",
    "hanging trial",
    "leak of 4 GB",
    "segfault",
    "os._exit",
)


def main(times, faults):
    """Print a table of faults and what was wrong after them."""
    print("| fault | times | wrong |\n|---|---|---|")
    for fault in faults:
        wrong = []
        for seed in range(times):
            with tempfile.TemporaryDirectory() as folder:
                wrong += once(fault, random.Random(seed), Path(folder))[0]
        print(f"| {fault} | {times} | {'; '.join(wrong) or 'nothing'} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:] or FAULTS)
