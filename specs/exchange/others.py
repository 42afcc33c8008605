"""The libraries that exchange arrays with Moonferry, but are no row of a matrix: what each does, and a program that
says so.

Responsible for the list of docs/libraries.md below its table. Each program runs in a process of its own, in the
environment "more", with moonferry and a float32 tensor t of 4 x 6; an assertion that does not hold ends it. Must not
know how they are run (matrix).
"""

import os
import subprocess
from typing import NamedTuple

import everyday
import science


class Other(NamedTuple):
    """A library, what it does with a tensor, and the program that asserts it ("" where nothing here can run it)."""

    name: str
    words: str
    program: str


BEGIN = """\
import moonferry, numpy
t = moonferry.asarray(range(24), "float32").reshape(4, 6)
def refuses(kind, do):
    try:
        do()
    except kind:
        return True
"""

FILES = "assert moonferry.equal(moonferry.asarray(x), t)\n"

OTHERS = [
    Other(
        "DuckDB",
        "a table of tensors through pyarrow, its columns through `from_arrow`; Moonferry copies nothing",
        """
import duckdb, pyarrow
columns = pyarrow.table({"a": t.reshape(-1)})
given = duckdb.sql("select a + 1 as a from columns").to_arrow_table()["a"].combine_chunks()
assert moonferry.from_arrow(given).tolist() == [float(n + 1) for n in range(24)]
""",
    ),
    Other(
        "h5py",
        "a file: `create_dataset(data=t)` and `d[...] = t` write, `asarray(d)` reads; copy=False is refused",
        """
import h5py
x = h5py.File("x", "w", driver="core", backing_store=False).create_dataset("x", data=t.T)
x = h5py.File("y", "w", driver="core", backing_store=False).create_dataset("x", data=t)
x[...] = t
assert refuses(BufferError, lambda: moonferry.asarray(x, copy=False))
"""
        + FILES,
    ),
    Other(
        "Zarr",
        "a file: `z[...] = t.numpy()` writes (it calls NumPy's `ravel` and `view`); `asarray(z)` reads",
        """
import zarr
x = zarr.zeros((4, 6), dtype="f4")
x[...] = t.numpy()
"""
        + FILES,
    ),
    Other(
        "netCDF4",
        "a file: `v[:] = t` writes, `asarray(v[:])` reads; unwritten cells are masked, which is refused",
        """
import netCDF4
f = netCDF4.Dataset("x", "w", diskless=True)
f.createDimension("a", 4), f.createDimension("b", 6)
x, gap = f.createVariable("x", "f4", ("a", "b")), f.createVariable("gap", "f4", ("a", "b"))
x[:] = t
gap[0] = t[0]
assert refuses(BufferError, lambda: moonferry.asarray(gap[:]))
x = x[:]
"""
        + FILES,
    ),
    Other(
        "Blosc2",
        "compressed: `blosc2.asarray(t)` packs, `asarray(x)` unpacks",
        "import blosc2\nx = blosc2.asarray(t)\n" + FILES,
    ),
    Other(
        "safetensors",
        '`save({"a": t.numpy()})` writes (it uses NumPy\'s `ctypes`); `TensorSpec` takes '
        "`t.data_ptr`, also for bfloat16",
        """
import safetensors, safetensors.numpy as s
half = t.astype("bfloat16")
spec = safetensors.TensorSpec(dtype=half.dtype.name, shape=half.shape, data_ptr=half.data_ptr, data_len=half.nbytes)
read = dict(safetensors.deserialize(safetensors.serialize({"a": spec})))["a"]
assert moonferry.equal(moonferry.frombuffer(read["data"], "bfloat16").reshape(read["shape"]), half)
x = s.load(s.save({"a": t.numpy()}))["a"]
"""
        + FILES,
    ),
    Other(
        "gguf",
        "`add_tensor(name, t.numpy())` writes (it calls NumPy's `tofile`); the arrays that a reader maps are "
        "imported without a copy",
        """
import gguf, tempfile
path = tempfile.mkstemp()[1]
file = gguf.GGUFWriter(path, "none")
file.add_tensor("a", t.numpy())
file.write_header_to_file(), file.write_kv_data_to_file(), file.write_tensors_to_file(), file.close()
x = gguf.GGUFReader(path).tensors[0].data
mapped = moonferry.asarray(x)
assert mapped.data_ptr == x.ctypes.data and mapped.readonly
"""
        + FILES,
    ),
    Other(
        "ONNX",
        "`from_array(t.numpy())` and `asarray(to_array(x))`, with bfloat16 and int4; `from_array(t)` needs "
        "a NumPy dtype",
        """
import onnx, onnx.numpy_helper as h
assert refuses(ValueError, lambda: h.from_array(t))
narrow = moonferry.asarray(h.to_array(onnx.helper.make_tensor("", onnx.TensorProto.INT4, [4], [1, -2, 3, -4])))
assert narrow.dtype == "int4" and narrow.tolist() == [1, -2, 3, -4]
assert moonferry.equal(moonferry.asarray(h.to_array(h.from_array(narrow.numpy()))), narrow)
x = h.to_array(h.from_array(t.numpy()))
"""
        + FILES,
    ),
    Other(
        "PyVista",
        "`PolyData(t.numpy())` and `d['a'] = t.numpy()` without a copy, and so is `asarray(d.points)`; it "
        "refuses tensors",
        """
import pyvista
points = t.reshape(8, 3)
assert refuses(TypeError, lambda: pyvista.PolyData(points))
d = pyvista.PolyData(points.numpy())
assert moonferry.asarray(d.points).data_ptr == t.data_ptr
d["a"] = t.reshape(8, 3).numpy()
assert moonferry.asarray(d["a"]).data_ptr == t.data_ptr
""",
    ),
    Other(
        "NumPy's files",
        "`np.save(file, t)` writes; `asarray(np.load(file, mmap_mode='r'))` is the mapped file, read-only, and `'r+'` "
        "writes to it",
        """
numpy.save("x.npy", t)
x = moonferry.asarray(numpy.load("x.npy", mmap_mode="r"), copy=False)
assert x.readonly and moonferry.equal(x, t)
x = moonferry.asarray(numpy.load("x.npy", mmap_mode="r+"), copy=False)
x[0, 0] = t[0, 0] = 5
x = numpy.load("x.npy")
"""
        + FILES,
    ),
    Other(
        "numcodecs",
        "`encode(t)` packs, `decode(packed, out=t)` unpacks into the tensor's memory",
        """
import numcodecs
codec, x = numcodecs.Blosc(), moonferry.zeros((4, 6))
codec.decode(codec.encode(t), out=x)
"""
        + FILES,
    ),
    Other(
        "scikit-image, imageio",
        "they accept tensors and return NumPy arrays; `imwrite(file, t)` and `asarray(imread(file))`",
        """
import imageio.v3, skimage.filters, skimage.transform
assert moonferry.asarray(skimage.filters.gaussian(t, 1)).shape == (4, 6)
assert skimage.transform.resize(t, (8, 12)).shape == (8, 12)
x = imageio.v3.imread(imageio.v3.imwrite("<bytes>", t.astype("uint8"), extension=".png"))
x = moonferry.asarray(x).astype("float32")
"""
        + FILES,
    ),
    Other(
        "Mitsuba",
        "`Bitmap(t)` copies, `asarray(bitmap)` does not; `TensorXf` is Dr.Jit's",
        """
import mitsuba
mitsuba.set_variant("scalar_rgb")
bitmap = mitsuba.Bitmap(t)
x = moonferry.asarray(bitmap, copy=False)
assert x.data_ptr == moonferry.asarray(bitmap).data_ptr != t.data_ptr
"""
        + FILES,
    ),
    Other(
        "VisPy",
        "its buffers need NumPy arrays: `VertexBuffer(t.numpy())`",
        """
from vispy.gloo import VertexBuffer
assert refuses(ValueError, lambda: VertexBuffer(t))
assert VertexBuffer(t.numpy()).nbytes == t.nbytes
""",
    ),
    Other(
        "joblib",
        "pickles tensors and hashes what they hold; NumPy's files are mapped (`dump(t.numpy())`, "
        "`load(mmap_mode='r')`)",
        """
import joblib, os, tempfile
path = os.path.join(tempfile.mkdtemp(), "x")
joblib.dump(t, path)
x = joblib.load(path)
assert type(x) is moonferry.Tensor and joblib.hash(x) == joblib.hash(t) != joblib.hash(t.T)
joblib.dump(t.numpy(), path)
mapped = joblib.load(path, mmap_mode="r")
assert moonferry.asarray(mapped).readonly and moonferry.asarray(mapped).data_ptr == mapped.ctypes.data
"""
        + FILES,
    ),
    Other(
        "array-api-compat",
        "a tensor computes nothing, so it has no namespace and `array_namespace(t)` refuses it; `t.numpy()` has one",
        """
import array_api_compat as compat
assert not compat.is_array_api_obj(t) and refuses(TypeError, lambda: compat.array_namespace(t))
xp = compat.array_namespace(t.numpy())
x = xp.permute_dims(xp.permute_dims(t.numpy(), (1, 0)), (1, 0))
assert moonferry.asarray(x).data_ptr == t.data_ptr
"""
        + FILES,
    ),
    Other(
        "sparse, SciPy",
        "`sparse.COO.from_numpy(t)` and `scipy.sparse.csr_array(t)` copy the nonzero elements; SciPy accepts tensors, "
        "except in `wavfile.write(file, rate, t.numpy())`",
        """
import io, sparse, scipy.fft, scipy.io.wavfile, scipy.ndimage, scipy.sparse
assert scipy.fft.fft2(t).shape == scipy.ndimage.gaussian_filter(t, 1).shape == (4, 6)
scipy.io.wavfile.write(io.BytesIO(), 8000, t.numpy())
x = sparse.COO.from_numpy(t).todense()
assert moonferry.equal(scipy.sparse.csr_array(t).todense(), t)
"""
        + FILES,
    ),
    Other(
        "OpenCV",
        "its arrays are NumPy's, and it refuses others: `cv2.add(t.numpy(), 1)` reads and writes the tensor's memory",
        """
import cv2
assert refuses(cv2.error, lambda: cv2.add(t, 1.0))
was = t.copy()
cv2.add(t.numpy(), 1.0, dst=t.numpy())
assert t[0, 0] == was[0, 0] + 1
""",
    ),
    Other(
        "NumExpr",
        "accepts tensors, and returns NumPy arrays",
        "import numexpr\nx = numexpr.evaluate('u * 1', {'u': t})\n" + FILES,
    ),
    Other(
        "PyAV",
        "planes are taken without a copy (`asarray(frame.planes[0])`), and `VideoFrame.from_dlpack` takes tensors",
        """
import av
frame = av.VideoFrame(64, 4, "gray")
x = moonferry.asarray(frame.planes[0])
x.fill(7)
assert frame.to_ndarray()[3, 63] == 7 and hasattr(av.VideoFrame, "from_dlpack")
""",
    ),
    Other(
        "Taichi",
        "no DLPack and no buffers: `from_numpy(t.numpy())` and `to_numpy()` copy; `asarray` refuses its arrays",
        """
import taichi as ti
ti.init(arch=ti.cpu, log_level=ti.ERROR)
assert refuses(TypeError, lambda: moonferry.asarray(ti.ndarray(ti.f32, (4,))))
field = ti.field(ti.f32, (4, 6))
field.from_numpy(t.numpy())
x = field.to_numpy()
"""
        + FILES,
    ),
    Other(
        "tinygrad",
        "no DLPack and no buffers: `Tensor(t.numpy())` and `asarray(x.numpy())`; `asarray(x)` reads single numbers",
        """
import os
os.environ["DEV"] = "PYTHON"
import tinygrad
x = tinygrad.Tensor(t.numpy())
assert moonferry.asarray(tinygrad.Tensor([1.0])).dtype == "float64"
x = x.numpy()
"""
        + FILES,
    ),
    Other(
        "ModernGL",
        "`buffer(t)` copies to the GPU and `read_into(t)` back; views must be compact",
        """
import moderngl
buffer = moderngl.create_context(standalone=True, backend="egl").buffer(t)
x = moonferry.zeros((4, 6))
buffer.read_into(x)
"""
        + FILES,
    ),
    Other(
        "wgpu",
        "`create_buffer_with_data(data=t)` copies to the GPU, `asarray(queue.read_buffer(b))` copies back",
        """
import wgpu
device = wgpu.gpu.request_adapter_sync().request_device_sync()
buffer = device.create_buffer_with_data(data=t, usage=wgpu.BufferUsage.COPY_SRC)
x = moonferry.asarray(device.queue.read_buffer(buffer)).reinterpret("float32").reshape(4, 6)
"""
        + FILES,
    ),
    Other(
        "SharedMemory, pools",
        "`frombuffer(memory.buf)` without a copy; a pool pickles ([distributed.md](distributed.md))",
        """
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=96)
x = moonferry.frombuffer(memory.buf, "float32").reshape(4, 6)
x[...] = t
assert bytes(memory.buf)[:96] == t.tobytes()
"""
        + FILES
        + "del x\nmemory.close()\nmemory.unlink()\n",
    ),
    Other(
        "nanoarrow, arro3",
        "by Arrow's PyCapsules, without a copy both ways; nulls and chunks are refused",
        """
import arro3.core, nanoarrow
flat = t.reshape(-1)
assert nanoarrow.c_array(flat).buffers[1] == t.data_ptr
assert refuses(BufferError, lambda: moonferry.from_arrow(nanoarrow.Array([1, None], nanoarrow.int32())))
made = arro3.core.Array.from_arrow(flat)
assert moonferry.from_arrow(made).data_ptr == moonferry.from_arrow(nanoarrow.Array(flat)).data_ptr == t.data_ptr
assert refuses(BufferError, lambda: moonferry.from_arrow(arro3.core.ChunkedArray([made, made])))
""",
    ),
    Other(
        "CTranslate2",
        "`StorageView.from_array(t)` and `asarray(view)` without a copy; views must be compact and writable",
        """
import ctranslate2
view = ctranslate2.StorageView.from_array(t)
x = moonferry.asarray(view)
assert x.data_ptr == t.data_ptr
for odd in (t.T, t[:, ::2], t.as_readonly()):
    assert refuses(ValueError, lambda: ctranslate2.StorageView.from_array(odd))
"""
        + FILES,
    ),
    Other(
        "kornia-rs",
        "`Image.from_dlpack(t)` and `from_dlpack(image)` without a copy; its functions need NumPy arrays",
        """
import kornia_rs
pixels = moonferry.zeros((4, 6, 3), "uint8")
image = kornia_rs.image.Image.from_dlpack(pixels)
assert moonferry.from_dlpack(image).data_ptr == pixels.data_ptr
assert refuses(TypeError, lambda: kornia_rs.imgproc.resize(pixels, (2, 3), "nearest"))
assert moonferry.asarray(kornia_rs.imgproc.resize(pixels.numpy(), (2, 3), "nearest")).shape == (2, 3, 3)
""",
    ),
    Other(
        "XGBoost",
        "`DMatrix(t, label=u)` and `inplace_predict(t)` accept tensors; it returns NumPy arrays",
        """
import xgboost
label = moonferry.ones(4)
trained = xgboost.train({}, xgboost.DMatrix(t, label=label), 1)
assert moonferry.asarray(trained.inplace_predict(t)).shape == (4,)
assert moonferry.asarray(xgboost.DMatrix(t[:, ::2], label=label).get_label()).tolist() == [1.0] * 4
""",
    ),
    Other(
        "scikit-learn",
        "its estimators accept tensors, and return NumPy arrays",
        """
from sklearn.preprocessing import StandardScaler
scaler = StandardScaler().fit(t)
x = scaler.inverse_transform(scaler.transform(t)).round()
"""
        + FILES,
    ),
    Other(
        "USearch",
        "needs NumPy arrays: `index.add(keys, t.numpy())`",
        """
import usearch.index
index = usearch.index.Index(ndim=6)
assert refuses(AssertionError, lambda: index.add(numpy.arange(4), t))
index.add(numpy.arange(4), t.numpy())
assert index.search(t[2].numpy(), 1).keys[0] in range(4)
""",
    ),
    Other(
        "boost-histogram",
        "`h.fill(t)` accepts tensors, and `asarray(h)` is an array of its bins",
        """
import boost_histogram
h = boost_histogram.Histogram(boost_histogram.axis.Regular(4, 0, 24))
h.fill(t.astype("float64").reshape(-1))
assert moonferry.asarray(h).tolist() == [6.0] * 4
""",
    ),
    Other(
        "libvips",
        "`pyvips.Image.new_from_array(t)` copies, `asarray(image)` has what it computed",
        """
import pyvips
x = moonferry.asarray(pyvips.Image.new_from_array(t)).reshape(4, 6)
"""
        + FILES,
    ),
    Other(
        "pygame-ce",
        "`asarray(surface.get_view('2'))` is the surface's own memory; `make_surface(t)` and `blit_array(surface, t)` "
        "copy",
        """
import pygame
surface = pygame.Surface((6, 4), depth=32)
moonferry.asarray(surface.get_view("2")).fill(7)
assert surface.get_at_mapped((5, 3)) == 7
pygame.surfarray.blit_array(surface, moonferry.full((6, 4, 3), 9, "uint8"))
assert surface.get_at((5, 3))[:3] == (9, 9, 9)
""",
    ),
    Other(
        "soundfile",
        "`write(file, t, rate)` and `read(file, out=t)`, which writes into the tensor's memory",
        """
import io, soundfile
file, x = io.BytesIO(), moonferry.zeros((4, 6))
soundfile.write(file, t, 8000, format="WAV", subtype="FLOAT")
file.seek(0)
assert soundfile.read(file, out=x) is not None
"""
        + FILES,
    ),
    Other(
        "TensorStore",
        "`tensorstore.array(t)` copies, and so does `store.write(t)`; `asarray(store)` reads",
        "import tensorstore\nx = tensorstore.array(numpy.zeros((4, 6), 'f4'))\nx.write(t).result()\n" + FILES,
    ),
    Other(
        "pyFFTW",
        "plans need NumPy arrays: `FFTW(t.numpy(), u.numpy())` works in the tensors' memory; `interfaces` take tensors",
        """
import pyfftw
a, b = moonferry.ones(8, "complex64"), moonferry.zeros(8, "complex64")
assert refuses(ValueError, lambda: pyfftw.FFTW(a, b))
plan = pyfftw.FFTW(a.numpy(), b.numpy())
a.fill(1)
plan()
assert b[0] == 8 and moonferry.asarray(pyfftw.interfaces.numpy_fft.fft(a))[0] == 8
""",
    ),
    *(Other(*row) for row in [*science.ROWS, *everyday.ROWS]),
    Other("Dask, Ray, MPI, torch.distributed", "[distributed.md](distributed.md) says what each copies", ""),
    Other("Open3D 0.20", "by hand: zero-copy both ways; not run here, because it needs Debian's libusb-1.0-0", ""),
    Other(
        "dpctl, dpnp",
        "by hand: `dpnp.asarray(t)` and `from_dlpack(x, device='cpu')` copy, and without a device oneAPI's memory is "
        "refused; not run here, because dpnp 0.20 does not load with the MKL and TBB that pip installs",
        "",
    ),
    Other("pygfx", "by hand: `Buffer(t)` keeps the tensor, and its `view` is NumPy's over the same memory", ""),
    Other("pyglet", "not run: it needs a display", ""),
    Other("torch.compile", "by hand, with its eager backend: a compiled function accepts `into(torch.Tensor, t)`", ""),
    Other("llama-cpp-python", "not run: it has no wheel; its logits are NumPy arrays", ""),
    Other("MindSpore 2.10", "by hand: `asarray` and `from_dlpack(t.__dlpack__())` without a copy", ""),
]


def run(other, environment):
    """Why what is said of a library does not hold; None if it does."""
    if not other.program:
        return None
    command = [environment.python, "-c", BEGIN + other.program]
    variables = {**os.environ, **environment.variables()}
    done = subprocess.run(command, env=variables, cwd=environment.here, capture_output=True, text=True, timeout=300)
    return done.stderr.strip().splitlines()[-1][:300] if done.returncode else None
