"""Loads an exported kernel with Hugging Face `kernels` and checks it: `python exported_layer.py FOLDER LAYER RUN`. Prints what it found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from kernels import (
    LocalLayerRepository,
    Mode,
    get_local_kernel,
    kernelize,
    register_kernel_mapping,
    replace_kernel_forward_from_hub,
)
from kernels._rust import Build, Digest, DigestAlgorithm, Metadata


def main(folder: Path, layer: str) -> dict[str, object]:
    variant = next((folder / "build").iterdir())
    metadata = Metadata.read_from_file(variant / "metadata.json")
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
    build = Build.open(folder)
    kernel = get_local_kernel(folder)
    assert get_local_kernel(variant) is kernel
    torch.manual_seed(0)
    model = kernel.Model(24)
    call = torch.randn(4, 5, 24), torch.randn(4, 5, 24)
    with torch.no_grad():
        expected = model(*call)
    replace_kernel_forward_from_hub(kernel.Model, layer)
    repository = LocalLayerRepository(repo_path=folder, layer_name=layer)
    register_kernel_mapping({layer: {"cpu": repository}})
    network = torch.nn.Sequential(model)
    network = kernelize(
        network, mode=Mode.INFERENCE | Mode.TORCH_COMPILE, device="cpu", use_fallback=False
    )
    ran: list[object] = []
    kernel.op.PROGRAMS = tuple(
        (fits, lambda *given, run=run: ran.append(given) or run(*given))
        for fits, run in kernel.op.PROGRAMS
    )
    found = {}
    with torch.no_grad():
        for what, run in (
            ("eager", network[0]),
            ("fullgraph", torch.compile(network[0], fullgraph=True, backend="aot_eager")),
        ):
            for mine, theirs in zip(run(*call), expected, strict=True):
                torch.testing.assert_close(mine, theirs)
            found[what], ran[:] = len(ran), []
        small = call[0][:1], call[1][:1]
        torch.testing.assert_close(network[0](*small), kernel.Model.forward(model, *small))
        found["other shape"], ran[:] = len(ran), []
    model(*call)[0].sum().backward()
    assert model.scale.grad is not None
    other = kernel.Model(24)
    other.norm.eps = 0.5
    assert not kernel.layers.made_for(other) and kernel.layers.made_for(model)
    return {
        **found,
        "id": metadata.id,
        "namespace": str(kernel.op.fused._opoverload),
        "backends": [str(one) for one in build.general.backends],
        "layer": type(model).__name__,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
