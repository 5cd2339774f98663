"""The forward pass of Llama-like decoders (Qwen3, Qwen2, Llama), over a transformers module's own weights.

Written for decoding: nothing here allocates by length, branches on values or synchronises with the host, so that one step can be
captured as a CUDA graph. RMSNorm (Zhang & Sennrich 2019), rotary positions (Su et al. 2021), grouped queries
(Ainslie et al. 2023), SwiGLU (Shazeer 2020); Qwen3 adds a norm over each head of q and k.

Small models are copied into stacked matrices (q, k and v are one matmul; LoRA is merged into the copy), which costs
their size once more; models above `STACKED_PARAMETERS` are read in place, their LoRA kept as two thin matmuls.
Scoring for the learner does not use this module: it needs gradients and runs the transformers module itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dvk.backbone.decoding import attention, native
from dvk.backbone.decoding.weights import CacheView, LayerWeights, Stack

STACKED_PARAMETERS = 200_000_000
"""Below this a second copy of the weights is cheap (0.8 GB in fp32), and fewer, larger matmuls are faster."""
SMALL_PARAMETERS = 50_000_000
"""On a CPU models up to this size are decoded by one thread. Two threads synchronise after every small matmul and stall
whenever the judge has a core: nano wrote 12 to 59 tokens/s with two threads and 74 to 91 with one next to a busy core, 101 to
121 and 80 to 90 alone."""

ARCHITECTURES = ("qwen3", "qwen2", "llama")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary variants whose frequencies do not depend on the length of the sequence."""


def supports(model: Any) -> bool:
    """Whether `Decoder` supports this transformers model."""
    inner = unwrapped(model)
    config = inner.config
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return (
        config.model_type in ARCHITECTURES
        and getattr(config, "hidden_act", "silu") == "silu"
        and rope.get("rope_type", "default") in ROPE_TYPES
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and type(inner.model.embed_tokens) is nn.Embedding
        and type(inner.lm_head) is nn.Linear
        and all(_plain(module) for layer in inner.model.layers for module in _linears(layer))
    )


def unwrapped(model: Any) -> Any:
    """The transformers module inside a peft wrapper; the model itself without one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _linears(layer: Any) -> tuple[nn.Module, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return (
        attention.q_proj,
        attention.k_proj,
        attention.v_proj,
        attention.o_proj,
        mlp.gate_proj,
        mlp.up_proj,
        mlp.down_proj,
    )


def _plain(module: Any) -> bool:
    """An nn.Linear, or one with ordinary LoRA around it (no DoRA, no quantised base)."""
    if type(module) is nn.Linear:
        return True
    base = getattr(module, "base_layer", None)
    return (
        type(base) is nn.Linear
        and hasattr(module, "lora_A")
        and not any(getattr(module, "use_dora", {}).values())
    )


class Decoder:
    """Logits of the next token, one step or one prompt at a time, with keys and values kept by the caller.

    Args:
        model: a transformers causal LM for which `supports` holds, peft-wrapped or not.
        dtype: compute dtype; the norms' sums and the rotary angles are always fp32.
        positions: longest sequence, in tokens, for which rotary angles are laid out.
    """

    def __init__(self, model: Any, dtype: torch.dtype, positions: int):
        inner = unwrapped(model)
        config = inner.config
        self.model, self.dtype, self.positions = inner, dtype, positions
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        self.device = inner.model.embed_tokens.weight.device
        self.floor = torch.tensor(self.eps, device=self.device)
        self.state: list[tuple[int, int]] = []
        """Address and version of each parameter at the last copy. Fused optimisers raise no version."""
        self.attend = attention.best_for(self.device, dtype)
        parameters = sum(p.numel() for p in inner.parameters())
        copied = parameters <= STACKED_PARAMETERS
        words = inner.model.embed_tokens.weight.detach()
        self.words = words.to(dtype, copy=copied)
        self.head = Stack([inner.lm_head], dtype, copied)
        self.norm = self._vector(inner.model.norm.weight)
        self.layers = [self._layer(layer, copied) for layer in inner.model.layers]
        rotary = inner.model.rotary_emb
        angles = (
            torch.arange(positions, device=self.device)[:, None].float()
            * rotary.inv_freq.to(self.device).float()
        )
        scale = rotary.attention_scaling
        sin = angles.sin() * scale
        self.cos = (torch.cat([angles, angles], -1).cos() * scale).to(dtype)[
            :, None
        ]  # [positions, 1, head size]
        self.sin = torch.cat([-sin, sin], -1).to(dtype)[
            :, None
        ]  # the sign of rotate_half is in the table
        small = (
            self.device.type == "cpu" and dtype == torch.float32 and parameters <= SMALL_PARAMETERS
        )
        self.native = native.step_of(self) if small else None

    def _vector(self, parameter: Tensor) -> Tensor:
        return parameter.detach().to(self.dtype, copy=True)

    def _layer(self, layer: Any, copied: bool) -> LayerWeights:
        q, k, v, o, gate, up, down = _linears(layer)

        def stack(*modules: nn.Module) -> Stack:
            return Stack(modules, self.dtype, copied)

        return LayerWeights(
            self._vector(layer.input_layernorm.weight),
            stack(q, k, v),
            self._head_norm(layer),
            stack(o),
            self._vector(layer.post_attention_layernorm.weight),
            stack(gate, up),
            stack(down),
        )

    def _head_norm(self, layer: Any) -> Tensor | None:
        attention = layer.self_attn
        if not hasattr(attention, "q_norm"):
            return None
        q, k = self._vector(attention.q_norm.weight), self._vector(attention.k_norm.weight)
        return torch.cat([q.expand(self.heads, -1), k.expand(self.kv_heads, -1)])

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the module's current weights; buffers keep their addresses."""
        inner = self.model
        if self.device.type == "cpu":  # copying them all takes as long as writing ten tokens
            state = [(p.data_ptr(), p._version) for p in inner.parameters()]
            adapted = any(
                hasattr(module, "base_layer") for module in inner.modules()
            )  # it may have been switched off
            if state == self.state and not adapted:
                return
            self.state = state
        stacks = [self.head]
        self.norm.copy_(inner.model.norm.weight)
        if self.words.data_ptr() != inner.model.embed_tokens.weight.data_ptr():
            self.words.copy_(inner.model.embed_tokens.weight)
        for mine, theirs in zip(self.layers, inner.model.layers):
            stacks += [mine.qkv, mine.output, mine.gate_up, mine.down]
            mine.before_attention.copy_(theirs.input_layernorm.weight)
            mine.before_mlp.copy_(theirs.post_attention_layernorm.weight)
            head_norm = self._head_norm(theirs)
            if mine.head_norm is not None and head_norm is not None:
                mine.head_norm.copy_(head_norm)
        for stack in stacks:
            stack.refresh()

    def prefill(self, ids: Tensor, last: Tensor, keep: Any) -> Tensor:
        """Logits after each of n prompts.

        Args:
            ids: int64 [n, p], padded on the right with any token: no real token sees a later one.
            last: int64 [n], index of each prompt's last token.
            keep: called with (layer, keys, values), each [n, p, kv heads, head size].

        Returns: float32 [n, vocabulary].
        """
        n, p = ids.shape
        x = F.embedding(ids, self.words)
        cos, sin = self.cos[:p], self.sin[:p]
        for index, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            keep(index, k, v)
            group = self.heads // self.kv_heads
            k, v = (t.repeat_interleave(group, 2) if group > 1 else t for t in (k, v))
            seen = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
            )
            x = self._rest(layer, x, seen.transpose(1, 2).reshape(n, p, -1))
        return self._logits(x[torch.arange(n, device=x.device), last])

    @property
    def masked(self) -> bool:
        """Whether `step` needs a mask."""
        return self.attend is not attention.by_kernel

    def step(
        self,
        ids: Tensor,
        position: Tensor,
        index: Tensor,
        mask: Tensor | None,
        cache: Sequence[CacheView],
    ) -> Tensor:
        """Logits after one more token of each of b sequences.

        Args:
            ids: int64 [b], the tokens to append.
            position: int64 [b], how many tokens each sequence has so far.
            index: int64 [b × kv heads], row of a flat cache where each head's new key and value go.
            mask: if `masked`, [b × kv heads, 1, length] to add to the scores: 0 for positions that are or are being
                filled, else -inf.
            cache: one view a layer.

        Returns: float32 [b, vocabulary].
        """
        b = len(ids)
        if b == 1 and self.native is not None:
            return self.native(int(ids), int(position), cache)
        x = F.embedding(ids, self.words)
        cos, sin = self.cos[position], self.sin[position]
        for layer, (flat_keys, flat_values, keys, values) in zip(self.layers, cache):
            q, k, v = self._qkv(layer, x, cos, sin)
            flat_keys.index_copy_(0, index, k.reshape(-1, self.head_size))
            flat_values.index_copy_(0, index, v.reshape(-1, self.head_size))
            # Query heads that share a key head take the sequence dimension: they all see the same positions.
            q = q.reshape(b * self.kv_heads, -1, self.head_size)
            x = self._rest(layer, x, self.attend(q, keys, values, position, mask).reshape(b, -1))
        return self._logits(x)

    def _qkv(
        self, layer: LayerWeights, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [..., heads, head size], normalised and rotated."""
        qkv = layer.qkv(self._rms(x, layer.before_attention))
        qk, v = qkv.view(*x.shape[:-1], -1, self.head_size).split_with_sizes(
            (self.heads + self.kv_heads, self.kv_heads), -2
        )
        if layer.head_norm is not None:
            qk = self._rms(qk, None) * layer.head_norm
        qk = torch.addcmul(qk * cos, qk.roll(self.head_size // 2, -1), sin)
        q, k = qk.split_with_sizes((self.heads, self.kv_heads), -2)
        return q, k, v

    def _rest(self, layer: LayerWeights, x: Tensor, seen: Tensor) -> Tensor:
        x = x + layer.output(seen)
        gate, up = layer.gate_up(self._rms(x, layer.before_mlp)).chunk(2, -1)
        return x + layer.down(F.silu(gate, inplace=True).mul_(up))

    def _rms(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float32:
            return F.rms_norm(x, (x.shape[-1],), weight, self.eps)
        # torch's own consists of a dozen operators on CPUs: 130 µs against 20.
        scale = torch.add(self.floor, (x * x).sum(-1, keepdim=True), alpha=1 / x.shape[-1]).rsqrt_()
        return x * scale if weight is None else x * scale * weight

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self._rms(x, self.norm)).float()
