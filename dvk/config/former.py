"""Settings of earlier versions: renamed ones are read under their new name, removed ones are reported and ignored."""

from __future__ import annotations

import sys
from typing import Any

RENAMED = {
    "library.alike": "library.merge_similarity",
    "library.duplicate_similarity": "library.merge_similarity",
    "collect.drawn": "collect.oversample",
    "rollout.redraws": "rollout.resample_unparsed",
    "rollout.branches": "rollout.repair_attempts",
    "credit.even": "credit.normalize_advantages",
    "learning.patience_s": "learning.barrier_timeout_s",
}
"""Current names of renamed settings."""

CONSTANTS = {
    "optimize.also_share": "pipelines.optimize.sets:EXTRA_SHARE",
    "optimize.num_skills": "skills.graphs:NUM_RANKED",
    "backbone.slots": "backbone.hf:SLOTS",
    "backbone.retries": "backbone.endpoint:RETRIES",
    "backbone.lora_alpha": "backbone.loading:LORA_ALPHA",
    "search.openings": "search.writer:NUM_OPENINGS",
    "search.offspring": "search.writer:NUM_OFFSPRING",
    "rewards.cap": "rewards.speedup:CAP",
    "collect.per_task": "pipelines.sft.collect:PER_TASK",
    "collect.offset": "pipelines.sft.collect:OFFSET",
    "collect.attempts": "pipelines.sft.episodes:ATTEMPTS",
    "fit.vocabulary": "backbone.nano:PRESETS",
    "library.least_trials": "skills.grooming:LEAST_TRIALS",
    "train.validation_tasks": "pipelines.train.task_sampler:VALIDATION_TASKS",
    "remote.retries": "interop.kernelgym.client:RETRIES",
    "serve.kept": "pipelines.serve.desk:KEPT",
    "choose.sharpness": "pipelines.sft.choice_course:SHARPNESS",
    "choose.answers": "pipelines.sft.choice_course:ANSWERS",
}
"""Settings that became constants: where the constant is, inside dvk."""

FIXED = {
    "choose.entropy": "the last stage stays near the fitted policy instead: choose.kl",
    "search.evolve.information": "mutations always show insights and other good programs",
    "search.evolve.population": "parents are always the best programs and those least similar to them",
    "backbone.temperature": "it had no effect: rollout.temperature is the one that is used",
    "backbone.top_p": "it had no effect",
    "backbone.max_tokens": "it had no effect: rollout.policy_tokens is the one that is used",
    "credit.void": "turns without reward after a turn with reward are always left out",
    "collect.interpret": "Triton programs are executed on a GPU only",
    "fit.compile": "the decoder is compiled if that pays",
    "choose.written": "words are learned where a list of plans leaves a choice",
    "choose.validation": "choose.folds says how the number of passes is chosen",
    "served.port": "a local server has a free port",
    "served.context": "a local server has the model's length; served.arguments can hold --max-model-len",
    "served.memory_share": "served.arguments can hold --gpu-memory-utilization",
}
"""Settings whose default is the only behaviour now, and what it is."""

_reported: set[str] = set()


def update(tree: dict[str, Any], quiet: bool = False) -> dict[str, Any]:
    """Return settings without those of earlier versions; a renamed one takes its new name, unless that is given, too.

    Args:
        tree: nested settings, as in a TOML file.
        quiet: do not report them on stderr, which happens once per process and setting.
    """
    for key in (*RENAMED, *CONSTANTS, *FIXED):
        *parents, last = key.split(".")
        sections = [tree]
        for parent in parents:
            inner = sections[-1].get(parent)
            sections.append(inner if isinstance(inner, dict) else {})
        if last not in sections[-1]:
            continue
        tree = _without(tree, [*parents, last])
        if key in RENAMED:
            section, _, name = RENAMED[key].rpartition(".")
            now = tree.get(section, {})
            tree = {**tree, section: {name: sections[-1][last], **now}}
        if not quiet:
            _report(key)
    return tree


def _without(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """A copy without one key, and without sections that this empties."""
    first, *rest = path
    left = {name: value for name, value in tree.items() if name != first}
    inner = _without(tree[first], rest) if rest else {}
    return {**left, first: inner} if inner else left


def _report(key: str) -> None:
    if key in _reported:
        return
    _reported.add(key)
    if key in RENAMED:
        text = f"is `{RENAMED[key]}` now"
    elif key in CONSTANTS:
        text = f"is a constant now (dvk.{CONSTANTS[key].replace(':', '.')}); the value given is ignored"
    else:
        text = f"was removed: {FIXED[key]}; the value given is ignored"
    print(f"note: the setting `{key}` {text}", file=sys.stderr)
