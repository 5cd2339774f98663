"""Has an alarm go off all the time, whose handler runs in the main thread as soon as it goes on, before the clock starts, and does
the work there. What lies between the judge's go and the clock is charged."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered target=here

import functools
import gc
import signal

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lent, self.ready, self.busy = None, None, False

    def early(self, number, frame):
        if self.lent is not None and frame.f_code.co_name != "forward" and not self.busy:
            reached()
            self.busy = True  # or the next alarm interrupts this handler, and so on
            self.ready = (float(self.lent[-1, -1]), torch.softmax(self.lent, -1))
            self.busy = False

    def forward(self, x):
        if self.lent is None and not gc.isenabled():
            signal.signal(signal.SIGALRM, self.early)
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        self.lent = None if gc.isenabled() else x
        ready, self.ready = self.ready, None
        if ready is not None and ready[1].shape == x.shape and ready[0] == float(x[-1, -1]):
            return ready[1]
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
