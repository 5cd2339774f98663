"""Sends SIGSTOP and SIGCONT in quick turn to its judge's other processes, so that they lose time during their own calls.
A candidate sees no process but its own, or may not signal them; the A/A control shows what it did if it could."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import os
import signal
import threading
import time

import torch
import torch.nn as nn

busy = False


def parents():
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            found[int(entry)] = (name, int(rest.split()[1]))
        except OSError:
            continue
    return found


def rivals():
    """Processes below the outermost Python process above this one that are neither above this one nor below it."""
    family, above = parents(), [os.getpid()]
    while (parent := family.get(above[-1], ("", 0))[1]) in family and "python" in family[parent][0]:
        above.append(parent)
    tree, added = {above[-1]}, True
    while added:
        found = {pid for pid, (_, parent) in family.items() if parent in tree and pid not in tree and pid != os.getpid()}
        tree, added = tree | found, bool(found)
    return tree - set(above)


def harass():
    end, targets, looked = time.monotonic() + 20, set(), 0.0
    while time.monotonic() < end:
        if time.monotonic() - looked > 0.2:
            targets, looked = rivals(), time.monotonic()
        for number, pause in ((signal.SIGSTOP, 0.003), (signal.SIGCONT, 0.0005)):
            for pid in targets:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
            time.sleep(0 if busy else pause)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.begun = False

    def forward(self, x):
        global busy
        busy = True
        if not self.begun:
            self.begun = True
            threading.Thread(target=harass, daemon=True).start()
        y = torch.softmax(x, -1)
        busy = False
        return y
