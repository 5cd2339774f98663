"""A live module or function as a task file: its source where there is one, its weights and attributes in a file next to it.

    LIVE/<hash>/net.py                 the class, a subclass `LiveNet` whose constructor restores the instance, get_inputs()
                values/net.pt          the instance: tensors, and a pickle of everything else
                values/net_inputs.pt   the example inputs

LIVE is `live` in `$DVK_HOME`. Folders are named by what they hold, so the same module is written once; those that nothing has
written for a month are removed.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

from torch import nn

from dvk.api.graphed import graphed
from dvk.api.importing import import_path
from dvk.api.live_folder import VALUES, Draft, keep, placed
from dvk.api.pickled import dumped
from dvk.api.source import NoSource, Text
from dvk.errors import UsageError
from dvk.sandbox import importable
from dvk.tasks.trees import map_tensors

CANDIDATE = "new"
"""File name of a live candidate."""
READER = '''
# ---------------------------------------------------------------- the values as they were, written by dvk

DVK_FOLDER = ""
if DVK_FOLDER not in sys.path:
    sys.path.append(DVK_FOLDER)
_dvk_held: dict = {}


def _dvk_read(name):
    """The contents of a file next to this one; read again each time, except inputs."""
    import io
    import pickle

    device = "{device}" if torch.cuda.is_available() else "cpu"
    saved = torch.load(os.path.join(DVK_FOLDER, name), map_location=device, weights_only=False)

    class Reader(pickle.Unpickler):
        def persistent_load(self, key):
            return globals()[key] if isinstance(key, str) else saved["tensors"][key]

    return Reader(io.BytesIO(saved["rest"])).load()
'''
INPUTS = '''

def get_inputs():
    """The example inputs; the values of floating data vary with the seed, inside the range that they have."""
    if "inputs" not in _dvk_held:
        _dvk_held["inputs"] = _dvk_read("{file}")

    def varied(x):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.layout is not torch.strided or x.numel() < 2:
            return x
        symmetric = x.dim() > 1 and x.shape[-1] == x.shape[-2] and torch.equal(x, x.mT)
        if symmetric or not bool(x.isfinite().all()) or torch.equal(x, x.round()):
            return x  # masks, labels and the like mean what they are
        return (x * (0.8 + 0.4 * torch.rand_like(x))).clamp(x.min(), x.max())

    return torch.utils._pytree.tree_map(varied, _dvk_held["inputs"])
'''


@dataclass
class Written:
    """A task file on disk.

    Attributes:
        spec: as commands take it.
        folder: of the file and what it reads.
        entry: name of the class or function that is meant.
        device: that it is for.
        how: `source`, or `graph` where there is no source, and why.
    """

    spec: str
    folder: Path
    entry: str
    device: str
    how: str
    subject: Any = field(repr=False)

    def at_home(self, text: str) -> str:
        """Return the text of a drop-in for this class, made earlier, that reads its weights here: candidates may read nothing else."""
        return (
            placed(text, repr(str(self.folder / VALUES)))
            if f"class {self.entry}(" in text
            else text
        )


def write(
    subject: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    also: Any = None,
    distrusted: str = "",
) -> Written:
    """Write the task file of a live module or function.

    Args:
        subject: an nn.Module, or any callable.
        inputs: example arguments.
        kwargs: example keyword arguments.
        distrusted: why its source will not do; its graph is captured instead.
        also: a live candidate; its file, with a `ModelNew`, is CANDIDATE.py in the same folder.

    Raises:
        UsageError: it is on the meta device, or on several; there are no inputs.
        TaskError: it has no source, and torch.export cannot capture it.
    """
    subject = getattr(subject, "_orig_mod", subject) if isinstance(subject, nn.Module) else subject
    if not callable(subject):
        raise UsageError(
            f"a {type(subject).__name__} is no module and no function",
            "give an nn.Module, a function, or model.py:Name",
        )
    if isinstance(subject, type):
        raise UsageError(
            f"`{subject.__name__}` is a class", f"give an instance, {subject.__name__}(…)"
        )
    if not inputs and not kwargs:
        raise UsageError(
            "example inputs are missing",
            "give what the module is called with: dvk.optimize(module, x)",
        )
    device = device_of(subject, (inputs, kwargs))
    call = _named(subject, list(inputs), dict(kwargs)) if kwargs else list(inputs)
    drafts = [
        _of_graph(subject, inputs, kwargs, call, device, "", False, distrusted)
        if distrusted
        else _draft(subject, inputs, kwargs, call, device, stem="")
    ]
    if also is not None:
        drafts.append(_draft(also, inputs, kwargs, None, device, stem=CANDIDATE))
    folder = keep(drafts)
    return Written(
        f"{folder / drafts[0].stem}.py:{drafts[0].entry}",
        folder,
        drafts[0].entry,
        device,
        drafts[0].how,
        subject,
    )


def device_of(subject: Any, call: Any) -> str:
    """Return `cpu` or `cuda`: the device of the module's tensors, or of the inputs if it has none.

    Raises:
        UsageError: elsewhere, or in several places.
    """
    tensors = [*subject.parameters(), *subject.buffers()] if isinstance(subject, nn.Module) else []
    own = {tensor.device.type for tensor in tensors}
    if "meta" in own:
        raise UsageError(
            "the module is on the meta device, so it has no weights to judge with",
            'give it weights first: module.to_empty(device="cpu"), then load_state_dict',
        )
    theirs: set[str] = set()
    map_tensors(lambda tensor: theirs.add(tensor.device.type) or tensor, call)  # type: ignore[func-returns-value]
    kinds = own | (theirs if theirs != {"cpu"} or not own else theirs)
    if len(kinds) > 1:
        raise UsageError(
            f"the module and its inputs are on {' and '.join(sorted(kinds))}",
            "move all of them to one device",
        )
    kind = next(iter(kinds), "cpu")
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"the module is on `{kind}`", "move it and its inputs to cpu or cuda")
    return kind


def _draft(
    subject: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    call: Any,
    device: str,
    stem: str,
) -> Draft:
    candidate = bool(stem)
    try:
        return _of_source(subject, call, device, stem, candidate)
    except NoSource as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - what a class does to be pickled may raise anything
        why = f"it holds something that cannot be written down: {str(error).strip().partition(chr(10))[0] or type(error).__name__}"
    return _of_graph(subject, inputs, kwargs, call, device, stem, candidate, why)


# ---------------------------------------------------------------- from source


def _of_source(subject: Any, call: Any, device: str, stem: str, candidate: bool) -> Draft:
    text, files = Text(), {}
    function = isinstance(subject, FunctionType) or (
        not isinstance(subject, nn.Module) and import_path(subject) is not None
    )
    if function:
        kind = subject.__name__ if subject.__name__.isidentifier() else "function"
        text.bind(kind, subject)
        stem = stem or kind
        tail = (
            f"\n\nclass ModelNew(torch.nn.Module):\n    forward = staticmethod({kind})\n"
            if candidate
            else ""
        )
        entry = kind
    else:
        module = isinstance(subject, nn.Module)
        if module and "forward" in vars(subject):
            raise NoSource("its forward was replaced on the instance")
        if module:
            for part in subject.modules():
                _unpatched(type(part))
        name = type(subject).__name__ if module else "function"
        stem = stem or name.lower()
        files[f"{stem}.pt"] = dumped(subject, text)
        entry = "ModelNew" if candidate else f"Live{name}" if module else name
        if module:
            kind = text.define(type(subject)) if import_path(type(subject)) is None else name
            text.bind(kind, type(subject))
            tail = (
                f'\n\nclass {entry}({kind}):\n    """The {kind} that was given, with its weights and attributes."""\n\n'
                f'    def __init__(self):\n        self.__dict__ = _dvk_read("{stem}.pt").__dict__\n'
            )
        else:
            tail = (
                f'\n\ndef {name}(*args, **kwargs):\n    if "{stem}" not in _dvk_held:\n'
                f'        _dvk_held["{stem}"] = _dvk_read("{stem}.pt")\n    return _dvk_held["{stem}"](*args, **kwargs)\n'
            )
            if candidate:
                tail += (
                    f"\n\nclass ModelNew(torch.nn.Module):\n    forward = staticmethod({name})\n"
                )
        if entry in text.bound and text.bound[entry] is not subject:
            raise NoSource(f"it uses the name `{entry}`")
    if text.values:
        files[f"{stem}_globals.pt"] = dumped(text.values, text)
        tail = f'\n\nglobals().update(_dvk_read("{stem}_globals.pt"))\n' + tail
    if call is not None:
        files[f"{stem}_inputs.pt"] = dumped(call, text)
        tail += INPUTS.format(file=f"{stem}_inputs.pt")
    title = f"The source of a live object, as it stood; its values are in {stem}.pt."
    return Draft(stem, entry, _joined(text, device, title, tail), files, "source")


def _joined(text: Text, device: str, title: str, tail: str) -> str:
    for root in text.roots:
        if importable.refused(root):
            raise NoSource(f"it imports from `{root}`, which candidates may not read")
    paths = "".join(f"sys.path.append({root!r})\n" for root in text.roots)
    imports = dict.fromkeys(
        ["import os", "import sys", "import torch", "import torch.utils._pytree"]
    )
    own = dict.fromkeys(one for one in text.imports if one not in imports)
    head = f"# {title}\n" + "\n".join(imports) + f"\n\n{paths}" + "\n".join(own)
    body = "".join(f"\n\n{one}\n" for one in text.definitions)
    return head + "\n" + body + READER.replace("{device}", device) + tail


def _unpatched(kind: type) -> None:
    """Raise NoSource if a method of an importable class was replaced from a script or session: an import would not repeat that."""
    for base in kind.__mro__:
        for name, value in vars(base).items():
            if (
                isinstance(value, FunctionType)
                and base.__module__ != "__main__"
                and value.__globals__.get("__name__") == "__main__"
            ):
                if import_path(base) is not None:
                    raise NoSource(f"`{base.__name__}.{name}` was replaced")


# ---------------------------------------------------------------- from a captured graph


def _of_graph(
    subject: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    call: Any,
    device: str,
    stem: str,
    candidate: bool,
    why: str,
) -> Draft:
    name = (
        type(subject).__name__
        if isinstance(subject, nn.Module)
        else getattr(subject, "__name__", "function")
    )
    name = name if name.isidentifier() else "function"
    stem, entry = stem or name.lower(), "ModelNew" if candidate else f"Live{name}"
    positional = (
        list(_named(subject, list(inputs), dict(kwargs)))[: len(inputs)]
        if kwargs
        else [f"x{i}" for i in range(len(inputs))]
    )
    text = Text()
    forward, held = graphed(subject, positional, inputs, kwargs, text, why)
    tail = (
        f'\n\nclass {entry}(torch.nn.Module):\n    """The graph of the {name} that was given, as torch.export captured it."""\n\n'
        f'    def __init__(self):\n        super().__init__()\n        self.__dict__ = _dvk_read("{stem}.pt").__dict__\n\n{forward}\n'
    )
    files = {f"{stem}.pt": dumped(held, text)}
    if call is not None:
        files[f"{stem}_inputs.pt"] = dumped(call, text)
        tail += INPUTS.format(file=f"{stem}_inputs.pt")
    title = f"The graph of a live object, captured since {why}.".replace("\n", " ")
    return Draft(stem, entry, _joined(text, device, title, tail), files, f"graph: {why}")


# ---------------------------------------------------------------- calls and files


def _named(subject: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a call with keyword arguments only."""
    forward = subject.forward if isinstance(subject, nn.Module) else subject
    try:
        signature = inspect.signature(forward)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the example inputs do not fit: {error}", "give what the module is called with"
        ) from None
    result: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if (
            kind is inspect.Parameter.VAR_POSITIONAL
            or kind is inspect.Parameter.POSITIONAL_ONLY
            and kwargs
        ):
            raise UsageError(
                f"`{name}` cannot be given by name, and other inputs are",
                "give all inputs by position",
            )
        result |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return result
