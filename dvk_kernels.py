"""verifiers looks up an environment by the name of an installed module; this one is `dvk-kernels`."""

from dvk.environments.verifiers import (
    KernelEnv,
    KernelEnvConfig,
    KernelTask,
    KernelTaskset,
    KernelTasksetConfig,
    load_environment,
)

__all__ = [
    "KernelEnv",
    "KernelEnvConfig",
    "KernelTask",
    "KernelTaskset",
    "KernelTasksetConfig",
    "load_environment",
]
