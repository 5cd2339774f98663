"""Updates on recorded episodes: their report and duration, by one process or by several.

    python -m tests.benchmarks.update nano RUN/episodes/step_000000.jsonl
    torchrun --nproc-per-node 2 -m tests.benchmarks.update nano RUN/episodes/step_000000.jsonl

One JSON line an update. The first one also loads kernels and meets the others; it alone keeps all rows, if the model is the one that
drew them, for each update moves the model away from what was drawn. Figures of both commands are to be equal but for the order of sums;
seconds show the gain of a second GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from dvk.backbone import Trainable, open_backbone
from dvk.config import Config, changed
from dvk.distributed import ProcessGroup
from dvk.learn.assign import rows
from dvk.learn.learner import Learner
from dvk.learn.reinforce import update
from dvk.records import Episode


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("episodes", type=Path, help="of a step of `dvk train`")
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rate", type=float, default=3e-5)
    given = parser.parse_args()
    config = changed(
        Config(),
        {
            "objective.passes": given.passes,
            "learning.rate": given.rate,
            "learning.schedule": "constant",
            "learning.warmup": 0.0,
            "learning.precision": "fp32",
        },
    )
    with ProcessGroup.join(config.learning.barrier_timeout_s) as processes:
        backbone = open_backbone(given.model, config)
        assert isinstance(backbone, Trainable)
        learner = Learner(backbone.model, config.learning, given.updates * given.passes)
        recorded = [
            Episode.model_validate_json(line) for line in given.episodes.read_text().splitlines()
        ]
        learned = [row for episode in recorded for row in rows(episode)]
        for number in range(given.updates):
            began = time.perf_counter()
            figures = update(
                learner,
                learned,
                config,
                seed=number,
                temperature=config.rollout.temperature,
                processes=processes,
            )
            seconds = time.perf_counter() - began
            norm = (
                sum(float(p.detach().double().square().sum()) for p in learner.model.parameters())
                ** 0.5
            )
            if processes.is_main:
                print(
                    json.dumps(
                        {
                            "update": number,
                            "processes": processes.size,
                            "seconds": round(seconds, 3),
                            "weights": norm,
                            **figures,
                        }
                    )
                )


if __name__ == "__main__":
    main()
