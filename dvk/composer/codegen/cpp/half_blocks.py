"""Convert fp16 elements of a C++ vector loop in blocks, outside of it: GCC has instructions for that, but makes no vectors of them itself.

    for (i = lo; i < hi; ++i) o[i] = f2h(g(h2f(a[i])));

becomes, for blocks of the loop's range that stay in the L1 cache,

    read BLOCK elements of a into floats;  for (i = first; i < last; ++i) w0[i - first] = g(h0[i - first]);  write them to o
"""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK = 64
"""Elements of a block: 256 bytes for each operand and result; 16 and 256 took 20 % longer on an AMD EPYC (AVX2)."""


@dataclass
class HalfBlocks:
    """One vector loop, from its head on, and the fp16 elements that it reads and writes side by side."""

    place: int
    """Index of the first line of its head."""
    depth: int
    """Indentation of its head."""
    variable: str
    clauses: str
    start: str
    stop: str
    reads: dict[str, int] = field(default_factory=dict)
    """Address of the element at `first` → number of the array."""
    writes: list[str] = field(default_factory=list)
    """Addresses of results at `first`."""

    def read(self, address: str) -> str:
        """An element of the loop's current iteration as a float; `address` is that of the block's first one."""
        return f"h{self.reads.setdefault(address, len(self.reads))}[{self.variable} - first]"

    def written(self, address: str) -> str:
        """Where the loop's current iteration puts a result."""
        self.writes.append(address)
        return f"w{len(self.writes) - 1}[{self.variable} - first]"

    def rewritten(self, body: list[str]) -> list[str]:
        """The lines of the loop, its head and last brace included; `body`: those between the two."""
        if not self.reads and not self.writes:
            return [*self.head(), *body, "  " * self.depth + "}"]
        inner = [
            f"const long last = first + {BLOCK} < {self.stop} ? first + {BLOCK} : {self.stop};",
            *(f"float h{number}[{BLOCK}];" for number in self.reads.values()),
            *(f"float w{number}[{BLOCK}];" for number in range(len(self.writes))),
            *(
                f"dvk_read_halves(h{number}, {address}, last - first);"
                for address, number in self.reads.items()
            ),
        ]
        after = [
            f"dvk_write_halves({address}, w{number}, last - first);"
            for number, address in enumerate(self.writes)
        ]
        out, indent = "  " * self.depth, "  " * (self.depth + 1)
        return [
            f"{out}for (long first = {self.start}; first < {self.stop}; first += {BLOCK}) {{",
            *(indent + line for line in inner),
            *("  " + line for line in self.head("first", "last")),
            *("  " + line for line in body),
            indent + "}",
            *(indent + line for line in after),
            out + "}",
        ]

    def head(self, start: str = "", stop: str = "") -> list[str]:
        """The two lines that open the loop."""
        name, indent = self.variable, "  " * self.depth
        return [
            f"{indent}#pragma omp simd {self.clauses}".rstrip(),
            f"{indent}for (long {name} = {start or self.start}; {name} < {stop or self.stop}; ++{name}) {{",
        ]
