"""Turn a user's file into a `Task`, and a `Task` back into live objects.

Two sides that never mix:

- parent: `load` reads the file's text and has it examined in a sandboxed child. It imports no torch
  and executes nothing that the user wrote.
- child: `dvk.tasks.build` constructs the reference, its inputs and candidates from a `Task`. Only a
  process that may die imports it.

    loading    load: spec and options → Task                      (parent)
    specs      the grammar of --input, --init and dtype names     (both)
    sourcetext how a file's text is read                          (both)
    examine    what load runs in the child                        (child, as all below)
    sourcefile source text → module backed by a file; who raised
    entry      which class or function of the file is meant
    build      Built, build, build_candidate
    draw       example inputs for a seed and a shape variant
    variants   which other sizes to try
    trees      tensors in nested inputs and outputs
    batch      many small requests in few children
    hygiene    is a task worth learning from
    generate   training tasks without end; the held-out split
    state      seeds, and a module's parameters and buffers, kept and put back
    precision  how exactly the reference computes
"""

from dvk.tasks.loading import load, of_text, unexamined

__all__ = ["load", "of_text", "unexamined"]
