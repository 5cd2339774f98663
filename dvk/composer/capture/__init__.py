"""From a module to an operator graph, in sandboxed children."""
