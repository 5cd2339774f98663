"""OpenEnv's client at a server: `python -m tests.environments.run_openenv URL`. Prints what it saw."""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

from openenv.core import GenericEnvClient

from dvk.environments.openenv import KernelAction, KernelEnv
from tests.environments.answers import RIGHT, WRONG


def asked(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def main(url: str) -> None:
    found: dict[str, Any] = {"splits": asked(f"{url}/dvk/splits")}
    with KernelEnv(base_url=url).sync() as env, KernelEnv(base_url=url).sync() as other:
        seen = [env.reset(split="heldout", index=0)]
        other.reset(split="train", index=0)
        seen += [env.step(KernelAction(code=text)) for text in (RIGHT, WRONG)]
        steps = [{**one.observation.model_dump(), "done": one.done} for one in seen]
        found["episode"] = [*steps, env.state().model_dump()]
        found["apart"] = other.state().step_count == 0
    with GenericEnvClient(base_url=url, message_timeout_s=300).sync() as plain:
        plain.reset(split="train")
        found["generic"] = plain.step({"code": RIGHT}).reward
    found["post"] = asked(f"{url}/step", {"action": {"code": RIGHT}, "split": "train", "index": 0})
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
