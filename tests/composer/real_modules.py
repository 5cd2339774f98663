"""Thirty modules as people use them, in small random configurations: captured, composed in C++, compared with eager, timed.

    python -m tests.composer.real_modules [NAME ...]        a table: whole or in parts, kernels, error, eager ms, drop-in ms

transformers is a dependency of dvk; timm and diffusers are skipped if they are not installed.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import nn

SMALL = "hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=2, vocab_size=128"
IDS = "[torch.randint(0, 128, (2, 16))]"
IMAGE = "[torch.randn(2, 3, 32, 32)]"


def of_transformers(make: str, inputs: str = IDS, call: str = "self.m(x)") -> str:
    """A file with a model of transformers."""
    lines = [
        "import torch",
        "import transformers as t",
        "",
        "",
        "class Model(torch.nn.Module):",
        "    def __init__(self):",
        f"        super().__init__()\n        self.m = {make}.eval()",
        "",
        f"    def forward(self, x):\n        return {call}",
        "",
        "",
        f"def get_inputs():\n    return {inputs}",
    ]
    return "\n".join(lines) + "\n"


def of_timm(name: str, size: int = 64, **more: Any) -> str:
    """A file with a model of timm."""
    text = of_transformers(
        f"timm.create_model({name!r}, num_classes=10, **{more!r})",
        f"[torch.randn(2, 3, {size}, {size})]",
    )
    return text.replace("import transformers as t", "import timm")


def of_diffusers(make: str, inputs: str, call: str = "self.m(x)") -> str:
    """A file with a model of diffusers."""
    return of_transformers(make, inputs, call).replace(
        "import transformers as t", "import diffusers as d"
    )


FILES: dict[str, str] = {
    "llama": of_transformers(f"t.LlamaForCausalLM(t.LlamaConfig({SMALL}, num_key_value_heads=2))"),
    "mistral": of_transformers(f"t.MistralModel(t.MistralConfig({SMALL}, num_key_value_heads=2))"),
    "qwen2": of_transformers(f"t.Qwen2Model(t.Qwen2Config({SMALL}, num_key_value_heads=2))"),
    "mixtral": of_transformers(
        f"t.MixtralModel(t.MixtralConfig({SMALL}, num_key_value_heads=2, num_local_experts=4))"
    ),
    "gemma": of_transformers(
        f"t.GemmaModel(t.GemmaConfig({SMALL}, num_key_value_heads=2, head_dim=16))"
    ),
    "gpt2": of_transformers(
        "t.GPT2LMHeadModel(t.GPT2Config(n_embd=64, n_head=4, n_layer=2, vocab_size=128))"
    ),
    "opt": of_transformers(
        "t.OPTModel(t.OPTConfig(hidden_size=64, ffn_dim=128, num_attention_heads=4, num_hidden_layers=2, vocab_size=128,"
        " word_embed_proj_dim=64))"
    ),
    "bert": of_transformers(f"t.BertModel(t.BertConfig({SMALL}))"),
    "roberta": of_transformers(f"t.RobertaForSequenceClassification(t.RobertaConfig({SMALL}))"),
    "distilbert": of_transformers(
        "t.DistilBertModel(t.DistilBertConfig(dim=64, hidden_dim=128, n_heads=4, n_layers=2, vocab_size=128))"
    ),
    "electra": of_transformers(f"t.ElectraModel(t.ElectraConfig({SMALL}, embedding_size=64))"),
    "albert": of_transformers(f"t.AlbertModel(t.AlbertConfig({SMALL}, embedding_size=32))"),
    "t5_encoder": of_transformers(
        "t.T5EncoderModel(t.T5Config(d_model=64, d_kv=16, d_ff=128, num_heads=4, num_layers=2, vocab_size=128))"
    ),
    "t5": of_transformers(
        "t.T5Model(t.T5Config(d_model=64, d_kv=16, d_ff=128, num_heads=4, num_layers=2, vocab_size=128))",
        call="self.m(input_ids=x, decoder_input_ids=x)",
    ),
    "clip_text": of_transformers(
        f"t.CLIPTextModel(t.CLIPTextConfig({SMALL}, eos_token_id=127, bos_token_id=0))"
    ),
    "vit": of_transformers(
        f"t.ViTModel(t.ViTConfig({SMALL.rpartition(',')[0]}, image_size=32, patch_size=8))", IMAGE
    ),
    "whisper_encoder": of_transformers(
        "t.models.whisper.modeling_whisper.WhisperEncoder(t.WhisperConfig(d_model=64, encoder_layers=2,"
        " encoder_attention_heads=4, encoder_ffn_dim=128, num_mel_bins=8, max_source_positions=32))",
        "[torch.randn(2, 8, 64)]",
    ),
    "resnet": of_transformers(
        "t.ResNetModel(t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]))",
        IMAGE,
    ),
    "convnext": of_transformers(
        "t.ConvNextModel(t.ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2))",
        IMAGE,
    ),
    "swin": of_transformers(
        "t.SwinModel(t.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4],"
        " window_size=4))",
        IMAGE,
    ),
    "mamba": of_transformers(
        "t.MambaModel(t.MambaConfig(hidden_size=64, num_hidden_layers=2, vocab_size=128, state_size=8))"
    ),
    "timm_resnet18": of_timm("resnet18"),
    "timm_vit": of_timm("vit_tiny_patch16_224", img_size=64),
    "timm_convnext": of_timm("convnext_atto"),
    "timm_mixer": of_timm("mixer_s32_224", 224),
    "timm_efficientnet": of_timm("efficientnet_b0"),
    "diffusers_unet": of_diffusers(
        "d.UNet2DModel(sample_size=16, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,"
        " down_block_types=('DownBlock2D', 'AttnDownBlock2D'), up_block_types=('AttnUpBlock2D', 'UpBlock2D'))",
        "[torch.randn(1, 3, 16, 16)]",
        "self.m(x, 3)",
    ),
    "diffusers_vae": of_diffusers(
        "d.AutoencoderKL(block_out_channels=(16,), norm_num_groups=8, latent_channels=4)",
        "[torch.randn(1, 3, 16, 16)]",
        "self.m.encode(x).latent_dist.mean",
    ),
    "diffusers_dit": of_diffusers(
        "d.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=16, num_layers=2, in_channels=4, sample_size=16,"
        " norm_num_groups=8, num_embeds_ada_norm=10)",
        "[torch.randn(1, 4, 16, 16)]",
        "self.m(x, timestep=torch.tensor([3]), class_labels=torch.tensor([1]))",
    ),
    "diffusers_controlnet_block": of_diffusers(
        "d.models.resnet.ResnetBlock2D(in_channels=32, out_channels=64, temb_channels=None, groups=8)",
        "[torch.randn(1, 32, 16, 16)]",
        "self.m(x, None)",
    ),
}


@dataclass(frozen=True)
class Row:
    """The outcome of one module; `error` is the largest difference from eager relative to the rms, times in milliseconds."""

    name: str
    how: str
    num_kernels: int = 0
    error: float = 0.0
    eager_ms: float = 0.0
    ours_ms: float = 0.0
    why: str = ""


def is_installed(name: str) -> bool:
    """The library of a file is here."""
    return (
        find_spec(name.partition("_")[0]) is not None
        if name.startswith(("timm_", "diffusers_"))
        else True
    )


def tried(name: str) -> Row:
    """Capture, compose, compare and time one module."""
    from dvk.composer import Plan, applicable, compose
    from dvk.composer.capture.export import trace_module
    from dvk.composer.ir.errors import CannotCompose
    from dvk.composer.lowering.convolution import PRODUCTS
    from dvk.records import Task

    source = FILES[name]
    reference, candidate = ModuleType(f"real_{name}"), ModuleType(f"real_{name}_new")
    for module in (reference, candidate):
        sys.modules[module.__name__] = module
    exec(compile(source, f"<{name}>", "exec"), vars(reference))
    torch.manual_seed(0)
    model: nn.Module = reference.Model().eval()
    args = reference.get_inputs()
    try:
        captured = trace_module(model, args, ["x"], home=vars(reference))
    except CannotCompose as error:
        return Row(name, "not", why=str(error))
    task = Task(id=name, name=name, source=source, entry="Model", kind="module", eval_mode=True)
    recipes = tuple(r for r in applicable(captured.graph, "cpu", "cpp") if r not in PRODUCTS)
    made = compose(task, captured, Plan(recipes), "cpp")
    exec(compile(made.source, f"<{name} drop-in>", "exec"), vars(candidate))
    new = candidate.ModelNew().eval()
    new.load_state_dict(model.state_dict())
    torch.manual_seed(1)
    args = reference.get_inputs()
    with torch.no_grad():
        want, got = model(*args), new(*args)
        fits = bool(new.__dict__.get("_dvk_ready")) and new._dvk_fits(*args)
    parts = sum(node.op == "left" for node in captured.graph.nodes)
    how = ("whole" if not parts else f"{parts} left") if fits else "fell back"
    error = max(
        (_error(a, b) for a, b in zip(tensors(got), tensors(want), strict=True)), default=0.0
    )
    same = type(got).__qualname__ == type(want).__qualname__
    return Row(
        name,
        how if same else "another type",
        len(made.schedule),
        error,
        _ms(model, args),
        _ms(new, args),
    )


def tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor in a result, whatever holds it."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return (
        [t for v in vars(value).values() for t in tensors(v)]
        if hasattr(value, "__dict__") and not isinstance(value, type)
        else []
    )


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    a, b = got.double(), want.double()
    return float((a - b).abs().max() / (b.pow(2).mean().sqrt() + 1e-12)) if a.numel() else 0.0


def _ms(model: nn.Module, args: list[Any], count: int = 15) -> float:
    times = []
    with torch.no_grad():
        for _ in range(count):
            began = time.perf_counter()
            model(*args)
            times.append(time.perf_counter() - began)
    return 1000 * sorted(times)[count // 2]


def main(names: list[str]) -> None:
    """Print the table."""
    print(
        f"{'module':28} {'captured':14} {'kernels':>7} {'error':>9} {'eager ms':>9} {'ours ms':>9}  why not"
    )
    for name in names or FILES:
        if not is_installed(name):
            print(f"{name:28} {'not installed'}")
            continue
        row = tried(name)
        times = f"{row.eager_ms:9.2f} {row.ours_ms:9.2f}"
        print(
            f"{row.name:28} {row.how:14} {row.num_kernels:7} {row.error:9.1e} {times}  {row.why}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
