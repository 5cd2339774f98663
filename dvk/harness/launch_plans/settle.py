"""Reduction of a record of several calls to a plan: steps done once per load, and steps of every call.

The steps before the second call construct the module, load its weights and make its first call. Of these only steps are kept whose results
later calls use and that do not depend on an input. The second and third call must be the same program; the third is the plan's.

A module's random initial values are gone once `load_state_dict` has overwritten them; if they are still
used, there is no plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dvk.harness.launch_plans.plan import Aten, KernelLaunch, NotReducible, references
from dvk.harness.launch_plans.tape import Tape, TapeStep


def same_program(
    tape: Tape, first: list[TapeStep], second: list[TapeStep], inputs: tuple[list[int], list[int]]
) -> bool:
    """Whether two calls do the same, up to the numbers of their values."""
    return _canonical(tape, first, inputs[0]) == _canonical(tape, second, inputs[1])


def _canonical(tape: Tape, steps: list[TapeStep], inputs: list[int]) -> list[Any]:
    names: dict[int, Any] = {value: f"input {n}" for n, value in enumerate(inputs)}

    def rename(item: Any) -> Any:
        if isinstance(item, dict) and set(item) == {"ref"}:
            const = tape.consts.get(item["ref"])
            return names.get(item["ref"], (const.layout, const.data) if const else item["ref"])
        if isinstance(item, dict):
            return {key: rename(value) for key, value in item.items()}
        return [rename(value) for value in item] if isinstance(item, (list, tuple)) else item

    result: list[Any] = []
    for step in steps:
        node = step.node
        if isinstance(node, KernelLaunch):
            arguments = rename(
                [a.model_dump() if not hasattr(a, "ref") else {"ref": a.ref} for a in node.args]
            )
            result.append((node.cubin, node.grid, node.block, node.shared_bytes, arguments))
            continue
        result.append((node.op, rename(node.args), rename(node.kwargs)))
        for out in node.outs:
            if out is not None:
                names[out] = f"value {len(names)}"
    return result


def prepare(
    tape: Tape,
    making: list[TapeStep],
    first: list[TapeStep],
    call: list[TapeStep],
    inputs: set[int],
    own: set[int],
    results: set[int],
) -> list[Aten | KernelLaunch]:
    """Return the steps before a call that a plan keeps.

    Args:
        making: steps up to the loaded weights.
        first: the first calls. Their writes into the module's state are results, not preparation.
        call: the plan's call.
        inputs: values of the tensors of all calls in `first`.
        own: values of the module's state, and those it was loaded from.
        results: values besides those of `call` that must exist.

    Raises:
        NotReducible: the call uses a value computed from an earlier call's inputs, or one that cannot be in a plan.
    """
    made = {out for step in call for out in outs_of(step)}
    needed = ({v for step in call for v in references(step.node)} | results) - made
    if needed & inputs:
        raise NotReducible("it keeps an earlier call's input")
    setup = [*making, *first]
    tainted = _tainted(setup, inputs)
    wanted = _Wanted(tape, needed, {tape.memory[value] for value in needed})
    state = {tape.memory[value] for value in own}
    kept: list[Aten | KernelLaunch] = []
    for number in reversed(range(len(setup))):
        its_own = state if number >= len(making) else set()
        node = wanted.node_of(setup[number], number in tainted, its_own)
        if node is not None:
            kept.append(node)
    return kept[::-1]


@dataclass
class _Wanted:
    """What the steps after one need of it, going backwards."""

    tape: Tape
    values: set[int]
    content: set[int]
    """Memory whose contents are read."""
    bare: set[int] = field(default_factory=set)
    """Memory that must exist, with any contents."""

    def node_of(self, step: TapeStep, tainted: bool, state: set[int]) -> Aten | KernelLaunch | None:
        """Return what is kept of a step, or None, and add its needs.

        Args:
            step: the step before those seen so far.
            tainted: it depends on an input.
            state: memory whose writes are results of calls.

        Raises:
            NotReducible: see `prepare`.
        """
        outs = self.values & set(outs_of(step))
        writes = set(step.writes) & self.content - state
        creates = set(step.creates) & (self.content | self.bare)
        if not (outs or writes or creates):
            return None
        if tainted:
            if outs or creates:
                raise NotReducible("it keeps values computed from an earlier call's inputs")
            return None  # its own call will write there again
        if (
            creates
            and not creates & self.content
            and isinstance(step.node, Aten)
            and len(step.creates) == 1
        ):
            ((memory, value),) = step.creates.items()
            if not set(step.writes) - {memory}:
                self.bare.discard(memory)
                return _empty(self.tape, value)
        if step.problem:
            raise NotReducible(step.problem)
        self._add(step, writes)
        return step.node

    def _add(self, step: TapeStep, writes: set[int]) -> None:
        """Add what a kept step reads."""
        used = set(references(step.node))
        self.values |= used
        if not (step.writes or step.creates):
            return  # a view reads nothing
        read = {self.tape.memory[value] for value in used}
        if step.overwrites in writes:
            assert step.overwrites is not None
            read.discard(step.overwrites)
            self.content.discard(step.overwrites)
            self.bare.add(step.overwrites)
        self.content = (self.content | read) - set(step.creates)


def written_again(tape: Tape, call: list[TapeStep], returned: list[int], others: set[int]) -> bool:
    """Whether a call writes results into memory that it has not made and that is not among `others`: state or inputs."""
    written = {memory for step in call for memory in step.writes} - {
        memory for step in call for memory in step.creates
    }
    return bool(
        {tape.memory[value] for value in returned}
        & (written - {tape.memory[value] for value in others})
    )


def _tainted(steps: list[TapeStep], inputs: set[int]) -> set[int]:
    """Return numbers of the steps that depend on an input."""
    values, result = set(inputs), set()
    for number, step in enumerate(steps):
        if values & set(references(step.node)):
            result.add(number)
            values |= set(outs_of(step))
    return result


def _empty(tape: Tape, value: int) -> Aten:
    layout = tape.layouts[value]
    where = {"dtype": {"dtype": layout.dtype}, "device": {"device": layout.device}}
    return Aten(
        op="aten.empty_strided.default",
        args=(list(layout.shape), list(layout.strides)),
        kwargs=where,
        outs=(value,),
    )


def without_idle_views(steps: list[TapeStep], results: set[int]) -> list[TapeStep]:
    """Return the steps of a call without unused views, which do nothing on a device."""
    used, kept = set(results), []
    for step in reversed(steps):
        view = isinstance(step.node, Aten) and not step.writes and not step.creates
        if not view or used & set(outs_of(step)):
            kept.append(step)
            used |= set(references(step.node))
    return kept[::-1]


def outs_of(step: TapeStep) -> list[int]:
    """Return values that a step makes."""
    return [out for out in step.node.outs if out is not None] if isinstance(step.node, Aten) else []


def on_device(
    tape: Tape, prepared: list[Aten | KernelLaunch], call: list[TapeStep]
) -> tuple[list[Aten | KernelLaunch], list[Aten | KernelLaunch]]:
    """Split into preparation and call, such that the call moves nothing between host and device.

    Its host computations use constants alone, so they move to `prepare`; a transfer becomes a copy on the device.

    Raises:
        NotReducible: results of the device go to the host.
    """
    prepared, steady = list(prepared), []
    hosted = lambda value: tape.layouts[value].device == "cpu"  # noqa: E731
    fresh = max(tape.layouts, default=0) + 1
    for step in call:
        node = step.node
        if step.problem:
            raise NotReducible(step.problem)
        used, made = list(references(node)), outs_of(step)
        if isinstance(node, KernelLaunch) or not (any(hosted(v) for v in used + made)):
            steady.append(node)
        elif all(hosted(v) for v in used + made):
            prepared.append(node)
        elif any(hosted(v) for v in made):
            raise NotReducible("its call moves results to the host")
        elif all(hosted(v) for v in used) and len(made) == 1:
            held, fresh = fresh, fresh + 1
            tape.layouts[held] = tape.layouts[made[0]]
            prepared.append(
                node.model_copy(
                    update={"outs": tuple(held if out == made[0] else out for out in node.outs)}
                )
            )
            steady.append(
                Aten(op="aten.clone.default", args=({"ref": held},), kwargs={}, outs=tuple(made))
            )
        elif all(not hosted(v) or not tape.layouts[v].shape for v in used):
            steady.append(node)  # a number on the host, read when the operator is called
        else:
            raise NotReducible("its call moves tensors from the host")
    return prepared, steady
