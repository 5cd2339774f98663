"""The kernel of a chunk's rows in the cross-entropy of a linear's result (`runtime.chunked_loss`): one read and one write of the logits.

A program reads a row twice, the second time from the cache: first the sums of exp and of the logits, then the gradient in their place.
"""

from __future__ import annotations

KERNEL = """\
@triton.jit
def dvk_loss_row(p, target, hit, lost, total, classes: tl.constexpr):
    # In place of logits their softmax, less 1 - smoothing at the target and smoothing / classes everywhere; -log p of the target, and the
    # sum of log p over all classes.
    row = tl.program_id(0).to(tl.int64)
    at = p + row * classes
    top = tl.full([4096], float("-inf"), tl.float32)
    sums = tl.zeros([4096], tl.float32)
    plain = tl.zeros([4096], tl.float32)
    for first in range(0, classes, 4096):
        k = first + tl.arange(0, 4096)
        z = tl.load(at + k, k < classes, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, z)
        base = tl.where(new == float("-inf"), 0.0, new)
        sums = sums * tl.exp(top - base) + tl.exp(z - base)
        plain += tl.where(k < classes, z, 0.0)
        top = new
    most = tl.max(top, 0)
    base = tl.where(most == float("-inf"), 0.0, most)
    log = base + tl.log(tl.sum(sums * tl.exp(top - base), 0))
    place = tl.load(target + row)
    own = tl.load(at + place).to(tl.float32)
    tl.store(lost + row, log - own)
    tl.store(total + row, tl.sum(plain, 0) - classes * log)
    share = tl.load(hit)
    even = (1.0 - share) / classes
    tl.debug_barrier()
    for first in range(0, classes, 4096):
        k = first + tl.arange(0, 4096)
        z = tl.load(at + k, k < classes, other=0.0).to(tl.float32)
        q = tl.exp(z - log) - even
        tl.store(at + k, tl.where(k == place, q - share, q), k < classes)
"""
LAUNCHER = "dvk_loss_rows = dvk_sized_launcher(dvk_loss_row, 8, 1)"
