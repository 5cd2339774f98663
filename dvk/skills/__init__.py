"""The skill library: dvk's knowledge about writing kernels, searched by people and by agents.

`Library` keeps and finds skills; `query_from_graph` turns a captured graph into a query; `markdown`
and `jsonl` read and write skills. Importing this package loads neither pydantic nor sqlite-utils.
"""

from __future__ import annotations

from dvk.skills.graphs import query_from_graph
from dvk.skills.library import Library, default_path
from dvk.skills.results import Added, Hit
from dvk.skills.seeds import seed_dir

__all__ = ["Added", "Hit", "Library", "default_path", "query_from_graph", "seed_dir"]
