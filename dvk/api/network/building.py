"""A whole model by name, with random weights: `transformers:CLASS`, `timm:NAME`, `diffusers:CLASS`, `path/to/file.py:factory`.

Nothing is fetched: weights are drawn with seed 0 from the configuration. Classes of libraries and the user's own file run in the calling
process, as a live module of the Python API does.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk.errors import DvkError, TaskError, UsageError
from dvk.tasks.sourcefile import blame, execute
from dvk.tasks.specs import parse_dtype
from dvk.tasks.state import seeded

SEED = 0
LIBRARIES = ("transformers", "timm", "diffusers")
HINT = "give transformers:CLASS, timm:NAME, diffusers:CLASS or path/to/file.py:factory"


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """How to build a model; plain data, so that another process can build the same."""

    spec: str
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    """`--input` specs; empty: the inputs that the model's configuration says."""
    dtype: str | None = None
    device: str = "cpu"
    training: bool = False
    """In train mode; else in eval mode."""

    @property
    def name(self) -> str:
        """A name for folders and reports."""
        return self.spec.rpartition("/")[2].replace(".py", "").rpartition(":")[2]

    def absolute(self) -> ModelSource:
        """The same for a process with another working folder."""
        where, _, name = self.spec.rpartition(":")
        if not where.endswith(".py"):
            return self
        return replace(self, spec=f"{Path(where).absolute()}:{name}")


@dataclass
class Network:
    """A built model; `namespace` holds the globals of the user's file, empty for a library's class."""

    model: nn.Module
    source: ModelSource
    namespace: dict[str, Any]


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read the model's configuration: JSON files and `key=value` pairs, later ones win; `a.b=1` sets a key of a nested configuration.

    Raises:
        UsageError: no such file, no JSON object, or no pair.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        if text.endswith(".json") and "=" not in text:
            settings = _merged(settings, _read(Path(text)))
            continue
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise UsageError(
                f"`--config {text}` is no configuration of a model",
                "give a file that ends in .json, or key=value, e.g. --config hidden_size=256",
            )
        nested: Any = _value(value.strip())
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        settings = _merged(settings, nested)
    return settings


def build(source: ModelSource) -> Network:
    """Build the model in its mode, on its device and in its dtype.

    Raises:
        UsageError: its library is not installed, it has no such class, or the configuration is not valid.
        TaskError: building it failed.
    """
    where, sign, name = source.spec.rpartition(":")
    if not sign or not name:
        raise UsageError(f"no model: `{source.spec}`", HINT)
    dtype = getattr(torch, parse_dtype(source.dtype)) if source.dtype else None
    namespace: dict[str, Any] = {}
    try:
        with seeded(SEED):
            if where in LIBRARIES:
                model = _placed(lambda: MAKERS[where](name, source.settings), source.device)
            elif where.endswith(".py"):
                namespace = _executed(Path(where))
                model = _of_file(namespace, where, name, source.settings)
            else:
                raise UsageError(f"no model: `{source.spec}`", HINT)
    except DvkError:
        raise
    except Exception as error:  # a library's constructor may raise anything
        hint = "correct the model's configuration: --config FILE.json or key=value"
        raise TaskError(f"`{source.spec}` cannot be built: {blame(error)}", hint) from error
    if not isinstance(model, nn.Module):
        problem = f"`{source.spec}` gave a {type(model).__name__}"
        raise UsageError(problem, "name something that returns an nn.Module")
    return Network(
        model.train(source.training).to(device=source.device, dtype=dtype), source, namespace
    )


def _placed(make: Callable[[], Any], device: str) -> Any:
    """Make a model on its device, where random weights of billions take seconds; on the CPU if its constructor cannot."""
    if device != "cpu":
        try:
            with torch.device(device):
                return make()
        except DvkError:
            raise
        except Exception:  # noqa: BLE001 - a constructor may compute with NumPy; one that fails on the CPU as well is reported
            torch.manual_seed(SEED)
    return make()


# ---------------------------------------------------------------- libraries


def _of_transformers(name: str, settings: dict[str, Any]) -> Any:
    library = _library("transformers")
    kind = _class(library, "transformers", name)
    made = getattr(kind, "config_class", None)
    if made is None or not issubclass(kind, nn.Module):
        problem = f"transformers.{name} is no model that a configuration makes"
        raise UsageError(
            problem, "name the architecture itself, e.g. transformers:LlamaForCausalLM"
        )
    known = set(made().to_dict()) | set(inspect.signature(made.__init__).parameters)
    _refuse_unknown(f"transformers.{made.__name__}", settings, known)
    return kind(made(**settings))


def _of_timm(name: str, settings: dict[str, Any]) -> Any:
    library = _library("timm")
    if not library.is_model(name):
        near = difflib.get_close_matches(name, library.list_models(), 3)
        raise UsageError(f"timm has no model `{name}`", _nearest(near, "timm.list_models()"))
    return library.create_model(name, pretrained=False, **settings)


def _of_diffusers(name: str, settings: dict[str, Any]) -> Any:
    kind = _class(_library("diffusers"), "diffusers", name)
    if not issubclass(kind, nn.Module):
        problem = f"diffusers.{name} is no model"
        raise UsageError(problem, "name one of its networks, e.g. diffusers:UNet2DModel")
    _refuse_unknown(f"diffusers.{name}", settings, set(inspect.signature(kind.__init__).parameters))
    return kind(**settings)


MAKERS = {"transformers": _of_transformers, "timm": _of_timm, "diffusers": _of_diffusers}


def _library(name: str) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        return importlib.import_module(name)
    except Exception as error:  # an installed library may not fit the installed torch
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            hint = f"pip install {name}, or pip install 'dvk[models]'"
            raise UsageError(f"{name} is not installed", hint) from None
        hint = f"install a version of {name} that fits torch {torch.__version__}"
        raise UsageError(f"{name} cannot be imported: {blame(error)}", hint) from error


def _class(library: Any, where: str, name: str) -> Any:
    try:
        candidate = getattr(library, name, None)
    except Exception as error:  # lazily imported: what it needs may be missing
        hint = f"install what {where} asks for"
        raise UsageError(f"{where}.{name} cannot be imported: {blame(error)}", hint) from error
    if not isinstance(candidate, type):
        near = difflib.get_close_matches(name, dir(library), 3)
        raise UsageError(f"{where} has no class `{name}`", _nearest(near, f"dir({where})"))
    return candidate


def _refuse_unknown(owner: str, settings: dict[str, Any], known: set[str]) -> None:
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, 3)
            raise UsageError(f"{owner} has no setting `{key}`", _nearest(near, "its documentation"))


def _nearest(near: Sequence[str], where: str) -> str:
    return f"did you mean {' or '.join(near)}?" if near else f"see {where}"


# ---------------------------------------------------------------- files


def _executed(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read `{path}`: {error}", HINT) from None
    return vars(execute(text, path=str(path.resolve())))


def _of_file(namespace: dict[str, Any], where: str, name: str, settings: dict[str, Any]) -> Any:
    made = namespace.get(name)
    if isinstance(made, nn.Module):
        return made
    if not callable(made):
        raise UsageError(
            f"`{where}` defines no `{name}`", "name a function or class that makes the model"
        )
    return made(**settings)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}", "give a JSON file") from None
    except ValueError as error:
        raise UsageError(f"`{path}` is not JSON: {error}", "correct it") from None
    if not isinstance(content, dict):
        raise UsageError(f"`{path}` holds no JSON object", "write the settings as an object")
    return content


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result
