"""The composer's data: index arithmetic, nodes, loops, symbolic sizes, the forms of kernels, operators' effects."""
