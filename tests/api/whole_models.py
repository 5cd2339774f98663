"""Small random configurations of real architectures, by the command line's names, and what is tried with each."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.api.network import ModelSource, choosing, examples, patching, trying, verifying
from dvk.api.network.blocks import Blocks
from dvk.api.network.building import MAKERS, Network, build
from dvk.api.network.profiling import profile
from dvk.api.written import write
from dvk.composer.capture.joint import with_backward
from dvk.config import Config
from dvk.runs import RunFolder
from dvk.tasks.sourcefile import execute

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
GROUPED: dict[str, Any] = {**TEXT, "num_key_value_heads": 2}
IMAGE = {"image_size": 32, "patch_size": 8}
VISION = {
    key: value
    for key, value in TEXT.items()
    if key not in ("vocab_size", "max_position_embeddings")
}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("transformers:LlamaForCausalLM", GROUPED),
    "gpt2": (
        "transformers:GPT2LMHeadModel",
        {"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 128, "n_positions": 64},
    ),
    "bert": ("transformers:BertModel", TEXT),
    "t5": (
        "transformers:T5ForConditionalGeneration",
        {
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 128,
            "num_heads": 4,
            "num_layers": 2,
            "vocab_size": 128,
        },
    ),
    "vit": ("transformers:ViTModel", {**VISION, **IMAGE}),
    "swin": (
        "transformers:SwinModel",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
    ),
    "convnext": (
        "transformers:ConvNextModel",
        {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2, "image_size": 64},
    ),
    "clip": (
        "transformers:CLIPModel",
        {
            "text_config": {**TEXT, "eos_token_id": 127, "bos_token_id": 0},
            "vision_config": {**VISION, **IMAGE},
            "projection_dim": 32,
        },
    ),
    "whisper": (
        "transformers:WhisperForConditionalGeneration",
        {
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
            "num_mel_bins": 8,
            "max_source_positions": 32,
            "max_target_positions": 32,
            "vocab_size": 128,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
    "mixtral": ("transformers:MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}),
    "mamba": (
        "transformers:MambaForCausalLM",
        {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128, "state_size": 8},
    ),
    "efficientnet": ("timm:efficientnet_b0", {"num_classes": 10}),
    "timm_swin": (
        "timm:swin_tiny_patch4_window7_224",
        {"img_size": 56, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]},
    ),
    "unet": (
        "diffusers:UNet2DModel",
        {
            "sample_size": 16,
            "block_out_channels": [32, 64],
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
            "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
        },
    ),
    "diffusion": (f"{Path(__file__).with_name('diffusion_blocks.py')}:blocks", {}),
}


INPUTS = {"mamba": ("input_ids=int64[1,8]<128", "use_cache=False")}
"""Its scan is a loop in Python over the tokens."""


NO_DROPOUT: dict[str, dict[str, Any]] = {
    "gpt2": {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
    "bert": {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0},
    "t5": {"dropout_rate": 0.0},
}
"""What trains without random numbers; the other models have none."""


def source_of(name: str, device: str = "cpu", *, train: bool = False) -> ModelSource:
    """The source of one of the models."""
    spec, settings = MODELS[name]
    settings = {**settings, **(NO_DROPOUT.get(name, {}) if train else {})}
    inputs = INPUTS.get(name, ())
    return ModelSource(spec=spec, settings=settings, inputs=inputs, device=device, training=train)


def is_installed(name: str) -> bool:
    """Whether the library of one of the models can be imported."""
    library = MODELS[name][0].partition(":")[0]
    if library.endswith(".py"):
        return True
    try:
        __import__(library)
    except Exception:  # noqa: BLE001 - one that does not fit the installed torch may raise anything
        return False
    return library in MAKERS


@dataclass(frozen=True)
class Quick:
    """A model with the quick compositions of its largest blocks, without a search: what the composer captures, and what it computes."""

    network: Network
    package: Path
    names: tuple[str, ...]
    captured: dict[str, tuple[int, int]]
    """Block → operators, and those that are left to PyTorch."""
    why: dict[str, str]
    checked: list[verifying.Checked]
    used: dict[str, bool]


def quickly(name: str, folder: Path, blocks_tried: int = 2, *, train: bool = False) -> Quick:
    """Profile a model, compose one module of each of its largest kinds of blocks, patch all of them, and compare the whole."""
    network = build(source_of(name, train=train))
    calls = [examples.draw(network, seed) for seed in range(2)]
    found = profile(network.model, *calls[0])
    run = RunFolder.open(
        folder, command="optimize", name=name, argv=(), config=Config(), resume=False
    )
    blocks = Blocks(run, network.model, calls[0], found, "cpp", Config(), nullcontext, 0.0, train)
    taken = choosing.chosen(
        found, blocks.groups, {one.name: 1 + one.share for one in blocks.groups}
    )
    patches, captured, why = [], {}, {}
    for group, paths in taken[:blocks_tried]:
        module, call = network.model.get_submodule(paths[0]), blocks.calls([paths[0]])[paths[0]]
        graph = trying.graph_of(module, call)
        captured[group.name] = (
            len(graph.graph.nodes),
            sum(node.op == "left" for node in graph.graph.nodes),
        )
        written = write(module, *call)
        if train:
            graph = with_backward(graph, module)
        text, *_ = trying.drop_ins(graph, written, "cpp", train)
        proved, left = blocks.alike(list(paths))
        why |= left
        modules = [network.model.get_submodule(path) for path in proved]
        hashes = patching.configs(execute(text, role="test"), modules, blocks.reads)
        patches.append(patching.Patch(group.name, group.kind, written.entry, text, hashes))
    package = patching.write(folder, patches, name, blocks.reads)
    patch, names = patching.load(package), tuple(one.name for one in patches)
    checked = verifying.check(network.model, patch, calls, names, train=train)
    used = verifying.in_use(network.model, patch, calls[0], names, train=train)
    run.close()
    return Quick(network, package, names, captured, why, checked, used)
