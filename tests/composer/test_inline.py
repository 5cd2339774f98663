"""Code inside a module's own forward that no graph can hold is left to PyTorch, statement by statement."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from dvk.composer.ir.errors import CannotCompose
from tests.composer import inline_cases, inline_value_cases  # noqa: F401 - they fill the tables
from tests.composer.inline_tables import CASES, REFUSED
from tests.composer.partial_models import Made

GUARDED = {"branch on a value"}
"""The branch taken is a condition: the original runs if another one is taken."""


def state_of(model: torch.nn.Module) -> dict[str, Any]:
    """State that a call may have changed."""
    plain = {
        key: value
        for key, value in vars(model).items()
        if not key.startswith("_") and not callable(value)
    }
    return {
        **model.state_dict(),
        **{key: value for key, value in plain.items() if isinstance(value, (int, float, list))},
    }


def compared(name: str, training: bool) -> Made:
    """A case's drop-in, after calls with the example, other values and other sizes matched eager's."""
    source, inputs = CASES[name]
    made = Made(
        f"inline_{''.join(c if c.isalnum() else '_' for c in name)}", source, training, *inputs(0)
    )
    try:
        for seed in (0, 1, 2, 3, 1):
            mine, theirs = inputs(seed), inputs(seed)
            run, ended = type(made.new)._dvk_run, []

            def noting(*given: Any, run: Any = run, ended: Any = ended) -> Any:
                ended.append(run(made.new, *given))
                return ended[-1]

            made.new._dvk_run = noting
            with torch.no_grad():
                torch.manual_seed(7)
                got = made.new(*mine)
                torch.manual_seed(7)
                want = made.model(*theirs)
            del made.new._dvk_run
            torch.testing.assert_close(
                got,
                want,
                atol=1e-5,
                rtol=1e-4,
                msg=lambda text, seed=seed: f"{name}, inputs {seed}: {text}",
            )
            torch.testing.assert_close(mine, theirs)
            torch.testing.assert_close(
                state_of(made.new), state_of(made.model), atol=1e-5, rtol=1e-4
            )
            if seed < 3 and name not in GUARDED:
                assert ended and ended[0] is not getattr(made.candidate, "dvk_else", None), (
                    f"the program does not run for inputs {seed}"
                )
        assert "fused kernel" in made.text.title
        return made
    finally:
        made.close()


FAST = (
    "numpy in one expression",
    "counter that is read",
    "cache in a list",
    "helper method",
    "returns inside a loop",
    "data of a tensor",
)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.slow
def test_statements_are_left_and_the_rest_is_fused(name: str) -> None:
    compared(name, False)


@pytest.mark.slow
@pytest.mark.parametrize("training", (False, True))
@pytest.mark.parametrize("name", CASES)
def test_every_case_is_as_eager(name: str, training: bool) -> None:
    compared(name, training)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.slow
def test_code_that_cannot_be_left_is_refused_with_a_remedy(name: str) -> None:
    source, inputs, said = REFUSED[name]
    with pytest.raises(
        CannotCompose, match=f"{said}.*(moved into a separate submodule|nothing to fuse)"
    ):
        Made(f"refused_{name.replace(' ', '_')}", source, False, *inputs(0))


@pytest.mark.slow
def test_the_part_is_as_small_as_a_call() -> None:
    made = compared("numpy in one expression", False)
    (text,) = made.captured.parts.values()
    assert "cos" in text and "relu" not in text and "sigmoid" not in text


def test_no_function_of_a_library_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a search reads every object of the process: 60 of them made a capture ten times as long."""
    searched: list[Any] = []

    def noting(code: Any) -> list[Any]:
        searched.append(code.co_filename)
        return referrers(code)

    referrers = gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", noting)
    source, inputs = CASES["early exit"]
    made = Made("inline_searched", source, False, *inputs(0))
    made.close()
    assert searched and not [name for name in searched if "inline_searched" not in name]
