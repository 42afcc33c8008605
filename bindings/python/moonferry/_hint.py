"""What to write instead of a name that is not here: another library's word, or a slip of the finger.

Invariant: asked only on the way to an AttributeError; `hasattr` stays false and `dir` lists nothing of it. Must not
know: what a tensor does.
"""

from __future__ import annotations

from typing import Any, Callable, NoReturn

# What NumPy and PyTorch call what the module has, or has not.
_MODULE = {
    "LuaRuntime": "moonferry.Lua",
    "array": "moonferry.tensor copies, moonferry.asarray shares",
    "from_numpy": "moonferry.from_dlpack or moonferry.asarray",
    "as_tensor": "moonferry.asarray",
    "array_equal": "moonferry.equal",
    "allclose": "np.allclose takes tensors",
    "arange": "moonferry.tensor(range(n))",
    "linspace": "moonferry.asarray(np.linspace(...))",
    "rand": "moonferry.asarray(np.random.rand(...))",
    "stack": "moonferry.asarray(np.stack(...)), which takes tensors",
    "concatenate": "moonferry.asarray(np.concatenate(...)), which takes tensors",
    "load": "moonferry.asarray(np.load(...))",
    "save": "np.save, which takes tensors",
    "random": "moonferry.asarray(np.random.rand(...))",
    **{name: f"np.{name} takes tensors" for name in ("sum", "mean", "min", "max", "where", "sort", "dot", "matmul")},
    "is_tensor": "isinstance(x, moonferry.Tensor)",
    "ndarray": "moonferry.Tensor",
    "numpy": "t.numpy() is a method",
    "cuda": "moonferry.device_count('cuda'), moonferry.zeros(2, device='cuda')",
    **dict.fromkeys(("from_torch", "from_jax", "from_cupy"), "moonferry.from_dlpack or moonferry.asarray"),
    "to_numpy": "t.numpy() is a method",
    "to_dlpack": "t.__dlpack__(), which from_dlpack of each library calls",
    "concat": "moonferry.asarray(np.concatenate(...)), which takes tensors",
    **{name: f"moonferry.asarray(np.{name}(...))" for name in ("eye", "identity", "diag", "meshgrid")},
    **{f"{name}_like": f"moonferry.{name}(t.shape, t.dtype, device=t.device)" for name in ("zeros", "empty", "ones")},
    "full_like": "moonferry.full(t.shape, value, t.dtype, device=t.device)",
    "newaxis": "None, in an index: t[None]",
    "ellipsis": "..., in an index: t[..., 0]",
    "dtype": "moonferry.DType",
    "int": "moonferry.int64",
    "uint": "moonferry.uint64",
    "double": "moonferry.float64",
    "half": "moonferry.float16",
    "default_stream": "moonferry.Stream.default(device)",
    "per_thread_stream": "moonferry.Stream.per_thread(device)",
    "with_stream": "with stream: sets the current one",
    **dict.fromkeys(("wrap_stream", "external_stream"), "moonferry.Stream.wrap(x, device)"),
    "ring": "moonferry.Ring",
    "gl": "import moonferry.gl",
    "mpi": "import moonferry.mpi",
    **{name: f"`moonferry {name}` in a shell" for name in ("check", "doctor", "sim")},
}

# What others call what a tensor has; docs/names.md has the same rows.
TENSOR = {
    "t.permute_dims(1, 0) or t.T": "transpose swapaxes permute movedim mT",
    "t.reshape(-1)": "flatten ravel flat",
    "t.reshape(shape) or t.reinterpret(dtype)": "view",
    "t.astype(dtype)": "cast type float double half bfloat16 int long short byte",
    "t.size": "numel nelement",
    "t.ndim": "dim",
    "t.itemsize": "element_size",
    "t.strides": "stride",
    "t.copy()": "clone",
    "t.copy(source)": "copy_",
    "t.fill(0)": "fill_ zero_",
    "t.expand_dims(0)": "unsqueeze",
    "t.broadcast_to(shape)": "expand expand_as",
    "t.to('cpu')": "cpu",
    "t.to('cuda')": "cuda to_device",
    "t.device": "is_cuda get_device",
    "t.numpy()": "detach to_numpy get asnumpy values",
    "t.data_ptr": "ptr data ctypes base storage untyped_storage",
    "t.tolist()": "totable to_list to_pylist",
    "t.tobytes()": "tostring",
    "t[0:1]": "narrow select slice",
    "t[0] = value": "itemset",
    "np.ptp(t)": "ptp",
    "t.reinterpret(dtype)": "newbyteorder",
    "t.as_readonly()": "setflags",
    "t.close()": "delete free release",
    "moonferry.equal(t, u)": "equal",
    "np.allclose(t, u)": "allclose",
    "moonferry.synchronize(t.device)": "block_until_ready",
    "t.record(stream)": "record_stream",
}

# A tensor computes nothing; an array of NumPy's over the same memory does, and so does one of PyTorch's.
_NUMPY = (
    "all any argmax argmin argpartition argsort byteswap choose clip compress conj conjugate cumprod cumsum dot dump"
    " dumps getfield imag max mean min nonzero partition prod put real repeat resize round searchsorted setfield"
    " sort std sum take tofile trace var"
).split()
_TORCH = (
    "abs abs_ add add_ backward chunk clamp div div_ exp gather grad index_select log masked_fill masked_fill_ matmul"
    " mm mul mul_ norm pin_memory relu requires_grad requires_grad_ scatter_ share_memory_ softmax split sqrt sub sub_"
    " topk unbind"
).split()


def of_module(name: str, names: list[str], module: str = "moonferry") -> str:
    """The text of the error that a module of ours has no such name; names are those that it has."""
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):
        return text
    import difflib

    if module == "moonferry" and name in _MODULE:
        return f"{text}; {_MODULE[name]}"
    near = difflib.get_close_matches(name, names, 1)
    return f"{text}; {module}.{near[0]}" if near else text


def lacks(module: str, names: list[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module of ours that has these names."""

    def missing(name: str) -> NoReturn:
        raise AttributeError(of_module(name, names, module))

    return missing


class _Absent:
    """An attribute that a tensor lacks: whoever reads it is told what to write instead."""

    def __init__(self, name: str, remedy: str) -> None:
        self.text = f"'moonferry.Tensor' object has no attribute {name!r}; use {remedy}"

    def __get__(self, obj: Any, kind: Any = None) -> NoReturn:
        raise AttributeError(self.text)


def _absent_names() -> dict[str, _Absent]:
    remedies = {name: f"t.numpy().{name}, over the same memory" for name in _NUMPY}
    remedies |= {name: f"moonferry.into(torch.Tensor, t).{name}, over the same memory" for name in _TORCH}
    remedies |= {name: remedy for remedy, names in TENSOR.items() for name in names.split()}
    return {name: _Absent(name, remedy) for name, remedy in remedies.items()}


# _core looks here for what a tensor lacks.
AbsentOfTensor = type("AbsentOfTensor", (), {"__slots__": (), **_absent_names()})
