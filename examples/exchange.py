"""NumPy -> Moonferry -> PyTorch and back: one memory, and nothing copied."""

import numpy as np
import torch

import moonferry

a = np.zeros((2, 3), "float32")
t = moonferry.from_dlpack(a)  # through __dlpack__
x = moonferry.into(torch.Tensor, t.T)  # through PyTorch's C exchange table
x.add_(10)  # PyTorch writes,
t[0, 0] = -1  # Moonferry writes,
print(a)  # and NumPy sees both
print("one memory:", t.data_ptr == a.ctypes.data, x.data_ptr() == a.ctypes.data)
