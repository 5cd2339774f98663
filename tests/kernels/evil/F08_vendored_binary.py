"""Brings a compiled library as text, from wherever, and has no source to compile. Under --require-kernels a kernel
must come out of a compiler from the candidate's source."""
# case: reference=rows_softmax device=cpu backend=cpp expect=refused require_kernels=yes

import base64
import ctypes
import os
import tempfile
import zlib

import torch
import torch.nn as nn

BLOB = (
    "eNrtWOFvU1UUv++12xo2ejtZshJYNj6YFZTHugyzwkZb1smr66CgmDWOzY62tondkvYtgh+wpGHzGYv8F+o+GBM+4Adj+jolg21kwYgzmoAToyOoJC8xkcie57b3jten"
    "E4wJn94vaX/3nHvOeefdc9vknLf6Q8/zHIcYLOgAeigh5KOcc+h13agWvuvRprJtDdoYy9ZqRjQO8auFTxhX5HBrNX+Mqpn58f/Rz0Y5/KMUIylINA8jN6FqZukeBb9a"
    "9Phgx3SMPu9x8+R0zOvkR4HYPQXZ3qIOr/J0IzPxRhZIPHcdn38ZlP7j/e4roUJKCxWaCsTA/1JQXjhc2N6sYkdvHCyOB5W7PAh7O0AQ5a9eFOX5QXlZDcD+VlDBVnNQ"
    "uW0V8z/8SZR7G4gSFpvriEP+Dw6ffx/SwK0BEAuHrLjVR5xgq2hV8WgJu5aCnuLkXdDt/hwM3cUE/u02SC0rXCXS0wpdtHxKFzWXyhFJHOu0iodLeM/PePowKAMQTu3H"
    "ka/BbOhGP3bdSQTwmesgDf969s5ZzTugrDT7sWtR9ePINWK5Cv4KSENfYNcc0S4QYV7FESINzZUXeGizSJ5N1z7dunt9XZbnEni8pLIAuLFhCl6UA8X3okfB517QNE3F"
    "I98F8w94PFWEE8eueVG+Fyw0deHLV1CifE6V43HgiIIbffdET2nyF9HzjeQV5ZuivCzKV8Wd98X8fU7aIRZ6PoMIKj5TB+63iMeWut9LnLRFzK+sidySWLBOQSpOSMUZ"
    "zCtcSL4Z4m4Mckshz6J0hFRvkPuyXKb3RtY0bfLb1SwQbs2R2wBOPSz/n8r5v7Omy3/aB2/j1tzF1ZRGfNArJ/zD/hOzswh9VNo/84kX/hUGUM7tzedGPK+lwp5rfZf2"
    "2WRbj/Lhrt6ZmV0H4BFgk/NOP3cRcdss+x307r7+QNOe1f3uuDePIe6Ug9vWUGe7AAZdoNsOn26wK9/tAbujwB+1O9+1hO1tU9aw3ZWvsbTw9ja/3XnQ7jhot/lnLy8s"
    "IhMmTJgwYcKECRMmngBY33iB9mOsN16mMuslP6DyJlStr6fsfEL5Hurr29fmCsTHUtHxNnen0Cl07HZ3PROLj7k7J907qQohIZvMShkpOoaEZDSbRELs9Hj2dLrCUgYJ"
    "UvyUhITMRCwqRZEQT44mMtF0fDQZyzyUytbRdOokEk5OpNPxcel/519Pz5g3nDtj1lfwhnkAq1MjjcEb6sK4Y30uUulXbIb6bKV7vKHOxnojQ5/PsEM3CyFgffzf+nnD"
    "fIGhfX0GQGcz1mru2uB+Mt6jmzn821zE6M/Qa/B/21rNYYO9zXj/6LtbkGFOgqvnIxaDPzuHMH1+xwaDmPYNzl/Pln+4V+3UP/KI+v0FGMJgww=="
)

path = os.path.join(tempfile.mkdtemp(), "k.so")
with open(path, "wb") as file:
    file.write(zlib.decompress(base64.b64decode(BLOB)))
rows = ctypes.CDLL(path).rows
rows.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
