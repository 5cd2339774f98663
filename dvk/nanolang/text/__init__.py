"""The compact text that nano writes, kernels and calls, and the drop-in made from it."""
