"""From ATen operators to primitives: a dispatcher and one module of rules for each kind of operator."""
