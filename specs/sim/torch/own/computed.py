"""PyTorch's operations on CUDA tensors, computed by the host.

No kernel runs on the simulated driver, so under this mode an operation brings the storages of its tensors to the host,
is computed there, and what it wrote goes back: copies on the current stream, before and after. What is a copy already,
a view or an allocation goes its own way. Must not know who calls.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

AS_THEY_ARE = {"aten::empty.memory_format", "aten::empty_strided", "aten::record_stream", "aten::_local_scalar_dense"}
COPIES = {"aten::copy_", "aten::_to_copy", "aten::clone"}


def is_cuda(x):
    return isinstance(x, torch.Tensor) and x.is_cuda


def bytes_of(tensor):
    """All bytes of its storage, as a tensor of one axis."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


class Host:
    """What the tensors of one call are on the host; those that share memory share it there, too."""

    def __init__(self):
        self.storages = {}

    def bring(self, x):
        if not is_cuda(x):
            return torch.device("cpu") if isinstance(x, torch.device) else x
        key = x.untyped_storage().data_ptr()
        if key not in self.storages:
            self.storages[key] = bytes_of(x).cpu()
        host = torch.empty(0, dtype=x.dtype).set_(self.storages[key].untyped_storage())
        return host.as_strided(x.size(), x.stride(), x.storage_offset())

    def give_back(self, x):
        bytes_of(x).copy_(self.storages[x.untyped_storage().data_ptr()])


def is_a_copy(name, tensors, kwargs):
    """Bytes as they are, which no kernel has to move."""
    dtypes = {x.dtype for x in tensors} | {kwargs["dtype"] for _ in "1" if kwargs.get("dtype") is not None}
    return name in COPIES and len(dtypes) == 1 and all(x.is_contiguous() for x in tensors)


def written_by(func, args, kwargs):
    given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
    names = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [x for x in tree_flatten([given[n] for n in names if n in given])[0] if isinstance(x, torch.Tensor)]


class ComputedByTheHost(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func.name()
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        device = kwargs.get("device") or next((x.device for x in tensors if x.is_cuda), torch.device("cpu"))
        returned = [r.alias_info for r in func._schema.returns]
        a_view = any(alias is not None and not alias.is_write for alias in returned)
        touches_a_device = any(map(is_cuda, tensors)) or torch.device(device).type == "cuda"
        if not touches_a_device or a_view or name in AS_THEY_ARE or is_a_copy(name, tensors, kwargs):
            return func(*args, **kwargs)
        host = Host()
        result = func(*tree_map(host.bring, args), **tree_map(host.bring, kwargs))
        written = written_by(func, args, kwargs)
        for x in filter(is_cuda, written):
            host.give_back(x)
        if written:
            return written[0]
        there = torch.device(device)
        return tree_map(lambda y: y.contiguous().to(there) if isinstance(y, torch.Tensor) else y, result)
