"""Provenance: whether the candidate's own kernels compute the result."""
