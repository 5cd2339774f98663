"""`--davinci PATH`: one flag for a daVinci-kernel checkpoint, its dialect, and the skills that were learned with it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dvk.backbone.packing import model_folder
from dvk.errors import UsageError
from dvk.interop.davinci.skills import imported
from dvk.skills import snapshots

if TYPE_CHECKING:
    from dvk.pipelines.optimize.request import OptimizeRequest


def with_checkpoint(request: OptimizeRequest, path: Path) -> OptimizeRequest:
    """The request with the checkpoint's model as its backbone, and its bundled skills as its library unless another was named.

    Raises:
        UsageError: no model there, or another backbone was requested.
        LibraryError: the skills cannot be read.
    """
    if request.backbone is not None:
        raise UsageError("--davinci brings its own backbone", "drop --backbone, or --davinci")
    folder = model_folder(path.expanduser())
    library = request.library
    if (
        library is None
        and (file := snapshots.find(folder) or snapshots.find(path.expanduser())) is not None
    ):
        library = imported(file)
    elif library is None:
        print(f"`{folder}` bundles no skill library: the default one is used", file=sys.stderr)
    return replace(request, backbone=f"davinci:{folder}", library=library)
