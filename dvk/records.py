"""The records that flow between layers: frozen facts, one sentence a field, no contradictory states.

`Task` and `Graph` say what is to be made faster, a `Candidate` is one attempt, a `Verdict` is what
the judge found, a `Turn` is a judged attempt with its conversation, a `Trace` one role's turns,
an `Episode` everything that happened for one task. A `Skill` is what the library remembers.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Record(BaseModel):
    """A frozen fact that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def content_hash(*parts: str) -> str:
    """Sixteen hex digits that identify `parts`; order matters."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()[:16]


# ---------------------------------------------------------------- task

Device = Literal["cpu", "cuda"]


class TensorSpec(Record):
    """Shape, dtype and layout of one tensor."""

    name: str = Field(
        description="Parameter name in the forward signature, or a path such as `0.mask` in a pytree."
    )
    dtype: str = Field(description="torch dtype without the prefix, e.g. `float32`.")
    shape: tuple[int, ...] = Field(description="Sizes in elements, outermost first.")
    strides: tuple[int, ...] = Field(description="Strides in elements.")


class ShapeVariant(Record):
    """Another size of the example inputs that the reference accepts."""

    name: str = Field(description="E.g. `batch=1`, `batch+3`, `batch*2+1`, `width-1`.")
    changes: tuple[tuple[str, int, int], ...] = Field(
        description="(input's TensorSpec name, dimension from the front, new size in elements), applied together."
    )


class Task(Record):
    """One module or function to make faster, as given by the user."""

    id: str = Field(
        description="Content hash of source, files next to it, entry, inputs, mode, dtype and device."
    )
    name: str = Field(description="Human name: the file's stem, or stem:entry.")
    path: str | None = Field(None, description="Where the source was read from, if from a file.")
    source: str = Field(description="The whole text of the reference file.")
    beside: tuple[tuple[str, str], ...] = Field(
        (), description="Files below `path`'s folder that it imports: (path from there, text)."
    )
    folders: tuple[str, ...] = Field(
        (),
        description="Folders that it puts on sys.path, absolute; isolated processes may import from them.",
    )
    entry: str = Field(description="Name of the nn.Module class or function in `source`.")
    kind: Literal["module", "function"] = Field(description="What `entry` names.")
    input_specs: tuple[str, ...] = Field(
        (), description="`x=float32[64,1024]` specs; empty when the file has get_inputs()."
    )
    init_args: tuple[str, ...] = Field(
        (), description="Constructor arguments as Python literals, `value` or `name=value`."
    )
    eval_mode: bool = Field(False, description="Call .eval() on the module before use.")
    dtype: str | None = Field(
        None,
        description="Cast floating inputs and weights to this torch dtype; null keeps the file's.",
    )
    device: Device = Field("cpu", description="Where reference and candidates run.")
    inputs: tuple[TensorSpec, ...] = Field(
        (), description="The example inputs' tensors, as examined."
    )
    outputs: tuple[TensorSpec, ...] = Field(
        (), description="The reference outputs' tensors, as examined."
    )
    written_inputs: tuple[str, ...] = Field(
        (),
        description="Names of `inputs` that the reference writes in place, e.g. caches: what a call leaves in them counts as output.",
    )
    num_shape_variants: int = Field(
        1, description="Shapes the reference accepts among those the judge tries, native included."
    )
    shape_variants: tuple[ShapeVariant, ...] = Field(
        (), description="Those shapes, without the native one, as examined."
    )
    precision: Literal["fp64", "fp32", "tf32", "half", "exact"] = Field(
        "fp32",
        description="Precision class of the reference by its dtypes and torch's TF32 flags: sets tolerance.",
    )
    stochastic: bool = Field(
        False,
        description="The reference draws random numbers (dropout in train mode); equal seeds are compared.",
    )
    training: bool | None = Field(
        None,
        description="The module is called in train mode, as examined; null of a function, or not known.",
    )
    peak_bytes: int | None = Field(
        None,
        description="GPU memory that examining one call took: inputs, outputs and intermediate results; null on a CPU.",
    )
    package: str = Field(
        "",
        description="The package that its file is a module of, e.g. `pkg.nn`; empty when it is of none.",
    )

    @property
    def mode(self) -> Literal["train", "eval"] | None:
        """The mode that the module is called in; None for a function, and if unknown."""
        if self.kind != "module":
            return None
        if self.training is None:
            return "eval" if self.eval_mode else None
        return "train" if self.training else "eval"


# ---------------------------------------------------------------- graph


class Node(Record):
    """One operator of the captured graph."""

    name: str = Field(
        description="SSA name: x* inputs, p* parameters and buffers, c* constants, v* values."
    )
    op: str = Field(
        description="`input`, `param`, `buffer`, `const`, or an ATen operator such as `aten.relu.default`."
    )
    args: tuple[Any, ...] = Field(
        (), description="Operands; a value is written {'ref': name}, everything else is a literal."
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Keyword operands, same encoding."
    )
    shape: tuple[int, ...] | None = Field(
        None, description="Sizes of the value; null when it is not one tensor."
    )
    dtype: str | None = Field(
        None, description="torch dtype of the value without prefix; null when it is not one tensor."
    )
    strides: tuple[int, ...] | None = Field(
        None, description="Strides in elements; null when it is not one tensor."
    )
    target: str | None = Field(
        None,
        description="For param/buffer/const: dotted path on the module; for input: parameter name.",
    )


class Graph(Record):
    """The captured operator graph: what the composer fuses, retrieval queries with and nano reads."""

    nodes: tuple[Node, ...] = Field(description="In execution order.")
    outputs: Any = Field(description="The returned pytree; tensors are {'ref': name}.")
    training: bool = Field(False, description="The module was captured in train mode.")

    def listing(self) -> str:
        """Canonical text: one `name: dtype[shape] = op(args)` a line; equal graphs have equal listings."""
        lines = []
        for node in self.nodes:
            kind = (
                f"{node.dtype}[{','.join(map(str, node.shape))}]" if node.shape is not None else "?"
            )
            if node.op in ("input", "param", "buffer", "const"):
                lines.append(f"{node.name}: {kind} = {node.op}")
            else:
                operands = [_show(a) for a in node.args] + [
                    f"{k}={_show(v)}" for k, v in node.kwargs.items()
                ]
                op = node.op.removeprefix("aten.").removesuffix(".default")
                lines.append(f"{node.name}: {kind} = {op}({', '.join(operands)})")
        return "\n".join([*lines, f"return {_show(self.outputs)}"])

    def signature(self) -> tuple[str, ...]:
        """Return the operator sequence without shapes: equal for tasks of the same kind."""
        return tuple(n.op.split(".")[1] for n in self.nodes if n.op.startswith("aten."))


def _show(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"ref"}:
        return str(value["ref"])
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_show(v)}" for k, v in value.items()) + "}"
    return repr(value)


# ---------------------------------------------------------------- candidate and verdict

BackendName = str
"""A name of `dvk.backends.BACKENDS`, or `path/to/file.py:Name`."""


class Candidate(Record):
    """One attempt at a faster version: a whole Python file that defines `ModelNew`."""

    source: str = Field(
        description="Python text that defines ModelNew with the reference's constructor and forward signature."
    )
    backend: BackendName = Field(description="What its kernels are written in.")
    proposer: str = Field(
        "user", description="Who wrote it: user, composer, a strategy or a model."
    )
    title: str = Field(
        "", description="One line for people: the idea, e.g. `fused epilogue, vector width 8`."
    )
    skills: tuple[str, ...] = Field((), description="Names of the skills behind it.")
    recipes: tuple[str, ...] = Field((), description="Composer recipes applied, in order.")
    schedule: dict[str, Any] = Field(
        default_factory=dict, description="Composer schedule by kernel name; empty otherwise."
    )
    line: str = Field(
        "",
        description="The line of PyTorch that it is, e.g. `torch.compile`: dvk's text around the reference, as trusted as that.",
    )

    @property
    def id(self) -> str:
        """Content hash of the source."""
        return content_hash(self.source)


class Status(str, Enum):
    """The outcome of a candidate."""

    OK = "ok"
    """Compiled, ran and agreed with the reference on all inputs."""
    REJECTED = "rejected"
    """Rejected before running: no ModelNew, wrong signature, not Python."""
    COMPILE_ERROR = "compile_error"
    """A compiler (Python, g++, nvcc, Triton) rejected it."""
    LAUNCH_ERROR = "launch_error"
    """It raised or crashed while constructing or running."""
    MISMATCH = "mismatch"
    """It ran and was wrong: values, dtype, shape, stride, device, pytree or a mutated input."""
    TIMEOUT = "timeout"
    """It exceeded its time limit."""
    CHEAT = "cheat"
    """It tried to deceive the judge."""
    BROKEN_TASK = "broken_task"
    """The reference itself failed, so the result says nothing about the candidate."""


Tier = Literal["smoke", "search", "claim"]


class Interval(Record):
    """A measured ratio with its 95 % confidence interval."""

    SAYS_NOTHING: ClassVar[float] = 1e6
    """Assumed distance of an interval's ends from a value of unknown uncertainty, as a factor."""

    value: float = Field(
        description="Point estimate: median over paired samples of reference time / candidate time."
    )
    lo: float = Field(description="Lower end of the interval.")
    hi: float = Field(description="Upper end of the interval.")

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not 0 < self.lo <= self.value <= self.hi < float("inf"):
            raise ValueError(
                f"not an interval of a positive ratio: {self.lo} ≤ {self.value} ≤ {self.hi}"
            )
        return self

    @classmethod
    def unknown(cls, value: float) -> Interval:
        """Return a ratio of unknown uncertainty: its interval excludes nothing."""
        return cls(value=value, lo=value / cls.SAYS_NOTHING, hi=value * cls.SAYS_NOTHING)

    @property
    def known(self) -> bool:
        """Whether its ends were measured."""
        return self.hi / self.lo < self.SAYS_NOTHING

    def __str__(self) -> str:
        if not self.known:
            return f"{show_ratio(self.value)} [unknown]"
        digits = max(_digits(self.value), _digits(self.lo), _digits(self.hi))
        return f"{self.value:.{digits}f}× [{self.lo:.{digits}f}, {self.hi:.{digits}f}]"


def show_ratio(ratio: float) -> str:
    """Format a speedup for people, e.g. `2.31×`; with one more digit close to 1, to show the side."""
    return f"{ratio:.{_digits(ratio)}f}×"


def _digits(ratio: float) -> int:
    """Return the number of significant decimals."""
    if abs(ratio - 1) < 0.05:
        return 3
    return 0 if ratio >= 100 else 1 if ratio >= 10 else 2 if ratio >= 0.1 else 4


class Claim(Record):
    """Combined result of several fresh sets of processes: is the speedup reproducible?"""

    speedup: Interval = Field(
        description="Mean log-speedup over processes with its t-interval at `level`."
    )
    level: float = Field(
        0.95, description="Confidence of that interval: 0.99 at the first look, 0.96 at the last."
    )
    processes: tuple[float, ...] = Field(
        description="Median speedup of each fresh process, in the order measured."
    )
    control: Interval = Field(
        description="The reference against itself, by the same rules in the same processes (A/A)."
    )
    margin: float = Field(
        description="What the interval's lower end must exceed 1 by: max(1 %, 3 × the control's half-width, 3 × what it is off)."
    )
    holds: bool = Field(
        description="The lower end exceeds 1 + margin, with the same sign in every process."
    )
    why: str = Field("", description="Why it does not hold; empty when it does.")


class Timing(Record):
    """Paired times of reference and candidate."""

    candidate_ms: float = Field(description="Median time of one candidate call.")
    reference_ms: float = Field(
        description="Median time of one eager reference call, from the same pairs."
    )
    speedup: Interval = Field(description="Over the eager reference.")
    baselines: dict[str, Interval] = Field(
        default_factory=dict, description="Speedup over other baselines, e.g. `compile`, by name."
    )
    baselines_ms: dict[str, float] = Field(
        default_factory=dict, description="Median time of one call of each other baseline."
    )
    num_pairs: int = Field(description="Paired samples behind the interval.")
    seconds: float = Field(description="Wall clock spent measuring.")
    regime: Literal["end_to_end", "device"] = Field(
        "end_to_end",
        description="`end_to_end`: a call as users make it, host included, device idle before; "
        "`device`: both arms replayed from CUDA graphs that the judge captured.",
    )
    charged_ms: float = Field(
        0.0, description="Time a call that only the judge's clock saw; it is part of candidate_ms."
    )
    floor_ms: float | None = Field(
        None,
        description="Roofline: bytes that must move at the machine's measured bandwidth; null when unmeasured.",
    )
    claim: Claim | None = Field(None, description="Present at the claim tier.")


class Verdict(Record):
    """The judge's result for one candidate."""

    status: Status = Field(description="The outcome.")
    tier: Tier = Field(description="How far the judge was asked to go.")
    stage: Literal["static", "compile", "check", "time", "done"] = Field(
        description="Where it ended."
    )
    error: str | None = Field(
        None, description="The error, for a reader who wants to fix it; null if ok."
    )
    precision: str | None = Field(None, description="Precision class it was held to.")
    tolerance: float | None = Field(
        None, description="Largest admitted error relative to the output's scale."
    )
    worst_error: float | None = Field(
        None, description="Largest error seen, relative to the output's scale."
    )
    num_checks: int = Field(0, description="Input sets (seeds × shapes) compared.")
    shapes: tuple[str, ...] = Field((), description="The shape variants compared, as text.")
    timing: Timing | None = Field(
        None, description="Present if and only if ok at the search or claim tier on a timed device."
    )
    untimed_reason: str | None = Field(None, description="Why an ok verdict carries no timing.")
    machine: str = Field(
        "", description="Short fingerprint of the machine: CPU or GPU name, cores, torch version."
    )
    contract: Literal["module", "plan"] | None = Field(
        None,
        description="`module`: the candidate's own host code ran; `plan`: trusted code replayed its kernels.",
    )
    isolation: str = Field(
        "", description="What kept the candidate's process in, e.g. `landlock6+seccomp+net+user`."
    )
    weights: Literal["randomised", "same_seed"] | None = Field(
        None,
        description="Whether weights were drawn again and loaded, or only equal by construction under one seed.",
    )
    families: tuple[str, ...] = Field(
        (), description="Kinds of inputs compared, e.g. `native`, `zero_mean`."
    )
    skipped: dict[str, str] = Field(
        default_factory=dict, description="Kinds of inputs left out, each with the reason."
    )
    health: tuple[str, ...] = Field(
        (),
        description="What is degenerate about the problem: answers it accepts though they were not computed from its inputs.",
    )
    written_inputs: tuple[str, ...] = Field(
        (),
        description="Inputs that the reference writes in place: fresh for each call, compared after it.",
    )
    baselines_left_out: dict[str, str] = Field(
        default_factory=dict, description="Why a baseline that was asked for has no time."
    )
    notes: tuple[str, ...] = Field(
        (),
        description="What callers may want to know of a candidate that is right, e.g. that its output has other strides.",
    )
    coverage: float | None = Field(
        None,
        description="Share of device time in the candidate's own kernels, 0 to 1; null when not measured.",
    )
    compiled: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="By kernel: registers, spill_bytes, shared_bytes, as the compiler tells them.",
    )
    profile: dict[str, Any] | None = Field(
        None,
        description="Where the time goes (dvk.harness.profiling.profile); null unless asked for.",
    )
    cached: bool = Field(
        False,
        description="Taken from the verdict cache: judged before, on this machine, by this protocol.",
    )
    seconds: float = Field(0.0, description="Wall clock the judge spent.")
    stages_s: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds by stage: setup, record, compile, check, time, queue …",
    )
    log: str = Field("", description="The last part of what the candidate printed.")
    traceback: str = Field(
        "",
        description="Traceback of an exception inside dvk that ended the work on the task; empty otherwise.",
    )

    @property
    def degenerate(self) -> bool:
        """Whether the task cannot separate a real answer from a made-up one, so that its results say nothing."""
        return any(remark.startswith("degenerate") for remark in self.health)

    @model_validator(mode="after")
    def _consistent(self) -> Verdict:
        if self.timing is not None and self.status is not Status.OK:
            raise ValueError("timing belongs to ok verdicts only")
        if self.status is Status.OK and self.error:
            raise ValueError("an ok verdict has no error")
        if self.status is not Status.OK and not self.error:
            raise ValueError("a verdict that is not ok says what was wrong")
        if (
            self.status is Status.OK
            and self.timing is None
            and self.tier != "smoke"
            and not self.untimed_reason
        ):
            raise ValueError("an untimed ok verdict above the smoke tier says why")
        return self

    @property
    def faster(self) -> bool:
        """Whether the speedup's lower bound exceeds 1; at the claim tier, whether the claim holds."""
        if self.timing is None:
            return False
        return (
            self.timing.claim.holds
            if self.timing.claim is not None
            else self.timing.speedup.lo > 1.0
        )


# ---------------------------------------------------------------- episode


class Tokens(Record):
    """A model's prompt and answer as its own tokens, which the learner scores again."""

    prompt: tuple[int, ...] = Field(description="Token ids of the rendered conversation.")
    completion: tuple[int, ...] = Field(
        description="Token ids sampled, the stop token included where one ended it."
    )
    logprobs: tuple[float, ...] = Field(
        (), description="Log-probability of each completion token under the sampling distribution."
    )

    @model_validator(mode="after")
    def _paired(self) -> Tokens:
        if self.logprobs and len(self.logprobs) != len(self.completion):
            raise ValueError(
                f"{len(self.logprobs)} log-probabilities for {len(self.completion)} tokens"
            )
        return self


class Turn(Record):
    """One attempt and its result."""

    messages: tuple[dict[str, Any], ...] = Field(
        (), description="What the model was shown; empty for the composer."
    )
    completion: str = Field("", description="What the model answered; empty for the composer.")
    tokens: Tokens | None = Field(
        None, description="The same as token ids; null where the backbone does not tell them."
    )
    finish: Literal["stop", "length", "error"] | None = Field(
        None,
        description="Why the model stopped: by itself, at the token limit, or because its server failed; null for the composer.",
    )
    redrawn: int = Field(
        0, description="Answers before this one that could not be read and were drawn again."
    )
    malformed: str | None = Field(
        None,
        description="Why the answer, or a part of it, could not be used; null when all of it was.",
    )
    chosen: tuple[str, ...] = Field(
        (), description="Names of the skills that a selection answer picked."
    )
    candidate: Candidate | None = Field(None, description="What was read from the answer.")
    verdict: Verdict | None = Field(None, description="What the judge said of it.")
    reward_terms: dict[str, float] = Field(
        default_factory=dict, description="Named parts of the reward."
    )
    reward: float | None = Field(None, description="Weighted sum of the terms.")
    advantage: float | None = Field(None, description="Credit after comparison with peers.")
    elapsed_s: float = Field(
        0.0, description="Seconds since the episode began when the verdict came."
    )


Role = Literal["selection", "policy", "summary"]


class Trace(Record):
    """One role's conversation."""

    role: Role = Field(description="Which of the three agents spoke.")
    scheme: int | None = Field(
        None,
        description="Which selection of skills this is or was given, from 0; null for the null scheme.",
    )
    rollout: int = Field(
        0, description="Which of the conversations under equal conditions this is, from 0."
    )
    peer_group: str = Field("", description="Traces that are compared with each other share this.")
    skills: tuple[str, ...] = Field(
        (), description="Names of the skills given; to a selection, of those it could choose from."
    )
    turns: tuple[Turn, ...] = Field((), description="In the order they were played.")

    @property
    def broken(self) -> bool:
        """Whether the backbone or the judge failed in it, so that its reward is unknown."""
        return any(
            t.finish == "error" or t.verdict is not None and t.verdict.status is Status.BROKEN_TASK
            for t in self.turns
        )


class Skill(Record):
    """A piece of kernel-writing knowledge."""

    name: str = Field(description="Identity: snake_case.", pattern=r"^[a-z0-9][a-z0-9_]*$")
    description: str = Field(description="One line: what it is and when it pays.")
    scope: str = Field("general", description="`general` or `task_specific/<kind>`.")
    tags: tuple[str, ...] = Field((), description="Three to six words to find it by.")
    body: str = Field(description="Markdown: motivation, key idea, example, pitfalls.")
    recipe: str | None = Field(
        None, description="Name of the composer recipe that executes it, if there is one."
    )
    relations: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="refines / conflicts / combines → skill names."
    )
    provenance: dict[str, Any] = Field(
        default_factory=dict, description="Where it came from: seed, import, run, user."
    )
    evidence: tuple[dict[str, Any], ...] = Field(
        (), description="Measured effects: task, machine, speedup with interval."
    )


class Episode(Record):
    """All traces of one task."""

    task: Task = Field(description="What was to be made faster.")
    step: int = Field(0, description="Training step, 0 outside training.")
    traces: tuple[Trace, ...] = Field((), description="One a role and conversation.")
    proposed_skills: tuple[Skill, ...] = Field(
        (), description="What the summary role would add to the library."
    )


PROTOCOL = 11
"""Version of verdicts; raised when the judge would decide differently or a verdict's fields change their meaning."""
