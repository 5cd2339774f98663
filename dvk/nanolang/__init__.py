"""The compact dialect that nano reads and writes.

`prompt` lists a captured graph with named sizes, `write` renders the composer's program under a plan as a short text, `assemble` builds the
whole drop-in from such a text, by any writer, and `variants` are the plans worth writing.
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
