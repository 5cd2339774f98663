"""Help of every command: `-h`, examples to copy, options in groups, the grammar of inputs.

Plain text, since rich's help takes as long to start as all else together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

GROUPS = {
    "What to run": (
        "--input",
        "--model",
        "--extra-input",
        "--init",
        "--eval",
        "--dtype",
        "--autocast",
        "--batch",
        "--tasks",
        "--validation",
        "--from",
        "--data",
        "--only",
    ),
    "Where it runs": ("--device", "--backend", "--judge", "--engine", "--workers"),
    "Run folder and output": ("--out", "--resume", "--json", "--library", "--config", "--set"),
}
"""Headings and the options below them, for all commands; other options come first, as `Options`."""

EXAMPLES = {
    "dvk": (
        "dvk doctor",
        "dvk optimize model.py",
        'dvk optimize pkg.model:Gate --input "x=float32[64,1024]"',
        "dvk skills search softmax of long rows",
    ),
    "dvk optimize": (
        "dvk optimize model.py",
        "dvk optimize model.py:Gate --eval --budget-s 120 --out runs/gate",
        'dvk optimize pkg.model:Gate --init 512 --input "x=float32[64,1024]" --extra-input "x=float32[8,1024]"',
        "dvk optimize model.py --out runs/gate --resume --budget-s 600",
        "dvk optimize model.py --backbone nano",
        "dvk optimize model.py --train --autocast bfloat16",
        "dvk optimize --model transformers:LlamaForCausalLM --config config.json --config num_hidden_layers=4",
    ),
    "dvk verify": (
        "dvk verify model.py best.py",
        "dvk verify model.py:Gate new1.py new2.py --baseline compile",
        "dvk verify model.py best.py --tier claim --json",
        "dvk verify model.py best.py --autocast bfloat16",
        "dvk verify --batch jobs.jsonl --workers 4 --out runs/batch",
        "dvk verify flashinfer-trace/definitions/norm/rms_h4096.json my_solution.json",
    ),
    "dvk explain": (
        "dvk explain runs/gate/best.py",
        'dvk explain runs/gate/best.py --input "x=float32[7,1024]"',
    ),
    "dvk workspace": ("dvk workspace model.py agent", "dvk workspace collect agent"),
    "dvk workspace open": (
        "dvk workspace model.py agent",
        'dvk workspace pkg.model:Gate agent --init 512 --input "x=float32[64,1024]" --eval',
        "dvk workspace model.py agent --resume",
    ),
    "dvk workspace check": ("dvk workspace check agent agent/new.py",),
    "dvk workspace bench": ('dvk workspace bench agent agent/new.py "two rows a warp"',),
    "dvk workspace collect": (
        "dvk workspace collect agent",
        "dvk workspace collect agent --out runs/agent --backbone endpoint:my-model",
    ),
    "dvk export": (
        "dvk export runs/gate out/fused-gate",
        "dvk export runs/gate out/gate --to file --bundle native --bundle x86-64-v3",
        "dvk export runs/gate out/fused-gate --to hf --license apache-2.0 --repo-id me/fused-gate",
        'dvk export runs/norm out/vllm-norm --to vllm --op "rms_norm(epsilon=1e-6)"',
    ),
    "dvk eval": (
        "dvk eval data/tasks/examples",
        "dvk eval my_tasks --policy nano --turns 4 --out runs/nano",
        "dvk eval my_tasks --policy auto:nano --turns 8 --baseline compile",
        "dvk eval flashinfer-trace --turns 4 --only rms_h4096-batch=16",
        "dvk eval --compare runs/a runs/b",
    ),
    "dvk capture": (
        "dvk capture calls -- python serve.py --port 8000",
        "dvk capture --only DecoderLayer calls -- python generate.py",
    ),
    "dvk sft": (
        "dvk sft --tasks 200 --out runs/sft",
        "dvk sft collect --tasks 200 --out runs/sft",
        "dvk sft fit --out runs/sft --resume",
    ),
    "dvk sft collect": ("dvk sft collect --tasks 200 --out runs/sft",),
    "dvk sft filter": ("dvk sft filter --out runs/sft --against my_tasks",),
    "dvk sft diversify": ("dvk sft diversify --out runs/sft",),
    "dvk sft fit": ("dvk sft fit --out runs/sft --from nano --epochs 1",),
    "dvk sft choose": (
        "dvk sft choose data/measured/sample.jsonl.gz --out runs/chosen",
        "dvk sft choose runs/table/table.jsonl.gz --heldout data/measured/heldout-h200.jsonl.gz --out runs/chosen",
    ),
    "dvk sft export": ("dvk sft export runs/sft my_model",),
    "dvk train": (
        "dvk train --steps 20 --out runs/train",
        "dvk train --from nano --tasks my_tasks --steps 50",
        "dvk train --out runs/train --steps 100 --resume",
    ),
    "dvk measure": (
        "dvk measure my_tasks --plans 12 --out runs/measure",
        "dvk measure --generated 100 --out runs/measure --resume",
        "dvk measure --from runs/train --from runs/eval --out runs/table",
    ),
    "dvk skills": (
        "dvk skills search fused softmax",
        "dvk skills show softmax_online",
        "dvk skills list --tag attention",
    ),
    "dvk skills search": (
        "dvk skills search how do I fuse bias and gelu after a GEMM",
        "dvk skills search num_warps --limit 3 --json",
    ),
    "dvk skills show": ("dvk skills show softmax_online",),
    "dvk skills list": ("dvk skills list --tag attention",),
    "dvk skills add": ("dvk skills add my_skill.md",),
    "dvk skills remove": ("dvk skills remove my_skill",),
    "dvk skills import": ("dvk skills import skills.jsonl --library team.db",),
    "dvk skills export": ("dvk skills export my_skills",),
    "dvk skills stats": ("dvk skills stats",),
    "dvk skills diff": ("dvk skills diff runs/train/skills.db ~/.dvk/skills.db",),
    "dvk skills merge": ("dvk skills merge ~/.dvk/skills.db runs/train/skills.db",),
    "dvk skills prune": ("dvk skills prune --dry-run",),
    "dvk skills history": ("dvk skills history softmax_online",),
    "dvk skills verify": ("dvk skills verify --library team.db",),
    "dvk skills grow": ("dvk skills grow runs/table/table.jsonl.gz --dry-run",),
    "dvk skills worth": ("dvk skills worth data/measured/heldout-h200.jsonl.gz",),
    "dvk skills restore": ("dvk skills restore my_skill",),
    "dvk convert": (
        "dvk convert problems.parquet my_tasks",
        "dvk convert examples.jsonl table.parquet --to combined",
        "dvk convert generated:2000 tasks.parquet --to prompts --split train",
        "dvk convert flashinfer-trace my_tasks --to tasks",
    ),
    "dvk serve": ("dvk serve --port 8000",),
    "dvk mcp": ("dvk mcp",),
    "dvk doctor": ("dvk doctor",),
}
"""Command lines by command."""

INPUTS = """\
Inputs (--input), one for each parameter of forward:
  NAME=DTYPE[SIZE,...]         normally distributed      x=float32[64,1024]
  NAME=DTYPE[SIZE,...]:FILL    rand (0 to 1), randn,     w=float16[8]:rand
                               ones or zeros
  NAME=INTEGER[SIZE,...]<HIGH  uniform from 0 to HIGH-1  labels=int64[64]<1000
                               (HIGH is 10 if left out; for class labels give the number of classes)
  NAME=bool[SIZE,...]          fair coins                mask=bool[8,8]
  NAME=VALUE                   any Python literal        scale=0.5  causal=True  sizes=[2,3]  mode='mean'
DTYPE: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool; SIZE of a scalar tensor: x=float32[]"""


FORMER = re.compile(r", --(also|anew)\b")
"""Earlier names of options, which still work."""


def _ending(context: Any, formatter: Any) -> None:
    path = context.command_path
    if any("--input" in getattr(parameter, "opts", ()) for parameter in context.command.params):
        formatter.write_paragraph()
        formatter.write(f"{INPUTS}\n")
    if examples := EXAMPLES.get(path):
        formatter.write_paragraph()
        formatter.write("Examples:\n" + "".join(f"  {line}\n" for line in examples))


def _options(context: Any, formatter: Any) -> None:
    grouped: dict[str, list[tuple[str, str]]] = {
        "Arguments": [],
        "Options": [],
        **{heading: [] for heading in GROUPS},
    }
    for parameter in context.command.get_params(context):
        if (record := parameter.get_help_record(context)) is None:
            continue
        record = FORMER.sub("", record[0]), record[1]
        if parameter.param_type_name == "argument":
            grouped["Arguments"].append(record)
        else:
            heading = next(
                (h for h, names in GROUPS.items() if set(names) & set(parameter.opts)), "Options"
            )
            grouped[heading].append(record)
    for heading, records in grouped.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


class HelpCommand(TyperCommand):
    """As described above."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options in groups."""
        _options(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the grammar of inputs if the command takes them, and examples."""
        _ending(ctx, formatter)


class HelpGroup(TyperGroup):
    """As described above."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with its whole first sentence."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(1000))
                    for name, command in found
                    if command is not None
                ]
            )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples."""
        _ending(ctx, formatter)


class DefaultGroup(HelpGroup):
    """A group whose first command is meant if none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the first command's name before arguments that name none."""
        known = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in known:
            args = [next(iter(self.commands)), *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


class HelpApp(typer.Typer):
    """Give the commands of this app this module's help."""

    def __init__(self, **named: Any):
        settings = {
            "help_option_names": ["-h", "--help"],
            **(named.pop("context_settings", None) or {}),
        }
        super().__init__(**{"cls": HelpGroup, "context_settings": settings, **named})

    def command(self, name: str | None = None, **named: Any) -> Callable[[Any], Any]:
        """Arguments as for `typer.Typer`."""
        return super().command(name, **{"cls": HelpCommand, **named})
