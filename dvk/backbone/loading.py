"""Loads a transformers model and its tokenizer from a folder or the Hub, with actionable errors."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from dvk.backbone import Dialect
from dvk.config import BackboneConfig as Settings
from dvk.errors import MachineError, UsageError

CARD = "dvk.json"
"""In a model's folder: `{"dialect": …, "provenance": …}`; its presence marks a model that dvk made."""
FP32_PARAMETERS = 200_000_000
"""Up to this many parameters `auto` computes in fp32: such models are fast in it, and small models train badly in less."""

LORA_ALPHA = 32
"""The update of a LoRA adapter is scaled by this / rank."""
ANSWER_S = 5.0
"""Timeout of the Hub's first answer; its client would try for minutes."""

disable_progress_bars()  # the caller shows progress
transformers_logging.disable_progress_bar()


class Loaded(NamedTuple):
    """The model that a folder or a Hub name stands for."""

    model: Any
    tokenizer: Any
    card: dict[str, Any]
    """Contents of `dvk.json`; empty without one."""


def pick_device(wanted: str | None) -> torch.device:
    """The requested device, else a GPU if there is one.

    Raises:
        MachineError: the requested device does not exist.
    """
    device = torch.device(wanted or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        problem = f"no GPU that torch can use, though `{wanted}` was asked for"
        raise MachineError(problem, "use the device `cpu`, or install a CUDA build of torch")
    return device


def load(argument: str, settings: Settings, device: torch.device) -> Loaded:
    """Load weights and tokenizer, with LoRA around them if a folder holds adapters or the settings ask for it.

    Args:
        argument: a folder, or a name such as `Qwen/Qwen3-8B`.

    Raises:
        UsageError: no such folder or model, a folder without a model, a gated model, a model that is not a causal LM.
        MachineError: the Hub cannot be reached and the model is not in its cache.
    """
    folder = Path(argument).expanduser()
    local = _is_folder(argument)
    source = str(folder) if local else argument
    offline = False
    try:
        if has_adapters(argument):
            base = json.loads((folder / "adapter_config.json").read_text())[
                "base_model_name_or_path"
            ]
            model = adapters_on(
                load(base, settings.model_copy(update={"lora_rank": 0}), device).model, folder
            )
        else:
            model = _weights(source, settings, device, offline := not local and _offline(argument))
            if settings.lora_rank:
                model = new_adapters(model, settings.lora_rank)
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=offline)
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise _explained(error, argument) from error
    return Loaded(model, tokenizer, read_card(folder) if local else {})


def has_adapters(argument: str) -> bool:
    """Whether it is a local folder of adapters instead of whole weights."""
    return (Path(argument).expanduser() / "adapter_config.json").is_file()


def folder_of(argument: str, suffixes: tuple[str, ...], otherwise: str) -> Path:
    """The folder itself, or for a name on the Hub a folder with its files of these endings; those `by_plain_algorithms`, too, if no weights
    do.

    Raises:
        UsageError, MachineError: as `load`.
    """
    if _is_folder(argument):
        return Path(argument).expanduser()
    wanted = [f"*{suffix}" for suffix in suffixes]
    try:
        offline = _offline(argument)
        path = Path(snapshot_download(argument, allow_patterns=wanted, local_files_only=offline))
        if not any(path.glob(wanted[0])):
            path = Path(
                snapshot_download(
                    argument, allow_patterns=[*wanted, f"*{otherwise}"], local_files_only=offline
                )
            )
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise _explained(error, argument) from error
    return path


def _offline(name: str) -> bool:
    """Whether a model of the Hub has to come from the local cache, since the Hub does not answer; logs that, or the download."""
    if constants.HF_HUB_OFFLINE:
        return True
    cached = isinstance(try_to_load_from_cache(name, "config.json"), str)
    try:
        asked = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        urllib.request.urlopen(asked, timeout=ANSWER_S).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except (OSError, ValueError):
        if cached:
            print(
                f"the Hub does not answer: `{name}` is taken from the local cache", file=sys.stderr
            )
        return True
    if not cached:
        print(f"fetching `{name}` from the Hub", file=sys.stderr)
    return False


def _is_folder(argument: str) -> bool:
    """Whether it is a local model folder; else it is a name.

    Raises:
        UsageError: it can be neither.
    """
    folder = Path(argument).expanduser()
    local = folder.is_dir()
    if not local and _is_path(argument):
        raise UsageError(
            f"no model folder at `{argument}`",
            "check the path, or give a name on the Hub such as `Qwen/Qwen3-8B`",
        )
    if local and not any(
        (folder / name).is_file() for name in ("config.json", "adapter_config.json")
    ):
        problem = f"no model in `{folder}`: it has neither config.json nor adapter_config.json"
        raise UsageError(problem, "give the folder that save_pretrained wrote")
    return local


def _is_path(argument: str) -> bool:
    return argument.startswith(("/", ".", "~")) or argument.count("/") > 1 or not argument


def read_card(folder: Path) -> dict[str, Any]:
    """The folder's `dvk.json`, empty if it has none.

    Raises:
        UsageError: it is not JSON, or its dialect is unknown.
    """
    path = folder / CARD
    if not path.is_file():
        return {}
    try:
        card: dict[str, Any] = json.loads(path.read_text())
        dialects = Dialect.__args__  # type: ignore[attr-defined]
        if card.get("dialect") not in dialects:
            raise ValueError(
                f"its dialect is {card.get('dialect')!r}, not one of {', '.join(dialects)}"
            )
    except ValueError as error:
        raise UsageError(
            f"cannot read `{path}`: {error}", "write the model's folder again"
        ) from None
    return card


def _weights(source: str, settings: Settings, device: torch.device, offline: bool) -> Any:
    config = AutoConfig.from_pretrained(source, local_files_only=offline)
    dtype = choose_dtype(settings.dtype, config)
    model = AutoModelForCausalLM.from_pretrained(
        source, config=config, dtype=dtype, local_files_only=offline
    )
    return model.eval().to(device=device)


def choose_dtype(wanted: str, config: Any) -> torch.dtype:
    """The dtype of that name; for `auto`, by the configuration's number of parameters."""
    if wanted != "auto":
        dtype: torch.dtype = getattr(torch, wanted)
        return dtype
    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    return torch.float32 if size <= FP32_PARAMETERS else torch.bfloat16


def new_adapters(model: Any, rank: int) -> Any:
    """The model with fresh LoRA adapters (Hu et al. 2021) around every linear layer except the head, the rest frozen."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=LORA_ALPHA,
        target_modules="all-linear",
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with _without_renaming_notes():
        return get_peft_model(model, config)


def adapters_on(model: Any, folder: Path) -> Any:
    """The model with the adapters saved in `folder`, trainable."""
    from peft import PeftModel

    with _without_renaming_notes():
        return PeftModel.from_pretrained(model, str(folder), is_trainable=True)


@contextmanager
def _without_renaming_notes() -> Iterator[None]:
    """Without the warning that peft reads an attribute which transformers 5.23 renamed: users cannot act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.* is deprecated")
        yield


def _explained(error: Exception, argument: str) -> UsageError | MachineError:
    """The error with an action for the user: transformers wraps the Hub's message in an OSError."""
    chain: list[BaseException] = [error]
    while (
        inner := chain[-1].__cause__ or chain[-1].__context__
    ) is not None and inner not in chain:
        chain.append(inner)
    if any(isinstance(e, GatedRepoError) for e in chain) or "gated repo" in str(error):
        return UsageError(
            f"`{argument}` is gated on the Hub",
            "accept its terms on its page, then `hf auth login` or set HF_TOKEN",
        )
    if any(
        isinstance(e, (LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError))
        for e in chain
    ) or "connect" in str(error):
        hint = f"connect, or fetch it elsewhere with `hf download {argument} --local-dir FOLDER` and give hf:FOLDER"
        return MachineError(
            f"`{argument}` is not in the local cache and the Hub cannot be reached", hint
        )
    if any(
        isinstance(e, RepositoryNotFoundError) for e in chain
    ) or "not a valid model identifier" in str(error):
        return UsageError(
            f"no model `{argument}` on the Hub, and no such folder",
            "check the spelling; private ones need `hf auth login`",
        )
    return UsageError(
        f"cannot load `{argument}`: {str(error).splitlines()[0]}",
        "give a causal language model of transformers",
    )
