"""Compilers: NVRTC, extensions, precompiled headers, sanitizers, Triton's stubs."""
