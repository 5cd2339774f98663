"""The schema of FlashInfer-Bench and SOL-ExecBench: Definition, Workload, Solution and Trace as JSON.

    axes         sizes by name: constants, variables, expressions; constraints
    definition   Definition: an operator's inputs, outputs and reference code
    workload     Workload: sizes and input data of one call
    solution     Solution: source files with an entry point
    dataset      folders of them, as both projects lay them out
    tensors      stored inputs in safetensors files
    task_text    a Definition with a Workload as a task file
    candidate    a Solution as a candidate, and a candidate as a Solution
    trace        a verdict as a Trace; the folder of results

Formats alone: neither package is needed, and nothing is executed here.
"""
