"""Example inputs of a whole model: `--input` specs, the file's get_inputs(), or what the model's configuration says that it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from dvk.api.network.building import Network
from dvk.errors import UsageError
from dvk.tasks.input_sampler import from_spec
from dvk.tasks.sourcefile import fault
from dvk.tasks.specs import parse_inputs
from dvk.tasks.state import seeded
from dvk.tasks.trees import map_tensors

Call = tuple[list[Any], dict[str, Any]]
TOKENS = 128
"""Tokens of a text, at most."""
LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")
"""Names of the longest text in configurations."""
SECOND = 16000
"""Samples of one second of sound."""
SIDE = 224
"""Pixels of an image's side where nothing says it."""


def draw(network: Network, seed: int) -> Call:
    """Return the arguments of one call; equal seeds, equal values.

    Raises:
        UsageError: nothing says what the model takes, or `--input` names what it does not take.
        TaskError: get_inputs() failed.
    """
    with torch.no_grad(), seeded(seed):
        args, kwargs = _drawn(network)
    dtype = next((p.dtype for p in network.model.parameters() if p.is_floating_point()), None)

    def placed(tensor: torch.Tensor) -> torch.Tensor:
        cast = dtype if network.source.dtype and tensor.is_floating_point() else None
        return tensor.to(device=network.source.device, dtype=cast)

    return map_tensors(placed, (args, kwargs))


def _drawn(network: Network) -> Call:
    takes = inspect.signature(network.model.forward).parameters
    if network.source.inputs:
        specs = parse_inputs(network.source.inputs)
        free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values())
        if unknown := [s.name for s in specs if s.name not in takes and not free]:
            problem = f"the model's forward takes no `{unknown[0]}`"
            raise UsageError(problem, f"it takes {', '.join(takes)}")
        given = {spec.name: from_spec(spec) for spec in specs}
        return [], _without_cache(takes) | given
    if "get_inputs" in network.namespace:
        try:
            given = network.namespace["get_inputs"]()
        except Exception as error:  # the user's code may raise anything
            raise fault("get_inputs() failed", error, "run it in Python by itself") from error
        return ([], given) if isinstance(given, dict) else (list(given), {})
    library = network.source.spec.partition(":")[0]
    inputs = OF_LIBRARY[library](network.model, takes) if library in OF_LIBRARY else None
    if inputs is None:
        told = ", ".join(name for name in takes if name not in ("kwargs", "args"))
        problem = (
            f"nothing says what `{network.source.spec}` is called with; its forward takes {told}"
        )
        raise UsageError(problem, 'add e.g. --input "x=float32[1,3,224,224]"')
    return inputs


# ---------------------------------------------------------------- what configurations say


def _of_transformers(model: Any, takes: Any) -> Call | None:
    config = model.config
    text = getattr(config, "text_config", None) or config
    vision = getattr(config, "vision_config", None) or config
    makers: dict[str, Callable[[], torch.Tensor]] = {
        "input_ids": lambda: _tokens(text),
        "decoder_input_ids": lambda: _tokens(text)[:, :32],
        "pixel_values": lambda: _image(vision),
        "input_features": lambda: torch.randn(
            1, config.num_mel_bins, 2 * config.max_source_positions
        ),
        "input_values": lambda: torch.randn(1, SECOND),
    }
    wanted = [getattr(model, "main_input_name", "input_ids")]
    if getattr(config, "is_encoder_decoder", False):
        wanted.append("decoder_input_ids")
    if vision is not config:
        wanted.append("pixel_values")
    wanted = [name for name in dict.fromkeys(wanted) if name in takes]
    if not wanted or any(name not in makers for name in wanted):
        return None
    return [], {name: makers[name]() for name in wanted} | _without_cache(takes)


def _without_cache(takes: Any) -> dict[str, Any]:
    """One pass over a text. A cache is an object that changes with the call: what is called with one is not fused."""
    return {"use_cache": False} if "use_cache" in takes else {}


def _tokens(config: Any) -> torch.Tensor:
    said = (getattr(config, key, None) for key in LENGTHS)
    longest = next((n for n in said if isinstance(n, int) and n > 0), TOKENS)
    return torch.randint(0, config.vocab_size, (1, min(TOKENS, longest)))


def _image(config: Any) -> torch.Tensor:
    side = getattr(config, "image_size", None) or SIDE
    sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
    return torch.randn(1, getattr(config, "num_channels", 3), *sides)


def _of_timm(model: Any, takes: Any) -> Call:
    del takes
    said = dict(getattr(model, "pretrained_cfg", None) or {})
    channels, *sides = said.get("input_size", (3, SIDE, SIDE))
    sides = list(getattr(getattr(model, "patch_embed", None), "img_size", None) or sides)
    return [torch.randn(1, getattr(model, "in_chans", channels), *sides)], {}


def _of_diffusers(model: Any, takes: Any) -> Call | None:
    config = model.config
    side = config.get("sample_size") or 64
    sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
    batch, channels = 1, config.get("in_channels", 3)
    wanted = [name for name in ("sample", "hidden_states") if name in takes][:1]
    if not wanted or config.get("cross_attention_dim") is None and "encoder_hidden_states" in takes:
        return None
    given: dict[str, Any] = {wanted[0]: torch.randn(batch, channels, *sides)}
    if "timestep" in takes:
        given["timestep"] = torch.randint(0, 1000, (batch,))
    if "encoder_hidden_states" in takes:
        given["encoder_hidden_states"] = torch.randn(batch, 77, config["cross_attention_dim"])
    if "class_labels" in takes and config.get("num_embeds_ada_norm"):
        given["class_labels"] = torch.randint(0, config["num_embeds_ada_norm"], (batch,))
    return [], given


OF_LIBRARY: dict[str, Callable[[Any, Any], Call | None]] = {
    "transformers": _of_transformers,
    "timm": _of_timm,
    "diffusers": _of_diffusers,
}
