"""Environment variables of isolated children: no secrets, and every cache in the session's folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|(^|_)(API|ACCESS|PRIVATE)_?KEY|DBUS"
    # In compilers' own variables a pass is a step and a key is a cache's; PWD and OLDPWD are folders.
    r"|^(?!LLVM|MLIR|TRITON|TORCH|PYTORCH|CUDA)(?!(OLD)?PWD$)(.*(?<!BY)PASS$|.*PWD$|(.*_)?KEYS?(_|$))",
    re.IGNORECASE,
)
"""Names of variables that a candidate must not see: HF_TOKEN, OPENAI_API_KEY, SSH_AUTH_SOCK, SMTP_PASS, MYSQL_PWD, …"""

LOGIN = re.compile(r"://[^\s/@:]*:[^\s/@]+@")
"""Values with a password: postgres://user:password@host/…"""

HOMES = {
    "HOME": "",
    "TMPDIR": "",
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "TRITON_HOME": "",
    "TRITON_CACHE_DIR": ".cache/triton",
    "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/torchinductor",
    "CUDA_CACHE_PATH": ".cache/cuda",
    "DVK_CACHE": ".cache/dvk",
}
"""Variable → folder below the session's home."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without variables that SECRET and LOGIN match."""
    return {
        name: value
        for name, value in environ.items()
        if not SECRET.search(name) and not LOGIN.search(value)
    }


def isolated(environ: Mapping[str, str], home: str) -> dict[str, str]:
    """Return `environ` for untrusted code whose home is `home`."""
    homes = {name: os.path.join(home, folder) if folder else home for name, folder in HOMES.items()}
    return without_secrets(environ) | homes
