"""Compilers: NVRTC, extensions, precompiled headers, Triton's stubs."""
