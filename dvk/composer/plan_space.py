"""The plans of one task: recipes that apply, the kernels under each set of them, the default, candidates, texts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from dvk.composer.capture.export import CapturedGraph
from dvk.composer.codegen.base import codegen
from dvk.composer.compose import Composition, Plan, fuse, write
from dvk.composer.ir.effects import packet_of
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.recurrence import GATES
from dvk.composer.ir.schedules.base import Schedule
from dvk.composer.lowering.matmul import RECIPE as PRODUCTS
from dvk.composer.plan_line import read_plan, write_plan
from dvk.composer.recipes import OWN_FAMILIES, RECIPES, applicable_to
from dvk.records import BackendName, Candidate, Task
from dvk.target import DEFAULT, Target

MEASURED = (
    *OWN_FAMILIES,
    "attention",
    "attention_finite",
    "channels_last",
    "common_subexpressions",
    "cuda_graph",
    "chunked_steps",
    "cudnn_benchmark",
    "fold_scale",
    "grouped_experts",
    "inplace_epilogue",
    "lists_apart",
    "nucleus",
    "operator_parts",
    "pack_linears",
    "packed_weights",
    "recurrent_cells",
    "recurrent_sequences",
)
"""Recipes that may lose: tried against the best so far. The others always save work."""
FIRST = ("packed_weights", "channels_last", "chunked_steps")
"""Recipes that are tried before the others, in this order, as they gain most where they apply."""
WITH = {
    "own_attention": ("own_matmul",),
    "own_convolution": ("channels_last",),
    "packed_weights": ("channels_last",),
    "operator_parts": ("own_windows", "own_gathers", "own_moves", "own_arg_reductions"),
    "grouped_experts": ("own_gathers", "own_matmul", "own_scans"),
}
"""Recipes that pay only with others, and are tried with them."""
SAVING = ("operator_parts", "own_windows", "own_gathers", "own_scatters", "own_moves", "own_scans")
"""Families that save passes over memory: on an H200 41 of 42 measured plans of training tasks gained by one of them, 1.53x."""
SMALL_PRODUCT = 1 << 24
"""Multiplications of a matrix product up to which a kernel beats the library: in float32 it took 3.1 us for 15 million of them on an H200,
and the library, with the bias behind it, 7.4 us."""
LIBRARY = ("channels_last", "cudnn_benchmark")
"""Recipes that change how a library is called: tried without kernels in its place, too."""
MANY_CALLS = 24
"""Calls of kernels and libraries from which the host is taken to be the bottleneck: all structures are tried as CUDA graphs. A recurrent
network of the library is as many."""
MOST_MADE = 64
"""Candidates kept: samples of one task repeat themselves, and writing one takes 30 ms."""
PARTS = "operator_parts"
BIAS = "convolution_bias"
"""Recipe that takes a bias out of the library: nothing else is gained where a call of it is alone."""
AS_IT_IS = "as it is"
FUSED = "fused"
"""Title of the user's own model among the candidates."""


class PlanSpace:
    """See the module.

    Args:
        task: the reference.
        captured: its graph.
        backend: what kernels are written in.
        target: the device whose facts choose default schedules.
        inexact: include recipes that are exact for finite values alone.

    Attributes:
        order: recipes that apply, in the order of their application.
    """

    def __init__(
        self,
        task: Task,
        captured: CapturedGraph,
        backend: BackendName,
        target: Target = DEFAULT,
        *,
        inexact: bool = False,
    ):
        self.task, self.captured, self.backend, self.target = task, captured, backend, target
        self.order = applicable_to(captured, task.device, backend, inexact=inexact)
        self._fused: dict[tuple[str, ...], Composition] = {}
        self._made: dict[tuple[Hashable, ...], Candidate] = {}

    def fused(self, recipes: Iterable[str]) -> Composition:
        """The graph's kernels under some recipes; of a network made in a tenth of a second, and asked for with every candidate."""
        key = tuple(name for name in recipes if RECIPES[name].kind in ("graph", "fusion"))
        if key not in self._fused:
            self._fused[key] = fuse(self.task, self.captured, key)
        return self._fused[key]

    def first(self, kernel: Kernel) -> Schedule:
        """The schedule of a kernel whose plan names none."""
        return next(iter(codegen(self.backend).schedules(kernel, self.target)))

    def filled(self, plan: Plan) -> Plan:
        """The plan with a schedule for every kernel."""
        kernels = self.fused(plan.recipes).ordered
        return Plan(
            plan.recipes, {k.name: plan.schedules.get(k.name) or self.first(k) for k in kernels}
        )

    def candidate(self, plan: Plan, title: str) -> Candidate:
        """The drop-in that executes `plan`.

        Equal programs have equal sources, under whatever title: nothing is judged twice.
        """
        composition, plan = self.fused(plan.recipes), self.filled(plan)
        key = (plan.recipes, *plan.schedules.items())
        if key not in self._made:
            if len(self._made) == MOST_MADE:
                self._made.clear()
            self._made[key] = self._written(composition, plan)
        return self._made[key].model_copy(update={"title": title})

    def _written(self, composition: Composition, plan: Plan) -> Candidate:
        made = write(self.task, self.captured, composition, plan, self.backend)
        used = {r for r in plan.recipes if RECIPES[r].kind != "schedule"}
        for kernel in composition.ordered:
            used |= codegen(self.backend).recipes_of(kernel, plan.schedules[kernel.name])
        recipes = tuple(r for r in self.order if r in used)
        return made.model_copy(update={"recipes": recipes})

    # ------------------------------------------------------------ structures

    @property
    def default(self) -> Plan:
        """The composer's own plan."""
        return self.structures()[0][0]

    def structures(self) -> list[tuple[Plan, str]]:
        """The plain fusion first, then each recipe that has to be tested."""
        always = tuple(r for r in self.order if r not in MEASURED)
        own = tuple(r for r in self.order if r in (PARTS, *OWN_FAMILIES))
        if not _works(self.fused(always)) and self.fused((*always, *own)).ordered:
            # Without them all would be left to torch, with nothing to measure.
            always = (*always, *own)
        title, ending = FUSED if always else AS_IT_IS, ""
        if self.makes_many_calls(always):
            always, ending = (*always, "cuda_graph"), ", as a CUDA graph"
        measured = [r for r in self.order if r in MEASURED and r not in (*always, "cuda_graph")]
        measured.sort(key=lambda r: FIRST.index(r) if r in FIRST else len(FIRST))
        plans = [(Plan(always), title + ending)]
        for recipe in measured:
            both = (*(r for r in WITH.get(recipe, ()) if r in measured), recipe)
            plans.append((Plan((*always, *both)), f"with {' and '.join(both)}{ending}"))
        return plans

    def proposals(self) -> list[tuple[Plan, str]]:
        """Structures in the order of a search: `structures` with the families that save memory traffic or starts of the library on a GPU,
        and without them last; where kernels stand only for calls of a library, that library called otherwise."""
        usual, *others = self.structures()
        if (called := self._library_alone()) is not None:
            return called
        more = tuple(r for r in SAVING if r in self.order and r not in usual[0].recipes)
        if self._has_small_products(usual[0].recipes):
            more = (*more, PRODUCTS)
        if self.task.device != "cuda" or not more:
            return [usual, *others]
        own = f"with {', '.join(more)}"
        ending = ", as a CUDA graph" if "cuda_graph" in usual[0].recipes else ""
        changed = [
            (Plan((*plan.recipes, *(r for r in more if r not in plan.recipes))), title)
            for plan, title in others
            if not set(more) & set(plan.recipes)
        ]
        return [(Plan((*usual[0].recipes, *more)), own + ending), *changed, usual]

    def _has_small_products(self, recipes: Sequence[str]) -> bool:
        """Matrix products that are left to the library are few multiplications each."""
        if PRODUCTS not in self.order or PRODUCTS in recipes:
            return False
        made = self.fused((*recipes, PRODUCTS)).ordered
        sizes = [k.num_rows * k.row_length for k in made if k.family == "product"]
        return bool(sizes) and max(sizes) <= SMALL_PRODUCT

    def _library_alone(self) -> list[tuple[Plan, str]] | None:
        """Proposals where calls of a library, and biases behind them, are all there is to do on a GPU; None elsewhere.

        The library called otherwise, kernels in its place, and the model itself: the floor that no plan may lose to.
        """
        kept = {r for r in self.order if r not in MEASURED}
        if (
            self.task.device != "cuda"
            or PARTS in self.order
            or _works(self.fused(tuple(r for r in self.order if r in kept - {BIAS})))
            or self.makes_many_calls(tuple(r for r in self.order if r in kept))
        ):
            return None
        kept |= {"inplace_epilogue"} if BIAS in kept else set()

        def plans(titled: str, *names: Iterable[str]) -> list[tuple[Plan, str]]:
            return [
                (
                    Plan(tuple(r for r in self.order if r in kept.union(more))),
                    titled.format(" and ".join(more)),
                )
                for more in names
            ]

        layout, measured = (
            plans("left to torch, with {}", (r,)) if r in self.order else [] for r in LIBRARY
        )
        bias = plans(f"left to torch, with {BIAS}", ()) if BIAS in kept else []
        own = [(*WITH.get(r, ()), r) for r in self.order if r in OWN_FAMILIES]
        owned = plans("with {}", *own)
        return [*bias, *layout, *owned[:1], (Plan(()), AS_IT_IS), *measured, *owned[1:]]

    def makes_many_calls(self, recipes: Sequence[str]) -> bool:
        """Whether calls are so many that only a CUDA graph shows what a recipe gains."""
        if "cuda_graph" not in self.order:
            return False
        made = self.fused(recipes)
        libraries = [prim for prim in made.part.users if prim.kind == "extern"]
        # The library launches kernels for each step of a recurrent network.
        recurrent = any(packet_of(prim.op) in GATES for prim in libraries)
        return recurrent or len(made.ordered) + len(libraries) >= MANY_CALLS

    # ------------------------------------------------------------ text

    def text(self, plan: Plan) -> str:
        """The plan as lines of text: what differs from the default."""
        kernels = self.fused(plan.recipes).ordered
        usual = Plan(self.choosable(self.default.recipes), {k.name: self.first(k) for k in kernels})
        asked = self.filled(plan)
        return write_plan(Plan(self.choosable(asked.recipes), asked.schedules), usual)

    def choosable(self, recipes: Iterable[str]) -> tuple[str, ...]:
        """Those of some recipes that a plan may take or leave; others only say what schedules do."""
        return tuple(name for name in recipes if RECIPES[name].kind != "schedule")

    def read(self, text: str, left_out: list[str] | None = None) -> Plan:
        """The plan in a text.

        Args:
            left_out: receives what cannot be read; None: that is an error.

        Raises:
            PlanError: it is none.
        """
        default = Plan(self.choosable(self.default.recipes))
        order = self.choosable(self.order)
        return read_plan(
            text, default, order, lambda names: self.fused(names).ordered, self.backend, left_out
        )


def _works(made: Composition) -> bool:
    """Some kernel is the composer's."""
    return bool(made.ordered or made.recurrences)
