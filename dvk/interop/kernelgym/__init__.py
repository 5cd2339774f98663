"""KernelGYM's evaluation protocol (hkust-nlp/KernelGYM, arXiv 2602.05885), from both sides: to judge for its trainer, and to
have its servers judge for us.

fields     requests and responses as it names them
answers    a dvk verdict as its result            (server side)
readings   its result as a dvk verdict            (client side, as all below)
client     requests that survive a full, slow or restarted server
remote     a judge session on such a server

Written from the documented fields. dvk's additions are under the one key `dvk` of a request, which its servers ignore, and
of a result's metadata, which its trainer ignores.
"""

from dvk.interop.kernelgym.fields import Evaluation, EvaluationResult, JudgeOptions

__all__ = ["JudgeOptions", "Evaluation", "EvaluationResult"]
