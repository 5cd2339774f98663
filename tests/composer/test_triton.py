"""The Triton renderer: right results for every family and schedule, and code that compiles for sm_90."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from dvk.composer.codegen import triton as renderer
from dvk.composer.codegen.analysis.tiles import needs_int64
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.schedules.triton import TritonLooped, TritonSplit, TritonTile
from tests.composer.attention_cases import (
    ATTENTION_CASES,
    over_all,
    over_parts,
    over_queries,
    single,
    twice,
)
from tests.composer.children import answers
from tests.composer.packed_cases import PACKED_CASES
from tests.composer.triton_cases import CASES, LONG, SCALARS, SPECIALS, WIDE, Function, rand
from tests.composer.triton_own_cases import OWN_CASES
from tests.composer.triton_programs import Program, nth


@pytest.mark.parametrize(("body", "fused"), [("tl.dot(a, a)", True), ("tl.exp(a)", False)])
def test_products_are_rounded_before_they_are_added_to(body: str, fused: bool) -> None:
    """With the launcher that all Triton texts share, compact ones too."""
    asked: list[dict[str, Any]] = []

    class Kernel:
        fn = staticmethod(eval(f"lambda a: {body}"))

        def __getitem__(self, grid: tuple[int]) -> Callable[..., object]:
            return lambda *_, **options: asked.append(options)

    made: dict[str, Any] = {"torch": torch}
    exec(renderer.LAUNCHER, made)
    made["dvk_launcher"](Kernel(), 7, 4)(torch.zeros(4))
    assert asked == [{"num_warps": 4, "enable_fp_fusion": fused}]


def launcher(kernel: object) -> Callable[..., None]:
    """The launcher of three programs of four warps; the stream of device n is 40 + n."""
    driver = SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda device: 40 + device))
    made: dict[str, Any] = {
        "torch": torch,
        "triton": SimpleNamespace(runtime=SimpleNamespace(driver=driver)),
    }
    exec(renderer.LAUNCHER, made)
    launch: Callable[..., None] = made["dvk_launcher"](kernel, 3, 4)
    return launch


def test_later_launches_use_the_build_for_their_device_and_alignment() -> None:
    """On the current stream, as Triton itself calls it; compiled again if either differs."""
    compiled: list[tuple[int, ...]] = []
    launched: list[tuple[object, ...]] = []

    class Compiled:
        asm, function, packed_metadata = {}, 7, "packed"
        metadata = SimpleNamespace(num_ctas=1, shared=0)

        def run(self, *arguments: object) -> None:
            launched.append(arguments)

    class Kernel:
        fn = staticmethod(lambda a, b: None)

        def __getitem__(self, grid: tuple[int]) -> Callable[..., object]:
            def first(*tensors: torch.Tensor, **_: object) -> Compiled:
                compiled.append((*grid, *(t.data_ptr() for t in tensors)))
                return Compiled()

            return first

    class OnGpu(torch.Tensor):
        def get_device(self) -> int:
            return 1

    launch = launcher(Kernel())
    room = torch.zeros(64)
    aligned = -room.data_ptr() % 16 // 4
    a, b, odd = (room[aligned + start :][:8].as_subclass(OnGpu) for start in (0, 16, 33))
    for tensors in ((a, b), (a, b), (b, a), (a, odd), (a, odd)):
        launch(*tensors)
    assert compiled == [(3, a.data_ptr(), b.data_ptr()), (3, a.data_ptr(), odd.data_ptr())]
    ours = [
        (3, 1, 1, 41, 7, "packed", None, None, None, x.data_ptr(), y.data_ptr())
        for x, y in ((a, b), (b, a), (a, odd))
    ]
    assert launched == ours


@pytest.mark.parametrize("scratch", [0, 128])
def test_a_kernel_without_scratch_memory_is_launched_by_pytorch(
    scratch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an address for each tensor, and none for the scratch memory that its signature ends in."""
    launched: list[tuple[object, ...]] = []
    by_triton: list[tuple[object, ...]] = []
    direct = SimpleNamespace(_launch_kernel=lambda *given: launched.append(given))
    monkeypatch.setattr(torch._C, "_StaticCudaLauncher", direct, raising=False)
    about = SimpleNamespace(
        num_ctas=1, shared=96, global_scratch_size=scratch, profile_scratch_size=0
    )
    compiled = SimpleNamespace(
        asm={},
        function=7,
        packed_metadata="packed",
        metadata=about,
        run=lambda *given: by_triton.append(given),
    )

    class Kernel:
        fn = staticmethod(lambda a, b: None)

        def __getitem__(self, grid: tuple[int]) -> Callable[..., object]:
            return lambda *_, **__: compiled

    launch = launcher(Kernel())
    a, b = torch.zeros(4), torch.zeros(4)
    for _ in range(2):
        launch(a, b)
    where = a.data_ptr(), b.data_ptr()
    expected = (7, 3, 1, 1, 4, 96, "OOOO", (*where, None, None), 39)
    assert launched == ([] if scratch else [expected])
    assert by_triton == ([(3, 1, 1, 39, 7, "packed", None, None, None, *where)] if scratch else [])


def test_triton_is_called_as_the_installed_one_calls_itself() -> None:
    from triton.backends.nvidia.driver import CudaLauncher

    names = [*inspect.signature(CudaLauncher.__call__).bind(*range(12)).arguments][1:]
    assert (
        names == ["args"]
        or names[3:5] == ["stream", "function"]
        and names[-1] == "args"
        and len(names) == 10
    )


def child(mode: str) -> dict[str, list[str]]:
    """Key → errors."""
    return {a["key"]: a["wrong"] for a in answers("tests.composer.triton_child", mode)}


@pytest.fixture(scope="module")
def interpreted() -> dict[str, list[str]]:
    return child("interpret")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_every_schedule_agrees_with_torch(interpreted: dict[str, list[str]], name: str) -> None:
    assert interpreted[f"case:{name}"] == []


@pytest.fixture(scope="module")
def own() -> dict[str, list[str]]:
    return child("own")


@pytest.mark.parametrize("name", OWN_CASES)
@pytest.mark.slow
def test_windows_positions_scans_and_products_agree_with_torch_under_every_schedule(
    own: dict[str, list[str]], name: str
) -> None:
    assert own[f"own:{name}"] == []


@pytest.fixture(scope="module")
def production() -> dict[str, list[str]]:
    return child("production")


@pytest.mark.parametrize("name", [*PACKED_CASES, *ATTENTION_CASES])
@pytest.mark.slow
def test_packed_weights_and_attention_agree_with_torch_under_every_schedule(
    production: dict[str, list[str]], name: str
) -> None:
    assert production[f"production:{name}"] == []


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.slow
def test_every_schedule_agrees_with_torch_with_64_bit_offsets(
    interpreted: dict[str, list[str]], name: str
) -> None:
    assert interpreted[f"wide:{name}"] == []
    assert interpreted[f"far:{name}"] == []


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.slow
def test_scalar_function_is_accurate(interpreted: dict[str, list[str]], name: str) -> None:
    assert interpreted[f"scalar:{name}"] == []


@pytest.mark.parametrize("name", SPECIALS)
@pytest.mark.slow
def test_nan_and_infinity_come_out_where_torch_has_them(
    interpreted: dict[str, list[str]], name: str
) -> None:
    assert interpreted[f"special:{name}-40"] == []
    if name in LONG:
        assert interpreted[f"special:{name}-1100"] == []


def kernel_of(function: Callable[..., Any], *args: torch.Tensor, device: str = "cpu") -> Any:
    (kernel,) = Program(Function(function), list(args), device).kernels.values()
    return kernel


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


@pytest.mark.parametrize("name", [*CASES, *OWN_CASES])
@pytest.mark.slow
def test_schedules_are_few_distinct_plain_data_with_the_default_first(name: str) -> None:
    torch.manual_seed(0)
    case = (CASES | OWN_CASES)[name]
    for kernel in Program(Function(case.function), case.args()).kernels.values():
        options = renderer.schedules(kernel)
        assert 1 <= len(options) <= 12
        assert options[0] == renderer.default_schedule(kernel)
        assert len({json.dumps(o.printed(), sort_keys=True) for o in options}) == len(options)
        for option in options:
            assert codegen("triton").parse(json.loads(json.dumps(option.printed()))) == option
            assert renderer.render(kernel, option)


@pytest.mark.parametrize("forward", [over_all, over_parts, over_queries])
def test_a_softmax_over_other_than_the_keys_is_no_attention(
    forward: Callable[..., torch.Tensor],
) -> None:
    args = [rand(2, 16, 16) for _ in "qkv"]
    assert [k.family for k in Program(Function(forward), args).kernels.values()][::2] == [
        "product"
    ] * 2


def test_a_product_between_two_attentions_belongs_to_one() -> None:
    args = [rand(2, 20, 24), *(rand(2, 16, 24) for _ in "kv"), rand(2, 24, 8)]
    families = [k.family for k in Program(Function(twice), args).kernels.values()]
    assert sorted(families) == ["attention", "product", "row"]


def test_one_query_without_splits_stores_one_row() -> None:
    kernel = kernel_of(single, rand(2, 4, 1, 32), *(rand(2, 4, 100, 32) for _ in "kv"))
    text = renderer.render(kernel, renderer.default_schedule(kernel))
    assert "tl.sum(tl.where(ymask, " in text and "0, keep_dims=True)" in text
    many = kernel_of(single, rand(2, 4, 20, 32), *(rand(2, 4, 100, 32) for _ in "kv"))
    assert "0, keep_dims=True)" not in renderer.render(many, renderer.default_schedule(many))


def test_sizes_that_divide_need_no_mask() -> None:
    kernel = kernel_of(lambda x: torch.relu(x) * 2, rand(64, 64))
    assert "mask" not in renderer.render(kernel, renderer.default_schedule(kernel))
    odd = kernel_of(lambda x: torch.relu(x) * 2, rand(63, 63))
    assert "xmask" in renderer.render(odd, renderer.default_schedule(odd))


def test_whole_blocks_of_an_odd_number_of_elements_need_no_mask() -> None:
    flat = kernel_of(lambda x: x + 1, meta(3, 1367))
    assert "if tl.program_id(0) < " in renderer.render(flat, renderer.default_schedule(flat))
    even = kernel_of(lambda x: x + 1, meta(4, 1367))
    assert "if " not in renderer.render(even, renderer.default_schedule(even))
    total = kernel_of(lambda x: x.sum(), meta(3, 30001))
    (split,) = [s for s in renderer.schedules(total) if s.kind == "split"][:1]
    text = renderer.render(total, split)
    loop = text[text.index("for r0") : text.index("if whole < left")]
    assert "mask" not in loop


def test_contiguous_inputs_are_walked_by_one_index_without_division() -> None:
    kernel = kernel_of(lambda x, y: torch.exp(x) + y, rand(3, 5, 7), rand(3, 5, 7))
    text = renderer.render(kernel, renderer.default_schedule(kernel))
    assert "//" not in text and "%" not in text


def test_a_tile_of_a_broadcast_needs_no_division() -> None:
    kernel = kernel_of(lambda x, b: x + b, meta(4096, 4096), meta(4096))
    schedule = renderer.default_schedule(kernel)
    assert isinstance(schedule, TritonTile)
    body = renderer.render(kernel, schedule).split("tl.load")[1:]
    assert not any("//" in part for part in body)


def test_offsets_beyond_two_billion_elements_are_64_bit() -> None:
    small = kernel_of(lambda x: x + 1, meta(1 << 20))
    assert "int64" not in renderer.render(small, renderer.default_schedule(small))
    for function in (
        lambda x: x + 1,
        lambda x: torch.softmax(x, -1),
        lambda x: x.sum(0),
        lambda x: x.sum(),
    ):
        kernel = kernel_of(function, meta(1 << 16, 1 << 16))
        for schedule in renderer.schedules(kernel):
            assert ".to(tl.int64)" in renderer.render(kernel, schedule), schedule
    few = kernel_of(
        lambda x: torch.nn.functional.interpolate(x, size=(9, 9)) + 1, meta(1, 1, 1 << 16, 1 << 16)
    )
    assert needs_int64(few)


def test_a_cross_entropy_loads_its_target_instead_of_comparing_every_element() -> None:
    kernel = kernel_of(
        lambda x, t: torch.nn.functional.cross_entropy(x, t, reduction="none"),
        rand(16, 256),
        torch.zeros(16, dtype=torch.int64),
    )
    text = renderer.render(kernel, renderer.default_schedule(kernel))
    assert text.count("tl.sum(") == 1 and text.count("tl.load(a0") == 2


def test_variance_of_a_long_row_reads_it_once_when_online() -> None:
    kernel = kernel_of(lambda x: torch.var(x, 1), meta(512, 1 << 17), device="cuda")
    online = next(s for s in renderer.schedules(kernel) if isinstance(s, TritonLooped) and s.online)
    assert renderer.render(kernel, online).count("for r0") == 1
    assert renderer.render(kernel, replace(online, online=False)).count("for r0") == 2


@pytest.mark.parametrize("kind", ["persistent", "looped", "split"])
def test_row_values_are_stored_last_computed_first(kind: str) -> None:
    """Triton 3.6 does not compile these kernels otherwise: "operand #0 does not dominate this use"."""

    def updated(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean = x.mean(1, True)
        var = (x - mean).square().mean(1, True)
        safe = torch.where(var > 1e-3, mean, 0.0)
        return safe, a + (var - a) * 0.1, (x - safe) * torch.rsqrt(var), b + (safe - b) * 0.1

    kernel = kernel_of(updated, meta(64, 1600, 40), meta(64, 1, 40), meta(64, 1, 40))
    schedule = next(s for s in renderer.schedules(kernel) if s.kind == kind)
    last = renderer.functions(kernel, schedule)[0][-1].text.splitlines()
    stored = [line for line in last if line.startswith("    tl.store(o")]
    values = [int(line.split(", v")[1].split(",")[0].rstrip(")")) for line in stored]
    assert len(values) >= 3
    assert values == sorted(values, reverse=True)


def test_a_split_reduction_allocates_its_partial_results_and_launches_a_second_kernel() -> None:
    kernel = kernel_of(lambda x: x.sum(), meta(1 << 12, 1 << 12))
    schedule = renderer.default_schedule(kernel)
    assert isinstance(schedule, TritonSplit)
    lines = renderer.launch(kernel, schedule, ["x"], ["y"])
    assert lines == [
        f"_k0_float32 = dvk_allocate(({schedule.splits},), (1,), torch.float32)",
        "run_k0_0(x, _k0_float32)",
        "run_k0_1(y, _k0_float32)",
    ]


def test_quantised_rows_are_converted_once_and_their_maximum_needs_no_care_for_nan() -> None:
    def quantised(x: torch.Tensor) -> Any:
        scale = x.abs().amax(-1, keepdim=True) / 448.0
        return (x / scale).to(torch.float8_e4m3fn), scale

    kernel = kernel_of(quantised, rand(8, 64))
    text = renderer.render(kernel, renderer.default_schedule(kernel))
    stored = next(line for line in text.splitlines() if "tl.store(o1" in line)
    assert stored.count("dvk_float8_e4m3fn(v") == 1 and "dvk_wide" not in stored
    value = stored.split("dvk_float8_e4m3fn(")[1].split(")")[0]
    assert f"{value} = dvk_wide" not in text and "dvk_max" not in renderer.prelude([kernel])


def test_helpers_appear_only_when_used() -> None:
    plain, tanh = kernel_of(lambda x: x + 1, rand(8, 8)), kernel_of(torch.tanh, rand(8, 8))
    assert "dvk_tanh" not in renderer.prelude([plain])
    assert renderer.prelude([plain, tanh]).index("def dvk_expm1") < renderer.prelude(
        [plain, tanh]
    ).index("def dvk_tanh")


def test_the_text_names_its_operators() -> None:
    program = Program(Function(lambda x, b: torch.relu(x + b)), [rand(8, 8), rand(8)])
    assert "# add → max" in program.text(nth(0))


@pytest.mark.hand
@pytest.mark.slow
def test_every_kind_compiles_for_sm90_with_wide_loads() -> None:
    answers = child("compile")
    assert len(answers) > len(SCALARS) + 12
    assert {key: wrong for key, wrong in answers.items() if wrong} == {}


@pytest.mark.gpu
def test_every_schedule_agrees_with_torch_on_a_gpu() -> None:
    answers = child("gpu")
    assert len(answers) >= len(CASES)
    assert {key: wrong for key, wrong in answers.items() if wrong} == {}
