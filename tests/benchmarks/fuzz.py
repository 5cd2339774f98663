"""Does the judge survive whatever it is given?

Judges candidates that are cut short, mutated, no text at all, or out to harm: fork bombs, memory hogs, signal games, endless
loops, giant outputs, files everywhere. A process apart judges them; afterwards nothing of theirs may be left on the machine.

    python -m tests.benchmarks.fuzz --count 500 [--seed 1] [--workers 2]

Prints each kind's outcome and the errors, as one JSON value; exit 1 if there are any.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dvk import backends, tasks
from dvk.config import Config
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.records import Candidate
from dvk.sandbox import proctree

FILES = Path(__file__).parent.parent / "harness" / "files"
MARK = "dvk-fuzz-"
CONFIG = Config.model_validate(
    {
        "limits": {
            "memory_bytes": 1 << 30,
            "num_processes": 64,
            "output_bytes": 4096,
            "wall_s": 60,
        },
        "judge": {"candidate_s": 4.0, "num_seeds": 1},
    }
)
LINGER_S = 10.0
"""Zygotes and wardens may take so long to end after the judging process."""

MODULE = """import atexit, ctypes, mmap, os, resource, signal, socket, subprocess, sys, tempfile, threading, time
import torch
import torch.nn as nn

def attack():
{attack}

{at_import}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {at_init}

    def forward(self, x):
        {at_call}
        return {answer}
"""
ANSWER = "torch.relu(x) * 2 + 1"
"""The result of `affine.py`."""

FORKS = [
    "while True: os.fork()",
    "for _ in range({n}):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(1000)",
    "for _ in range({n}): subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "for _ in range({n}): threading.Thread(target=time.sleep, args=(1000,), daemon={flag}).start()",
    "def split():\n    while True:\n        if os.fork() == 0:\n            if os.fork() == 0: split()\n            os._exit(0)\nsplit()",
    "pid = os.fork()\nif pid == 0:\n    os.setsid()\n    while True: pass",
    "subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP INT; while :; do sleep 1 & done'])",
]
MEMORY = [
    "held = []\nwhile True: held.append(bytearray({n} << 16))",
    "held = [torch.ones({n} << 20) for _ in range(64)]",
    "m = mmap.mmap(-1, {n} << 26)\nfor i in range(0, len(m), 4096): m[i] = 1",
    "x = 'x'\nwhile True: x += x",
    "d = {{}}\nfor i in range(10 ** 10): d[i] = [i] * {n}",
    "fd = os.memfd_create('m')\nwhile True: os.write(fd, b'x' * (1 << 20))",
    "ctypes.memset(ctypes.CDLL(None).malloc(ctypes.c_size_t({n} << 24)), 1, {n} << 24)",
]
SIGNALS = [
    "os.kill(os.getpid(), {signal})",
    "os.kill(os.getppid(), {signal})",
    "os.kill(0, {signal})",
    "os.kill(-1, {signal})",
    "os.killpg(os.getpgid(0), {signal})",
    "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: time.sleep(1)",
    "signal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)",
    "signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)",
    "for pid in range(1, 400):\n    try: os.kill(pid, {signal})\n    except OSError: pass",
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "def late():\n    time.sleep({n} / 100)\n    os.kill(os.getpid(), {signal})\nthreading.Thread(target=late).start()",
]
OUTPUTS = [
    "while True: print('z' * {n})",
    "os.write(1, os.urandom({n} << 12))",
    "sys.stderr.write('\\x00\\x1b[2J' * {n})",
    "raise ValueError('v' * ({n} << 16))",
    "for fd in range(3, 256):\n    try: os.write(fd, b'x' * {n})\n    except OSError: pass",
    "for fd in range({m}, 256):\n    try: os.close(fd)\n    except OSError: pass",
    "os.closerange(0, 1024)",
    "class Loud(Exception):\n    def __str__(self): return self.__str__()\nraise Loud()",
    "sys.stdout = sys.stderr = None",
]
FILES_EVERYWHERE = [
    "for f in ('/tmp', '/var/tmp', '/dev/shm', os.path.expanduser('~'), os.getcwd(), tempfile.gettempdir(), '/'):\n"
    "    try: open(os.path.join(f, '{mark}{n}'), 'w').write('x')\n    except OSError: pass",
    "f = open(os.path.join(tempfile.gettempdir(), '{mark}'), 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
    "for i in range(100000): open(os.path.join(tempfile.gettempdir(), f'{mark}{{i}}'), 'w').close()",
    "p = tempfile.gettempdir()\nfor i in range(500):\n    p = os.path.join(p, 'd')\n    os.mkdir(p)",
    "os.chmod(tempfile.gettempdir(), 0)",
    "os.mkfifo(os.path.join(tempfile.gettempdir(), 'f'))\nos.symlink('/', os.path.join(tempfile.gettempdir(), 'l'))",
    "s = socket.socket(socket.AF_UNIX)\ns.bind(os.path.join(tempfile.gettempdir(), 's'))",
    "os.rename(tempfile.gettempdir(), '/tmp/{mark}moved')",
    "ctypes.CDLL(None).shmget(0x0D5BF022, 4096, 0o1666)",
]
ENDS = [
    "os._exit({m})",
    "sys.exit({n})",
    "os.abort()",
    "ctypes.string_at(0)",
    "raise KeyboardInterrupt",
    "raise SystemExit('no')",
    "while True: pass",
    "time.sleep(10 ** 6)",
    "threading.Lock().acquire() and threading.Event().wait()",
    "sys.setrecursionlimit(10 ** 9)\ndef deep(n): return deep(n + 1)\ndeep(0)",
    "atexit.register(lambda: time.sleep(1000))",
    "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "torch.set_num_threads({n})",
    "torch.set_default_dtype(torch.float64)",
    "os.execv('/bin/sleep', ['sleep', '1000'])",
    "del sys.modules['torch']",
    "sys.modules.clear()",
    "import gc\nfor o in gc.get_objects():\n"
    "    if isinstance(o, dict) and '__name__' not in o and len(o) > {n}: o.clear()",
    "sys.settrace(lambda *a: 1 / 0)",
    "torch.Tensor.data_ptr = lambda self: {n}",
    "torch.nn.Module.__call__ = lambda *a, **k: None",
    "ctypes.memset(id(None), 0, 16)",
    "os.chdir('/')",
    "os.environ.clear()",
    "time.perf_counter_ns = lambda: {n}",
]
ANSWERS = [
    "None",
    "x",
    "x[0]",
    "x.double() * 1.5",
    "torch.empty(1 << {m}, 1 << 14)",
    "torch.zeros(1).expand(1 << 30, 1 << 10)",
    "[x] * 100000",
    "{{'a': x}}",
    "x.to_sparse()",
    "x.to('meta')",
    "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
    "(y := [], y.append(y), y)[2]",
    "'x' * ({n} << 16)",
    "lambda: x",
    "iter([x])",
    "torch.nn.Parameter(x)",
    "x.as_strided((1 << 20, 1 << 20), (0, 0))",
    "float('nan')",
    "torch.empty(0)",
    "type('T', (torch.Tensor,), {{}})(x)",
    "10 ** {n}",
    "torch.view_as_complex(x[:, :2].contiguous())",
]


def _truncated(draw: random.Random) -> str:
    text = _honest(draw)
    return text[: draw.randrange(len(text))]


def _mutated(draw: random.Random) -> str:
    """A few lines, words or characters other than they were."""
    text = _honest(draw)
    for _ in range(draw.randint(1, 6)):
        lines, place = text.split("\n"), draw.randrange(max(1, len(text)))
        number = draw.randrange(len(lines))
        text = draw.choice(
            [
                lambda: "\n".join(lines[:number] + lines[number + 1 :]),  # noqa: B023 - called at once
                lambda: "\n".join([*lines[: number + 1], *lines[number:]]),  # noqa: B023
                lambda: "\n".join(
                    [
                        *lines[:number],  # noqa: B023
                        " " * draw.randrange(9) + lines[number].strip(),  # noqa: B023
                        *lines[number + 1 :],  # noqa: B023
                    ]
                ),
                lambda: (
                    text[:place]  # noqa: B023
                    + draw.choice("()[]{}:,.+-*/%=<>!\"'\\ \t\n0189xyzé\0")
                    + text[place + 1 :]  # noqa: B023
                ),
                lambda: text[:place] + text[place + draw.randrange(20) :],  # noqa: B023
                lambda: text.replace(  # noqa: B023
                    draw.choice(["x", "1", "torch", "self", "float"]),
                    draw.choice(["y", "-1", "", "int"]),
                    1,
                ),
            ]
        )()
    return text


def _binary(draw: random.Random) -> str:
    data = bytes(draw.randrange(256) for _ in range(draw.choice([0, 1, 3, 100, 5000])))
    return draw.choice(
        [
            data.decode("latin-1"),
            data.decode("utf-8", "replace"),
            "\0" * len(data),
            "\N{GRINNING FACE}" * 500,
            "(" * 20_000,
            "x = " + "[" * 3000,
            "#" * (3 << 20),
            "\ufeff\r\r\n\x0c",
            "-" * 50_000 + "1",
        ]
    )


def _attack(texts: list[str]) -> Callable[[random.Random], str]:
    def make(draw: random.Random) -> str:
        text = _filled(draw.choice(texts), draw)
        place = draw.choice(["at_import", "at_init", "at_call", "thread"])
        call = "threading.Thread(target=attack).start()" if place == "thread" else "attack()"
        slots = dict.fromkeys(("at_import", "at_init", "at_call"), "pass") | {
            "at_init" if place == "thread" else place: call
        }
        return MODULE.format(
            attack="\n".join("    " + line for line in text.split("\n")), answer=ANSWER, **slots
        )

    return make


def _answers(draw: random.Random) -> str:
    slots = dict.fromkeys(("at_import", "at_init", "at_call"), "pass")
    return MODULE.format(attack="    pass", answer=_filled(draw.choice(ANSWERS), draw), **slots)


def _filled(text: str, draw: random.Random) -> str:
    return text.format(
        n=draw.choice([1, 7, 40, 300]),
        m=draw.randint(0, 9),
        mark=MARK,
        flag=draw.choice([True, False]),
        signal=draw.choice([1, 2, 3, 6, 9, 11, 14, 15, 18, 19, 20, 25, 31, 34]),
    )


def _honest(draw: random.Random) -> str:
    return draw.choice(
        [
            path.read_text()
            for path in sorted((FILES / "good").glob("*_affine.py"))
            if "cuda" not in path.name
        ]
    )


KINDS: dict[str, Callable[[random.Random], str]] = {
    "truncated": _truncated,
    "mutated": _mutated,
    "binary": _binary,
    "forks": _attack(FORKS),
    "memory": _attack(MEMORY),
    "signals": _attack(SIGNALS),
    "outputs": _attack(OUTPUTS),
    "files": _attack(FILES_EVERYWHERE),
    "ends": _attack(ENDS),
    "answers": _answers,
}


def fuzzed(count: int, seed: int) -> list[tuple[str, str]]:
    """(kind, source) of `count` candidates, the kinds in turn; equal seeds, equal candidates."""
    draw = random.Random(seed)
    names = list(KINDS)
    return [(names[i % len(names)], KINDS[names[i % len(names)]](draw)) for i in range(count)]


def judge(count: int, seed: int, workers: int) -> dict[str, Any]:
    """Outcomes of the cases, in this process."""
    task = tasks.load(str(FILES / "affine.py"), device="cpu", limits=CONFIG.limits)
    made = fuzzed(count, seed)
    before = len(os.listdir("/proc/self/fd"))
    seen: Counter[int] = Counter()
    became: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    slowest = 0.0
    jobs = [(task, Candidate(source=source, backend=backends.detect(source))) for _, source in made]
    for position, verdict in JudgeQueue[int](workers, CONFIG).map(jobs, JudgeSpec(tier="smoke")):
        seen[position] += 1
        became[made[position][0]][verdict.status.value] += 1
        slowest = max(slowest, verdict.seconds)
        if "--trace" in sys.argv:
            said = (verdict.error or "")[:150].replace("\n", " ")
            print(
                position,
                made[position][0],
                verdict.status.value,
                round(verdict.seconds, 1),
                said,
                file=sys.stderr,
                flush=True,
            )
    wrong = [f"candidate {i} has {seen[i]} verdicts" for i in range(count) if seen[i] != 1]
    left = len(os.listdir("/proc/self/fd")) - before
    if left > 8:  # a zygote or two
        wrong.append(f"{left} more files are open than before")
    return {"became": became, "wrong": wrong, "slowest_s": round(slowest, 1)}


def watched(count: int, seed: int, workers: int) -> dict[str, Any]:
    """Judge in a separate process; returns its report, and its traces."""
    proctree.prctl(proctree.PR_SET_CHILD_SUBREAPER, 1)  # this process reaps orphans
    shared = set(os.listdir("/dev/shm"))
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as temporary,
        tempfile.TemporaryDirectory(prefix="fuzz-home-") as home,
    ):
        env = {**os.environ, "TMPDIR": temporary, "DVK_HOME": home}
        command = [sys.executable, "-m", "tests.benchmarks.fuzz", "--judge"]
        command += ["--count", str(count), "--seed", str(seed), "--workers", str(workers)]
        command += ["--trace"] if "--trace" in sys.argv else []
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
        report: dict[str, Any] = (
            json.loads(done.stdout)
            if done.returncode == 0
            else {"wrong": [f"the judge ended with {done.returncode}"]}
        )
        limit = time.monotonic() + LINGER_S
        while (stray := _alive()) and time.monotonic() < limit:
            time.sleep(0.1)
        report["wrong"] += [f"process {pid} is left: {name}" for pid, name in stray.items()]
        report["wrong"] += [f"{name} is left in TMPDIR" for name in os.listdir(temporary)]
        report["wrong"] += [
            f"{name} is left in DVK_HOME" for name in os.listdir(home) if name != "cache"
        ]
        report["wrong"] += [
            f"/dev/shm/{name} is left"
            for name in set(os.listdir("/dev/shm")) - shared
            if MARK in name or "torch" in name
        ]
    places = ["/tmp", "/tmp/*", "/var/tmp", "/dev/shm", os.path.expanduser("~"), os.getcwd(), "/"]
    report["wrong"] += [
        f"{path} is left" for place in places for path in glob.glob(os.path.join(place, f"{MARK}*"))
    ]
    return {"count": count, "seed": seed, "seconds": round(time.monotonic() - began, 1), **report}


def _alive() -> dict[int, str]:
    """Processes below this one, by name; what has ended is waited for."""
    found = {}
    for pid in proctree.below(os.getpid()):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            pass
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200]
        except OSError:
            continue
    return found


def main() -> int:
    """Print the report; whether something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--judge", action="store_true", help="only judge, and leave the looking to another process"
    )
    parser.add_argument("--trace", action="store_true", help="a line a candidate on stderr")
    options = parser.parse_args()
    run = judge if options.judge else watched
    report = run(options.count, options.seed, options.workers)
    print(json.dumps(report, indent=None if options.judge else 1))
    return int(bool(report["wrong"]) and not options.judge)


if __name__ == "__main__":
    sys.exit(main())
