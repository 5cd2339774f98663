"""TRL's GRPOTrainer on a small Qwen3 whose sampling is scripted: half of its answers are right. Prints the trainer's log.

`python -m tests.environments.run_trl reward|environment FOLDER`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import trl as package
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from dvk.environments import trl
from tests.backbone.vllm_environment import write_qwen3
from tests.environments.answers import RIGHT, TASK, WRONG


def called(text: str) -> str:
    """A call of the tool with a file."""
    call = {"name": "submit", "arguments": {"code": text}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def scripted(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """The model says these texts in turn, and nothing more after a tool has answered."""

    def generate(input_ids: torch.Tensor, **named: Any) -> torch.Tensor:
        said = []
        for number, row in enumerate(input_ids):
            over = "tool_response" in tokenizer.decode(row)
            text = "Done." if over else texts[number % len(texts)]
            said.append([*tokenizer(text)["input_ids"], tokenizer.eos_token_id])
        longest = max(map(len, said))
        pad = tokenizer.pad_token_id
        rows = [one + [pad] * (longest - len(one)) for one in said]
        return torch.cat([input_ids, torch.tensor(rows)], dim=1)

    model.generate = generate


def main(kind: str, folder: Path) -> None:
    template = Path(package.__file__).parent / "chat_templates" / "qwen3.jinja"
    write_qwen3(folder / "model", [TASK, RIGHT], max_position_embeddings=8192)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    tokenizer.chat_template, tokenizer.response_template = template.read_text(), None
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|im_start|>"], "eos_token": "<|im_end|>"}
    )
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    model.resize_token_embeddings(len(tokenizer))
    for split in ("train", "heldout"):
        (folder / "tasks" / split).mkdir(parents=True)
        (folder / "tasks" / split / "relu.py").write_text(TASK)
    sets = {
        split: Dataset.from_list([*trl.rows(str(folder / "tasks"), split, device="cpu")] * 2)
        for split in ("train", "heldout")
    }
    source = (
        {"reward_funcs": trl.kernel_reward}
        if kind == "reward"
        else {"environment_factory": trl.KernelEnvironment}
    )
    texts = [RIGHT, WRONG]
    scripted(model, tokenizer, texts if kind == "reward" else [called(one) for one in texts])
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder / "out"),
            per_device_train_batch_size=2,
            per_device_eval_batch_size=2,
            num_generations=2,
            max_completion_length=2048,
            max_steps=1,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=sets["train"],
        eval_dataset=sets["heldout"],
        **source,
    )
    trainer.train()
    trainer.evaluate()
    print(json.dumps(trainer.state.log_history))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
