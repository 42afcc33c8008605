"""Functions that Numba compiles; in a file, so that it can keep what it compiled from one process to the next."""

import numba
import numpy as np


@numba.njit(cache=True)
def fill(x, value):
    for index in np.ndindex(x.shape):
        x[index] = value


@numba.njit(cache=True)
def same(x):
    return x


@numba.njit(cache=True)
def copy(x):
    return x.copy()


@numba.njit(cache=True)
def read(x, out):
    for index in np.ndindex(x.shape):
        out[index] = x[index]


def elements(x, dtype):
    """The bytes of an array, as a compiled loop reads them."""
    out = np.empty(x.shape, dtype)
    read(x, out)
    return out.tobytes()
