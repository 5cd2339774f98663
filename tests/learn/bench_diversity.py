"""How long the diversity filter takes, by hand: `python -m tests.learn.bench_diversity 200000`.

Writes that many synthetic examples (about 3.4 kB each) and filters them; prints processor seconds by stage, wall clock
and the largest memory.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from dvk.config import Config
from dvk.learn import diversity, examples
from tests.learn import synthetic


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "examples.jsonl"
        examples.write(source, synthetic.examples(count))
        wall, used, seen = time.monotonic(), time.process_time(), set()

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in seen:
                seen.add(stage)
                print(
                    f"{stage:>12} of {total:>8,} begins after {time.process_time() - used:7.1f} s of processor"
                )

        made = diversity.run(source, Path(folder) / "out", Config(), progress=tell)
        print(
            f"{time.process_time() - used:.1f} s of processor, {time.monotonic() - wall:.1f} s in all, "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"
        )
        print(made["num_kept"], made["reasons"])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
