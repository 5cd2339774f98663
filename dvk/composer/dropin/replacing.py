"""The end of a drop-in: functions that replace the original in a live model, or a function by name.

`replace` reports on stderr which modules it has replaced, and which look like the original but were left, with the reason (`convert`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.dropin.namespace import OWNER, names_bound_by
from dvk.records import Task


def text(task: Task, *, fused: bool = True) -> str:
    """The definitions; names that the file already has are kept.

    Args:
        fused: False if all work was left to PyTorch.
    """
    name, new = _names(task)
    if task.kind == "function":
        return _of_function(task.entry, name, new)
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

    An instance that computes with other code than this file's is left unchanged: a subclass, a class with other code, functions or
    globals, a patched one. Unless `quiet`, stderr lists the replaced modules, and those that were left, with the reason.
    """
    return dvk_replaced(model, ModelNew, {OWNER}, globals(), dvk_caches, quiet)
'''


def _names(task: Task) -> tuple[str, str]:
    """The definitions that patch a live module or provide the function, and the function called instead of the original."""
    bound = names_bound_by(task.source)
    return (
        "dvk_replace" if "replace" in bound else "replace",
        f"dvk_{task.entry}" if f"{task.entry}_new" in bound else f"{task.entry}_new",
    )


def used(task: Task, source: str, arguments: Sequence[str] = ()) -> tuple[str, str]:
    """Usage of a drop-in, as one line for people and as lines of Python. Candidates of a language model may define `ModelNew` alone.

    Args:
        source: text of the drop-in.
        arguments: parameter names of a function; if unknown, those of its tensors.
    """
    there, (name, new) = names_bound_by(source), _names(task)
    if task.kind == "function":
        given = (
            ", ".join(
                arguments or dict.fromkeys(spec.name.partition(".")[0] for spec in task.inputs)
            )
            or "..."
        )
        how = (
            (f"from best import {new}", f"{new}({given})")
            if new in there
            else ("from best import ModelNew", f"ModelNew()({given})")
        )
        return (
            f"{how[0]}; {how[1]} is {task.entry}({given})",
            f"{how[0]}\n\n{how[1]}  # called as {task.entry} is",
        )
    made = f"model = ModelNew(...)  # constructor and state_dict of {task.entry}"
    if name not in there:
        return "from best import ModelNew", f"from best import ModelNew\n\n{made}"
    return (
        f"from best import ModelNew, or {name}(model)",
        f"from best import ModelNew, {name}\n\n{made}\noptimized = {name}(model)  # or patch a live module",
    )


def _of_function(entry: str, name: str, new: str) -> str:
    return f'''
dvk_instances, dvk_caches = [], dvk_empty(globals())


def {new}(*args, **kwargs):
    """`{entry}`, faster; called as the original is."""
    if not dvk_instances:
        dvk_instances.append(ModelNew())
    return dvk_instances[0](*args, **kwargs)


{new}.__wrapped__ = {OWNER}
{new}.why = lambda *args, **kwargs: (dvk_instances or [ModelNew()])[0].dvk_why(*args, **kwargs)


def {name}(function=None, quiet=False):
    """The function to call instead of `{entry}`, with the same arguments; any other function is returned unchanged."""
    return dvk_instead(function, {new}, {OWNER}, dvk_caches, quiet)
'''
