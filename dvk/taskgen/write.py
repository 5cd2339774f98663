"""Write a finished program as a task file, in one of many styles.

Names, temporaries, nesting, the use of `nn.Sequential` and helper methods, and whether sizes reach the constructor as arguments are all
drawn.
"""

from __future__ import annotations

import re
from collections import Counter

from dvk.taskgen.program import HALF, Statement, TaskProgram
from dvk.taskgen.values import TaskValue

LEADING = re.compile(r"^(?:torch\.|F\.|self\.|\{m\}|[\w.]+\(|\(|\[|-)*\{0\}")
"""Templates that compute their first argument first, so that it may be another expression."""

NAMES = (
    ("h", "z", "u", "v", "w", "r", "s"),
    ("out", "hidden", "value", "state", "result"),
    ("y", "a", "b", "c", "d", "e"),
    ("t", "tmp", "mid", "part"),
    ("features", "residual", "update", "mixed"),
)
MODULE_NAMES = ("act", "activation", "layer", "op", "block", "pool", "fn")


class TaskWriter:
    """Writes one program once; the program's dice make all choices."""

    def __init__(self, program: TaskProgram, title: str):
        self.program, self.dice, self.title = program, program.dice, title
        self.uses = Counter(id(v) for s in program.statements for v in s.arguments)
        self.uses.update(id(v) for v in program.outputs)
        self.lines: list[str] = []
        self.inits: list[str] = []
        self.methods: list[str] = []
        self.parameters = [value.name for value, _ in program.inputs]
        self.taken = {*self.parameters, "self", "torch", "nn", "F", "x"}

    def source(self) -> str:
        """The whole file."""
        program, dice = self.program, self.dice
        for statement in program.statements:
            if statement.plain and self.uses[id(statement.arguments[0])] > 1:
                statement.template, statement.module, statement.plain = statement.plain, "", ""
        modules = self._modules()
        body = self._forward(modules)
        needed = [d.text for d in program.constants.values()]
        arguments = [*needed, *program.scalars]
        given = self._given(arguments)
        init = self._constructor(given)
        uses_f = "F." in body + "".join(self.methods)
        style = dice.pick(("import torch.nn as nn", "from torch import nn"))
        functional = dice.pick(
            ("import torch.nn.functional as F", "from torch.nn import functional as F")
        )
        imports = [
            "import torch",
            *([functional] if uses_f and functional.startswith("import") else []),
            style,
            *([functional] if uses_f and not functional.startswith("import") else []),
        ]
        inputs = ", ".join(self._drawn(text) for _, text in program.inputs)
        everywhere = " ".join([inputs, *(h.text for h in program.held)])
        words = re.findall(r"\w+", everywhere)
        order = sorted(program.constants.values(), key=lambda d: words.index(d.text))
        sizes = "\n".join(f"{d.text} = {d.native}  # small: {d.small}" for d in order)
        values = [a if a.isupper() else repr(program.scalars[a]) for a in given]
        parts = [f'"""{self.title}"""', "", *imports, "", sizes, "", "", "class Model(nn.Module):"]
        parts += [
            *init,
            *([""] if init else []),
            *self.methods,
            f"    def forward({', '.join(['self', *self.parameters])}):",
            body,
            "",
            "",
            "def get_inputs():",
            f"    return [{inputs}]",
            "",
            "",
            "def get_init_inputs():",
            f"    return [{', '.join(values)}]",
            "",
        ]
        return "\n".join(parts)

    def _drawn(self, text: str) -> str:
        if self.program.whole and text.startswith("torch.randn("):
            return (
                f"{text} * (0.5 + torch.rand(()))"
                if " " not in text.split(")")[-1]
                else f"({text}) * (0.5 + torch.rand(()))"
            )
        return text

    # ------------------------------------------------------------ constructor

    def _given(self, arguments: list[str]) -> list[str]:
        """Result of get_init_inputs(), passed to the constructor; other sizes are read from the module's constants."""
        text = " ".join([h.text for h in self.program.held] + self.inits)
        used = [a for a in arguments if a in self.program.scalars or re.search(rf"\b{a}\b", text)]
        scalars = [a for a in used if a in self.program.scalars]
        return used if self.dice.chance(0.6) else scalars

    def _constructor(self, given: list[str]) -> list[str]:
        program = self.program
        if not program.held and not given and not program.eval_mode and not self.inits:
            return []

        def local(text: str) -> str:
            return re.sub(
                r"\b[A-Z][A-Z0-9_]*\b",
                lambda m: m[0].lower() if m[0] in given and m[0].isupper() else m[0],
                text,
            )

        lines = [
            f"    def __init__({', '.join(['self', *map(local, given)])}):",
            "        super().__init__()",
        ]
        lines += [f"        self.{name} = {name}" for name in given if name in program.scalars]
        for held in program.held:
            if held.text.startswith("nn."):
                lines.append(f"        self.{held.name} = {local(held.text)}")
            elif held.buffer:
                lines.append(f'        self.register_buffer("{held.name}", {local(held.text)})')
            else:
                lines.append(f"        self.{held.name} = nn.Parameter({local(held.text)})")
            lines += [f"        {local(line.format(f'self.{held.name}'))}" for line in held.after]
        lines += [f"        {local(line)}" for line in self.inits]
        if program.dtype != "float32" and program.held:
            lines.append(
                f"        self.{HALF[program.dtype]}()"
                if self.dice.chance(0.5)
                else f"        self.to(torch.{program.dtype})"
            )
        if program.eval_mode:
            lines.append("        self.eval()")
        return lines

    def _modules(self) -> dict[int, str]:
        """Statement → the submodule it calls; neighbours may share an nn.Sequential (empty text: no work left)."""
        program, dice = self.program, self.dice
        result: dict[int, str] = {}
        statements = program.statements
        position = 0
        while position < len(statements):
            run = position
            while (
                run < len(statements)
                and statements[run].module
                and (
                    run == position
                    or (
                        statements[run].arguments[0] is statements[run - 1].results[0]
                        and self.uses[id(statements[run].arguments[0])] == 1
                    )
                )
            ):
                run += 1
            if run - position > 1 and dice.chance(0.6):
                name = program.unique("block", "net", "layers", "stack")
                self.inits.append(
                    f"self.{name} = nn.Sequential({', '.join(s.module for s in statements[position:run])})"
                )
                result[position] = f"self.{name}"
                result.update(dict.fromkeys(range(position + 1, run), ""))
                position = run
            elif statements[position].module:
                name = program.unique(*dice.shuffled(MODULE_NAMES[:3]), *MODULE_NAMES)
                self.inits.append(f"self.{name} = {statements[position].module}")
                result[position] = f"self.{name}"
                position += 1
            else:
                position += 1
        return result

    # ------------------------------------------------------------ forward

    def _forward(self, modules: dict[int, str]) -> str:
        program, dice = self.program, self.dice
        style = dice.weighted({"reuse": 5, "fresh": 4})
        nesting = dice.pick((0.0, 0.3, 0.6, 0.9))
        pool = [*dice.pick(NAMES)]
        text: dict[int, str] = {id(v): v.name for v, _ in program.inputs}
        pending: dict[int, str] = {}  # values that stay expressions until they are used
        left = Counter(self.uses)
        for number, statement in enumerate(program.statements):
            operands = [
                pending.pop(id(v), "") or text.get(id(v)) or v.name for v in statement.arguments
            ]
            for value in statement.arguments:
                left[id(value)] -= 1
            # Inside an nn.Sequential the first module's call also stands for the last one's.
            expression = (
                operands[0]
                if modules.get(number) == ""
                else _filled(statement, operands, modules.get(number, ""))
            )
            result = statement.results[0]
            if len(statement.results) == 1 and self._nests(
                number, result, modules, expression, nesting
            ):
                pending[id(result)] = expression
                continue
            names = []
            for value in statement.results:
                free = next(
                    (
                        text[id(a)]
                        for a in statement.arguments[:1]
                        if style == "reuse"
                        and not left[id(a)]
                        and id(a) in text
                        and text[id(a)].isidentifier()
                        and text[id(a)] not in names
                    ),
                    None,
                )
                names.append(free or self._fresh(pool))
                text[id(value)] = names[-1]
            self.lines.append(f"        {', '.join(names)} = {expression}")
        results = [pending.get(id(v)) or text.get(id(v)) or v.name for v in program.outputs]
        named = len(results) == 1 and results[0].isidentifier() and self.lines
        if named and self.lines[-1].startswith(f"        {results[0]} = ") and dice.chance(0.5):
            results[0] = self.lines.pop().partition(" = ")[2]
        self._extract(results)
        return "\n".join([*self.lines, f"        return {', '.join(results)}"])

    def _nests(
        self,
        number: int,
        result: TaskValue,
        modules: dict[int, str],
        expression: str,
        nesting: float,
    ) -> bool:
        """The value may be inlined in the next statement, which is its only use and evaluates it first."""
        if modules.get(number + 1) == "":
            return True
        last = number + 1 == len(self.program.statements)
        if (
            last
            or self.uses[id(result)] != 1
            or len(expression) > 60
            or not self.dice.chance(nesting)
        ):
            return False
        following = self.program.statements[number + 1]
        template = following.template
        return (
            following.arguments[0] is result
            and template.count("{0}") == 1
            and bool(LEADING.match(template))
            and not following.plain
        )

    def _fresh(self, pool: list[str]) -> str:
        for name in pool:
            if name not in self.taken:
                self.taken.add(name)
                return name
        number = 2
        while f"{pool[0]}{number}" in self.taken:
            number += 1
        self.taken.add(f"{pool[0]}{number}")
        return f"{pool[0]}{number}"

    def _extract(self, results: list[str]) -> None:
        """Move the last few lines of forward into a helper method, if a single value crosses."""
        if len(self.lines) < 4 or not self.dice.chance(0.12):
            return
        at = self.dice.between(1, len(self.lines) - 2)
        moved = self.lines[at:]
        target = re.match(r"        (\w+) = ", self.lines[at - 1])
        last = re.match(r"        (\w+) = ", self.lines[-1])
        if not target or not last:
            return
        crossing = target[1]
        bound, free = {crossing}, set()
        for line in moved:
            left, _, right = line.strip().partition(" = ")
            free |= {
                w
                for w in re.findall(r"(?<![\w.])([a-z_]\w*)\b(?!\s*=[^=])", right)
                if w in self.taken
            } - bound
            bound |= {n.strip() for n in left.split(",")}
        read = set(re.findall(r"(?<![\w.])[a-z_]\w*", " ".join(results)))
        if free - {"self", "torch", "nn", "F"} or (bound - {last[1]}) & read:
            return
        name = self.dice.pick(("_finish", "_tail", "_post", "_epilogue"))
        self.methods += [
            f"    def {name}(self, {crossing}):",
            *moved,
            f"        return {last[1]}",
            "",
        ]
        self.lines[at:] = [f"        {last[1]} = self.{name}({crossing})"]


def _filled(statement: Statement, operands: list[str], module: str) -> str:
    template = statement.template.replace("{m}", module)
    parts = []
    for position, operand in enumerate(operands):
        alone = re.search(rf"[(\[,]\s*\{{{position}\}}\s*[,)\]]", template)
        parts.append(operand if alone or _closed(operand) else f"({operand})")
    return re.sub(r"\{(\d)\}", lambda m: parts[int(m[1])], template)


def _closed(text: str) -> bool:
    """Names, calls and subscripts only: a suffix binds to the whole."""
    depth = 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in " -~":
            return False
    return True
