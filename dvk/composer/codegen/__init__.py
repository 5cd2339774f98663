"""Source text of kernels, one package for each back end; back ends do not import each other."""
