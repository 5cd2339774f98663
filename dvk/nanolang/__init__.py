"""The compact dialect: what nano reads and writes.

`prompt` lists a captured graph with named sizes, `write` is what the composer would run under a plan as a short text,
`assemble` makes the whole drop-in around such a text, whoever wrote it, and `variants` are the plans worth writing.
"""

from dvk.composer.algorithms import algorithms, name_of
from dvk.nanolang.listing.prompt import prompt
from dvk.nanolang.text.assemble import ParseError, assemble
from dvk.nanolang.text.variants import PlanVariant, described, facts, structures, variants
from dvk.nanolang.text.write import write

__all__ = [
    "ParseError",
    "PlanVariant",
    "algorithms",
    "assemble",
    "described",
    "facts",
    "name_of",
    "prompt",
    "structures",
    "variants",
    "write",
]
