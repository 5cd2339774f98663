"""daVinci-kernel's checkpoints (arXiv 2606.16497): folders, a chat template for tokenizers without one, its dialect.

Released ones are plain model folders; those of a training run are merged under `global_step_N/actor/huggingface`. The template is
written after the paper's description: ChatML without thinking, tools listed as XML in the system turn, calls as
`<tool_call><function=NAME><parameter=P>…`. A tokenizer's own template is the one it was trained with, and is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dvk.backbone.packing import model_folder
from dvk.config import Config
from dvk.errors import UsageError

if TYPE_CHECKING:
    from dvk.backbone.hf import HfBackbone

TEMPLATE = """\
{%- set told = messages[0].role == 'system' -%}
{%- if tools or told -%}
<|im_start|>system
{% if told %}{{ messages[0].content }}{% else %}You are a helpful assistant that can call functions.{% endif %}
{%- if tools %}

# Tools

These functions can be called:

<tools>
{%- for tool in tools %}{% set f = tool.function or tool %}
<function>
<name>{{ f.name }}</name>
<description>{{ f.description or '' }}</description>
<parameters>
{%- for name, p in f.parameters.properties.items() %}
<parameter>
<name>{{ name }}</name>
<type>{{ p.type }}</type>
<description>{{ p.description or '' }}</description>
{%- if 'items' in p %}
<items>{{ p['items'] | tojson }}</items>
{%- endif %}
</parameter>
{%- endfor %}
</parameters>
</function>
{%- endfor %}
</tools>

Write a call as

<tool_call>
<function=NAME>
<parameter=PARAMETER>
value
</parameter>
</function>
</tool_call>
{%- endif %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if not (loop.first and told) -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{% set f = call.function or call %}{{ '\\n' if message.content or not loop.first }}<tool_call>
<function={{ f.name }}>
{%- for name, value in f.arguments.items() %}
<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{%- endfor %}
</function>
</tool_call>
{%- endfor %}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


def open_davinci(argument: str, config: Config, *, device: str | None = None) -> HfBackbone:
    """`davinci:PATH`. Its saved models open as `hf:FOLDER` and keep the dialect.

    Raises:
        UsageError: no model in the folder.
        MachineError: as `loading.load`.
    """
    from dvk.backbone.hf import HfBackbone
    from dvk.backbone.loading import load, pick_device

    if not argument:
        raise UsageError("`davinci` needs a checkpoint", "write davinci:FOLDER")
    folder = model_folder(Path(argument).expanduser())
    loaded = load(str(folder), config.backbone, pick_device(device))
    if loaded.tokenizer.chat_template is None:
        loaded.tokenizer.chat_template = TEMPLATE
    return HfBackbone(
        loaded._replace(card={**loaded.card, "dialect": "davinci"}),
        config.backbone,
        f"davinci:{argument}",
    )
