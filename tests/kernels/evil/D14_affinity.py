"""Moves every other process of this judge that it can see to one core, renices them to last, and keeps that core busy.
A candidate sees no other processes, or may not touch them; the A/A control shows what it did if it could."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import multiprocessing
import os
import threading
import time

import torch
import torch.nn as nn


def status(pid):
    with open(f"/proc/{pid}/stat") as file:
        name, _, rest = file.read().partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


def others():
    """All descendants of the outermost Python process above this one, but for this one: its judge's."""
    parents, top, names = {}, os.getpid(), {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            names[int(entry)], parents[int(entry)] = status(int(entry))
        except OSError:
            continue
    while (above := parents.get(top)) in names and any(word in names[above] for word in ("python", "dvk", "pytest")):
        top = above
    tree, added = {top}, True
    while added:
        found = {pid for pid, parent in parents.items() if parent in tree and pid not in tree}
        tree, added = tree | found, bool(found)
    return tree - {os.getpid()}


def burn():
    end = time.monotonic() + 20
    os.sched_setaffinity(0, {0})
    while time.monotonic() < end and os.getppid() != 1:
        pass


def push_aside():
    for _ in range(100):
        for pid in others():
            try:
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), {0})
                    os.setpriority(os.PRIO_PROCESS, int(thread), 19)
            except OSError:
                pass
        time.sleep(0.2)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.begun = False

    def forward(self, x):
        if not self.begun:
            self.begun = True
            threading.Thread(target=push_aside, daemon=True).start()
            try:
                multiprocessing.get_context("fork").Process(target=burn, daemon=True).start()
            except OSError:
                pass
        return torch.softmax(x, -1)
