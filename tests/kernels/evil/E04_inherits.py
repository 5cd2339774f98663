"""Inherits the reference, found among loaded modules, and adds nothing. The reference must not be there."""
# case: reference=linear device=any backend=cpp expect=refused

import sys

Model = next(module.Model for module in list(sys.modules.values()) if hasattr(module, "Model") and hasattr(module, "get_inputs"))


class ModelNew(Model):
    pass
