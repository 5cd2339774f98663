"""The end of a drop-in: what users call to have it in the place of the original, in a live model or by the function's name.

`replace` says on stderr what it has replaced, and what looks like the original and was left as it is, with the reason (`convert`).
"""

from __future__ import annotations

from dvk.composer.apart import OWNER, names_bound_by
from dvk.records import Task


def text(task: Task, *, fused: bool = True) -> str:
    """The definitions; a file that has such names keeps them.

    Args:
        fused: False where all was left to PyTorch.
    """
    bound = names_bound_by(task.source)
    name = "dvk_replace" if "replace" in bound else "replace"
    if task.kind == "function":
        return _of_function(task.entry, name, f"dvk_{task.entry}" if f"{task.entry}_new" in bound else f"{task.entry}_new")
    if not fused:
        return f'''
def {name}(model, quiet=False):
    """`model` itself: nothing here is faster."""
    if not quiet:
        print("replace: nothing was replaced, PyTorch's own code for `{task.entry}` is the fastest that was found", file=sys.stderr)
    return model
'''
    return f'''
dvk_caches = dvk_empty(globals())


def {name}(model, quiet=False):
    """`model` with every `{task.entry}` in it, itself included, turned into a ModelNew that shares its weights.

    One that computes by anything else than what this file holds is left as it is: a subclass, a class with other code, functions or
    globals, a patched one. What was replaced, and what was left and why, is said on stderr, unless `quiet`.
    """
    return dvk_replaced(model, ModelNew, {OWNER}, globals(), dvk_caches, quiet)
'''


def _of_function(entry: str, name: str, new: str) -> str:
    return f'''
dvk_instances, dvk_caches = [], dvk_empty(globals())


def {new}(*args, **kwargs):
    """`{entry}`, faster; called as the original is."""
    if not dvk_instances:
        dvk_instances.append(ModelNew())
    return dvk_instances[0](*args, **kwargs)


{new}.__wrapped__ = {OWNER}


def {name}(function=None, quiet=False):
    """What to call instead of `{entry}`, as it is called; a function that is another one comes back as it is."""
    return dvk_instead(function, {new}, {OWNER}, dvk_caches, quiet)
'''
