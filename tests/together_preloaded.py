"""Modules that every process of `together` needs: imported once and forked."""

import accelerate  # noqa: F401
import transformers.models.qwen3.modeling_qwen3  # noqa: F401

import dvk.learn.learner
import dvk.learn.reinforce  # noqa: F401
