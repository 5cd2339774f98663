"""From kernels to source text, one package for each back end; they do not import each other."""
