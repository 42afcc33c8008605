"""NumPy -> Moonferry -> PyTorch and back: one memory, four names for it, and nothing copied."""

import numpy as np
import torch

import moonferry

a = np.arange(6, dtype="float32").reshape(2, 3)

t = moonferry.from_dlpack(a)  # through __dlpack__
x = moonferry.into(torch.Tensor, t.T)  # through PyTorch's C exchange table
back = np.from_dlpack(moonferry.from_dlpack(x))

print("NumPy     ", hex(a.ctypes.data))
print("Moonferry ", hex(t.data_ptr), t.data_ptr == a.ctypes.data)
print("PyTorch   ", hex(x.data_ptr()), x.data_ptr() == a.ctypes.data)
print("NumPy     ", hex(back.ctypes.data), back.ctypes.data == a.ctypes.data)

x.mul_(10)  # PyTorch writes,
t[0, 0] = -1  # Moonferry writes,
print(a)  # and NumPy sees both
print(t)
