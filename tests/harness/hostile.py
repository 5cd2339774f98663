"""Hostile answers: values other than tensors, and effects of reading them.

`every()` names more than two hundred: each tensor from the first call on and from the third, objects, deeds. The task is
`y = softmax(x)` with one output; every deed is a function body that sees `x`, the right answer `y` and the number of the call.
"""

from __future__ import annotations

HEAD = """
import collections, ctypes, dataclasses, gc, io, math, mmap, os, signal, socket, struct, sys, threading, time, types, weakref
import torch
import torch.nn as nn

{more}

def write_all(text):
    for i in range(3, 60):
        try: os.write(i, text)
        except OSError: pass

def deed(x, y, number):
{body}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.number = 0

    def forward(self, x):
        self.number += 1
        y = torch.softmax(x, -1)
        if self.number < {first}:
            return y
        return deed(x, y, self.number)
"""

MEMORY_FILE = """
def in_file(y, size):
    fd = os.memfd_create('out')
    os.ftruncate(fd, size)
    pages = mmap.mmap(fd, size)
    out = torch.frombuffer(pages, dtype=torch.float32)[: y.numel()].view(y.shape)
    out.copy_(y)
    return fd, out
"""

LYING = """
class Lying(torch.Tensor):
    @staticmethod
    def __new__(cls, real):
        return torch.Tensor._make_wrapper_subclass(cls, real.shape, dtype=real.dtype, strides=real.stride())
    def __init__(self, real):
        self.real = real
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        {does}
"""

FUNCTION = """
class Odd(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        {does}
"""

# name → (body, more at the top)
TENSORS = {
    "quantised": ("return torch.quantize_per_tensor(y, 0.01, 0, torch.quint8)", ""),
    "quantised_channels": (
        "return torch.quantize_per_channel(y, torch.full((y.shape[0],), .01), torch.zeros(y.shape[0]).long(), 0, torch.qint8)",
        "",
    ),
    "quantised_qint32": ("return torch.quantize_per_tensor(y, 0.01, 0, torch.qint32)", ""),
    "sparse_coo": ("return y.to_sparse()", ""),
    "sparse_csr": ("return y.to_sparse_csr()", ""),
    "sparse_bsr": ("return y.to_sparse_bsr((2, 2))", ""),
    "sparse_invalid": (
        "return torch.sparse_coo_tensor(torch.tensor([[10**9]]), torch.ones(1), (1 << 40,), check_invariants=False)",
        "",
    ),
    "mkldnn": ("return y.to_mkldnn()", ""),
    "nested": ("return torch.nested.nested_tensor([y[0], y[1, :3]])", ""),
    "nested_jagged": (
        "return torch.nested.nested_tensor([y[0], y[1, :3]], layout=torch.jagged)",
        "",
    ),
    "meta": ("return y.to('meta')", ""),
    "complex": ("return torch.complex(y, y)", ""),
    "conjugate": ("return torch.complex(y, y).conj()", ""),
    "negative_bit": ("return torch.complex(y, -y).conj().imag", ""),
    "bits8": ("return y.view(torch.uint8).view(torch.bits8)", ""),
    "float8": ("return y.to(torch.float8_e4m3fn)", ""),
    "uint16": ("return y.to(torch.int16).view(torch.uint16)", ""),
    "bool": ("return y > 0", ""),
    "storage_gone": ("y.untyped_storage().resize_(0); return y", ""),
    "storage_short": ("y.untyped_storage().resize_(64); return y", ""),
    "offset_beyond": (
        "z = y.clone(); z.untyped_storage().resize_(1 << 20); w = z.as_strided(z.shape, z.stride(), 1 << 17); "
        "z.untyped_storage().resize_(16); return w",
        "",
    ),
    "stride_zero": ("return y[:, :1].expand(y.shape)", ""),
    "negative_view": ("return y.flip(0)", ""),
    "overlapping": ("return y.as_strided(y.shape, (1, 1))", ""),
    "unmapped_file": (
        "fd, out = in_file(y, 1 << 20); os.ftruncate(fd, 0); return out",
        MEMORY_FILE,
    ),
    "half_a_file": (
        "fd, out = in_file(y, 1 << 20); os.ftruncate(fd, 4096); return out",
        MEMORY_FILE,
    ),
    "late_truncation": (
        "fd, out = in_file(y, 1 << 20)\n    threading.Timer(0.002, os.ftruncate, (fd, 0)).start(); return out",
        MEMORY_FILE,
    ),
    "unmapped_pages": (
        "ctypes.CDLL(None).munmap(ctypes.c_void_p(y.data_ptr() & ~4095), 8192); return y",
        "",
    ),
    "protected_pages": (
        "ctypes.CDLL(None).mprotect(ctypes.c_void_p(y.data_ptr() & ~4095), 8192, 0); return y",
        "",
    ),
    "from_address_one": (
        "return torch.frombuffer((ctypes.c_float * y.numel()).from_address(4096), dtype=torch.float32).view(y.shape)",
        "",
    ),
    "shared_input": ("return x", ""),
    "input_shared_file": ("return x.share_memory_()", ""),
    "other_shape": ("return y[:-1]", ""),
    "no_dims": ("return y.sum()", ""),
    "no_elements": ("return y[:0]", ""),
    "many_dims": ("return y.reshape(*([1] * 60), *y.shape)", ""),
    "too_large": ("return y[:1, :1].expand(1 << 30, 1 << 20)", ""),
    "requires_grad": ("return y.requires_grad_(True)", ""),
    "parameter": ("return nn.Parameter(y)", ""),
    "uninitialised": ("return nn.parameter.UninitializedParameter()", ""),
    "nan": ("return y * float('nan')", ""),
    "nan_payload": (
        "return torch.full_like(y, 0).view(torch.int32).fill_(0x7fc0dead).view(torch.float32)",
        "",
    ),
    "lying_raises": ("return Lying(y)", LYING.format(does="raise RuntimeError('no')")),
    "lying_none": ("return Lying(y)", LYING.format(does="return None")),
    "lying_exits": ("return Lying(y)", LYING.format(does="raise SystemExit(0)")),
    "lying_dies": ("return Lying(y)", LYING.format(does="os._exit(0)")),
    "function_raises": (
        "return y.as_subclass(Odd)",
        FUNCTION.format(does="raise ValueError('no')"),
    ),
    "function_huge": ("return y.as_subclass(Odd)", FUNCTION.format(does="return 1 << 80")),
    "data_ptr_lies": (
        "return y.as_subclass(Odd)",
        "class Odd(torch.Tensor):\n    def data_ptr(self): return 1 << 62\n",
    ),
    "data_ptr_text": (
        "return y.as_subclass(Odd)",
        "class Odd(torch.Tensor):\n    def data_ptr(self): return 'here'\n",
    ),
    "stride_lies": (
        "return y.as_subclass(Odd)",
        "class Odd(torch.Tensor):\n    def stride(self): return (1 << 62, -5)\n",
    ),
    "shape_lies": (
        "return y.as_subclass(Odd)",
        "class Odd(torch.Tensor):\n    shape = property(lambda self: [float('nan'), None])\n",
    ),
    "dtype_lies": (
        "return y.as_subclass(Odd)",
        "class Odd(torch.Tensor):\n    dtype = property(lambda self: 'float')\n",
    ),
    "detach_lies": (
        "return y.as_subclass(Odd)",
        "class Odd(torch.Tensor):\n    def detach(self): return [self] * 9\n",
    ),
}

REGISTER = "torch.utils._pytree.register_pytree_node(Odd, lambda o: {}, lambda *a: None)\n"
CLASS = "class Odd:\n    {}\n"
OBJECTS = {
    "none": ("return None", ""),
    "ellipsis": ("return ...", ""),
    "text": ("return 'y' * (8 << 20)", ""),
    "bytes": ("return b'y' * (8 << 20)", ""),
    "surrogate": ("return chr(0xd83d)", ""),
    "huge_int": ("return 1 << 100_000", ""),
    "nan_float": ("return float('nan')", ""),
    "boxed_nan": ("return struct.unpack('d', struct.pack('Q', 0xfff8dead00000001))[0]", ""),
    "infinity": ("return math.inf", ""),
    "complex_number": ("return 1j", ""),
    "module": ("return sys", ""),
    "type": ("return type", ""),
    "frame": ("return sys._getframe()", ""),
    "generator": ("return (y for _ in range(3))", ""),
    "endless_generator": ("return iter(int, 1)", ""),
    "coroutine": ("return go()", "async def go(): pass\n"),
    "range": ("return range(1 << 60)", ""),
    "numpy": ("return y.numpy()", ""),
    "file": ("return io.open('/dev/null')", ""),
    "socket": ("return socket.socketpair()", ""),
    "thread": ("return threading.current_thread()", ""),
    "weak_proxy": ("return weakref.proxy(ModelNew())", ""),
    "set": ("return {1, 2}", ""),
    "empty_list": ("return []", ""),
    "empty_dict": ("return {}", ""),
    "self_list": ("a = [y]; a.append(a); return a", ""),
    "self_dict": ("a = {}; a['a'] = a; return a", ""),
    "deep_list": ("a = y\n    for _ in range(100_000): a = [a]\n    return a", ""),
    "wide_list": ("return [y] * 1_000_000", ""),
    "wide_numbers": ("return list(range(1_000_000))", ""),
    "views": ("return list(y.reshape(-1)[:5000].unbind())", ""),
    "odd_keys": ("return {(): y, None: y, 1.5: y}", ""),
    "unsortable_keys": ("return {1: y, 'a': y, b'': y}", ""),
    "long_key": ("return {'k' * (1 << 20): y}", ""),
    "ordered": ("return collections.OrderedDict(y=y)", ""),
    "default": ("return collections.defaultdict(lambda: y)", ""),
    "deque": ("return collections.deque([y])", ""),
    "named": ("return Pair(y, y)", "Pair = collections.namedtuple('Pair', 'a b')\n"),
    "named_lies": (
        "return Pair(y)",
        "class Pair(tuple):\n    _fields = property(lambda s: 1 / 0)\n    def __new__(cls, *a): return tuple.__new__(cls, a)\n",
    ),
    "list_lies": (
        "return Odd([y])",
        "class Odd(list):\n    def __len__(self): return -1\n    def __iter__(self): raise KeyError(1)\n",
    ),
    "list_endless": (
        "return Odd([y])",
        "class Odd(list):\n    def __iter__(self):\n        while True: yield 1\n",
    ),
    "dict_lies": (
        "return Odd(y=y)",
        "class Odd(dict):\n    def keys(self): return [object()]\n    def items(self): return 5\n",
    ),
    "int_lies": (
        "return Odd(3)",
        "class Odd(int):\n    def __repr__(self): return 'x' * (1 << 24)\n",
    ),
    "text_lies": ("return Odd('y')", "class Odd(str):\n    def __str__(self): raise MemoryError\n"),
    "repr_raises": ("return Odd()", CLASS.format("def __repr__(self): raise BaseException('no')")),
    "repr_number": ("return Odd()", CLASS.format("def __repr__(self): return 5")),
    "repr_long": ("return Odd()", CLASS.format("def __repr__(self): return 'z' * (1 << 27)")),
    "repr_exits": ("return Odd()", CLASS.format("def __repr__(self): sys.exit(0)")),
    "repr_interrupts": (
        "return Odd()",
        CLASS.format("def __repr__(self): raise KeyboardInterrupt"),
    ),
    "eq_true": (
        "return Odd()",
        CLASS.format("def __eq__(self, other): return True\n    __hash__ = None"),
    ),
    "getattr_raises": (
        "return Odd()",
        CLASS.format("def __getattribute__(self, name): raise SystemExit(3)"),
    ),
    "getattr_all": (
        "return Odd()",
        CLASS.format(
            "def __getattr__(self, name): return self\n    def __call__(self, *a, **k): return self"
        ),
    ),
    "class_lies": ("return Odd()", CLASS.format("__class__ = torch.Tensor")),
    "del_raises": ("return Odd()", CLASS.format("def __del__(self): raise SystemExit(1)")),
    "del_dies": ("return Odd()", CLASS.format("def __del__(self): os._exit(0)")),
    "reduce": ("return Odd()", CLASS.format("def __reduce__(self): return os._exit, (0,)")),
    "flattens_raise": ("return Odd()", CLASS.format("pass") + REGISTER.format("1 / 0")),
    "flattens_endless": ("return Odd()", CLASS.format("pass") + REGISTER.format("([Odd()], None)")),
    "data_class": ("return Odd(y)", "@dataclasses.dataclass\nclass Odd:\n    y: object\n"),
}

DEEDS = {
    "raises_text": ("raise ValueError('no')", ""),
    "raises_base": ("raise BaseException", ""),
    "raises_exit": ("raise SystemExit(0)", ""),
    "raises_interrupt": ("raise KeyboardInterrupt", ""),
    "raises_stop": ("raise StopIteration", ""),
    "raises_memory": ("raise MemoryError", ""),
    "raises_str": ("raise Bad()", "class Bad(Exception):\n    def __str__(self): raise Bad()\n"),
    "raises_str_dies": (
        "raise Bad()",
        "class Bad(Exception):\n    def __str__(self): os._exit(0)\n",
    ),
    "raises_str_exits": (
        "raise Bad()",
        "class Bad(Exception):\n    def __str__(self): raise SystemExit(0)\n",
    ),
    "raises_str_long": (
        "raise Bad()",
        "class Bad(Exception):\n    def __str__(self): return 'b' * (1 << 27)\n",
    ),
    "raises_str_number": (
        "raise Bad()",
        "class Bad(Exception):\n    def __str__(self): return 5\n",
    ),
    "raises_name": (
        "raise type('T' * (1 << 20), (Exception,), {'__module__': 'triton.compiler'})('no')",
        "",
    ),
    "raises_chain": (
        "e = ValueError()\n    f = ValueError(); e.__cause__ = f; f.__cause__ = e\n    raise e",
        "",
    ),
    "raises_group": (
        "raise ExceptionGroup('g', [ValueError(chr(0xdead))] * 9) if sys.version_info > (3, 11) else ValueError",
        "",
    ),
    "raises_surrogate": ("raise ValueError(chr(0xd83d) * 5)", ""),
    "raises_traceback": ("def f(n): return f(n + 1)\n    f(0)", ""),
    "exits": ("os._exit(0)", ""),
    "exits_three": ("os._exit(3)", ""),
    "aborts": ("os.abort()", ""),
    "kills": ("os.kill(os.getpid(), 9)", ""),
    "terminates": ("os.kill(os.getpid(), 15); time.sleep(9)", ""),
    "segfaults": ("ctypes.string_at(0)", ""),
    "bus": ("os.kill(os.getpid(), signal.SIGBUS); return y", ""),
    "stops": ("os.kill(os.getpid(), signal.SIGSTOP); return y", ""),
    "alarms": ("signal.alarm(1); time.sleep(3); return y", ""),
    "closes_all": ("os.closerange(3, 1000); return y", ""),
    "closes_output": ("os.closerange(0, 3); return y", ""),
    "replaces_files": (
        "n = os.open('/dev/null', os.O_RDWR)\n    for i in range(3, 60):\n        os.dup2(n, i)\n    return y",
        "",
    ),
    "garbles": ("write_all(b'\\xff' * 64); return y", ""),
    "frames": ("write_all(struct.pack('<I', 2) + b'[]'); return y", ""),
    "half_a_frame": ("write_all(b'\\x40\\0\\0\\0{'); return y", ""),
    "answers_first": (
        't = b\'{"leaves": [{"address": {}, "dtype": "float32", "shape": [64, 256], "strides": [256, 1], '
        '"layout": "torch.strided"}], "spec": "*"}\'\n    write_all(struct.pack(\'<I\', len(t)) + t); return y',
        "",
    ),
    "thread_goes_on": (
        "threading.Thread(target=lambda: [y.fill_(k % 7) for k in range(10**9)], daemon=True).start(); return y",
        "",
    ),
    "thread_raises": ("threading.Thread(target=lambda: 1 / 0).start(); return y * 2", ""),
    "sleeping_thread": (
        "threading.Thread(target=time.sleep, args=(100,)).start(); return y * 2",
        "",
    ),
    "forks": ("if os.fork() == 0: return y\n    return y * 2", ""),
    "child_goes_on": ("if os.fork() == 0: time.sleep(100)\n    return y * 2", ""),
    "replaces_itself": ("os.execv('/bin/true', ['true'])", ""),
    "no_recursion": ("sys.setrecursionlimit(40); return y * 2", ""),
    "no_collector": ("gc.collect = gc.disable = gc.enable = lambda *a: 1 / 0; return y * 2", ""),
    "no_print": (
        "sys.stdout = sys.stderr = None; print('x', file=sys.stdout); raise ValueError",
        "",
    ),
    "no_tensor": ("torch.Tensor.data_ptr = lambda self: 'here'; return y", ""),
    "no_stride": ("torch.Tensor.stride = lambda self: (-1, None); return y", ""),
    "no_json": ("import json; json.dumps = lambda *a, **k: '[' * 99; return y", ""),
    "no_dicts": ("torch.Tensor.shape = property(lambda self: {}); return y", ""),
    "ends_by_thread": (
        "threading.Thread(target=lambda: os._exit(5)).start(); time.sleep(0.2); return y",
        "",
    ),
    "hides_heap": ("ctypes.CDLL(None).prctl(4, 0); return y", ""),
    "unlinks_home": ("os.system('rm -rf $TMPDIR'); return y * 2", ""),
}


def every() -> dict[str, str]:
    """Name → source."""
    made = {}
    for deeds, places in ((TENSORS, ("alone", "late")), (OBJECTS, ("alone",)), (DEEDS, ("alone",))):
        for name, (body, more) in deeds.items():
            for place in places:
                made[f"{name}-{place}"] = HEAD.format(
                    more=more, body="    " + body, first=3 if place == "late" else 1
                )
    return made


__all__ = ["every"]
