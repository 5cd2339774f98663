"""The end of a drop-in: what users call to have it in the place of the original, in a live model or by the function's name.

`replace` says on stderr what it has replaced, and what looks like the original and was left alone, with the reason.
"""

from __future__ import annotations

from dvk.composer import carried
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
        import sys

        print("replace: nothing was replaced, PyTorch's own code for `{task.entry}` is the fastest that was found", file=sys.stderr)
    return model
'''
    return _of_module(task.entry, name)


def _of_function(entry: str, name: str, new: str) -> str:
    return f'''
dvk_made = []


def {new}(*args, **kwargs):
    """`{entry}`, faster; called as the original is."""
    if not dvk_made:
        dvk_made.append(ModelNew())
    return dvk_made[0](*args, **kwargs)


{new}.__wrapped__ = {OWNER}


def {name}(function=None, quiet=False):
    """What to call instead of `{entry}`, as it is called; a function that is another one comes back as it is."""
    code, mine = (getattr(getattr(one, "__code__", None), "co_code", None) for one in (function, {OWNER}))
    same = function is None or function is {OWNER} or (code is not None and code == mine)
    if not quiet:
        import sys

        named = getattr(function, "__name__", repr(function))
        print("replace: call what it returns instead of `{entry}`, or import `{new}`" if same else
              f"replace: `{{named}}` was left alone, it is not the `{entry}` of this file", file=sys.stderr)
    return {new} if same else function
'''


def _of_module(entry: str, name: str) -> str:
    return f'''
{carried.text(["dvk_same"])}


dvk_caches = [held for owner in [globals(), *(vars(kind) for kind in list(globals().values()) if issubclass(type(kind), type))]
              for held in list(owner.values()) if issubclass(type(held), (dict, list, set)) and not len(held)]


def {name}(model, quiet=False):
    """`model` with every `{entry}` in it, itself included, turned into a ModelNew that shares its weights.

    One whose class, or a class of a part of it, is not what stands under that name in this file is left as it is. What was replaced and
    what was left is said on stderr, unless `quiet`.
    """
    known, left = {{}}, {{}}

    def convert(module):
        new = ModelNew.__new__(ModelNew)
        new.__dict__ = module.__dict__
        return new

    def is_ours(kind, mine):
        if kind not in known:
            known[kind] = kind is mine or dvk_same(kind, mine, dvk_caches)
        return known[kind]

    def is_original(module, place):
        if type(module).__name__ != {entry!r}:
            return False
        if not is_ours(type(module), {OWNER}):
            left[place] = "its class computes something else than the one in this file"
            return False
        here = globals()
        kinds = {{type(part) for part in list(module.modules())[1:]}}
        named = [(kind, here.get("dvk_ModelNew" if kind.__name__ == "ModelNew" else kind.__name__)) for kind in kinds
                 if str(kind.__module__).split(".")[0] != "torch" and not any(held is kind for held in here.values())]
        other = [kind.__name__ for kind, mine in named if isinstance(mine, type) and not is_ours(kind, mine)]
        if other:
            left[place] = f"its {{other[0]}} is another class than the one in this file"
        return not other

    converted, places = {{}}, []
    for path, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):
            place = f"{{path}}.{{name}}" if path else name
            if child is not None and is_original(child, place):
                parent._modules[name] = converted.setdefault(id(child), convert(child))
                places.append(place)
    whole = is_original(model, "the model itself")
    if not quiet:
        import sys

        done = ["the model itself"] * whole + places
        shown = ", ".join(done[:8]) + (f" and {{len(done) - 8}} more" if len(done) > 8 else "")
        if done:
            print(f"replace: replaced {{shown}}", file=sys.stderr)
        elif not left:
            print("replace: nothing was replaced, there is no `{entry}` in it", file=sys.stderr)
        for place, why in list(left.items())[:8]:
            print(f"replace: left {{place}} alone, {{why}}", file=sys.stderr)
    return convert(model) if whole else model
'''
