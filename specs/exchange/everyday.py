"""The libraries of messages, archives, signals, shapes and models among those of others.py, which says how to run them.

Responsible for what each does with a tensor, and for the program that asserts it. Must not know the other libraries.
"""

ROWS = [
    (
        "pyzmq",
        "`socket.send(t, copy=False)` sends the tensor's memory, `frombuffer(frame.buffer)` is the frame's",
        """
import zmq
with zmq.Context() as context, context.socket(zmq.PAIR) as a, context.socket(zmq.PAIR) as b:
    a.bind("inproc://t")
    b.connect("inproc://t")
    a.send(t, copy=False)
    frame = b.recv(copy=False)
    x = moonferry.frombuffer(frame.buffer, "float32").reshape(4, 6)
    assert x.data_ptr == moonferry.asarray(frame.buffer).data_ptr
    assert moonferry.equal(x, t)
""",
    ),
    (
        "orjson",
        "it knows NumPy's arrays alone: `dumps(t.numpy(), option=OPT_SERIALIZE_NUMPY)`, or `dumps(t.tolist())`",
        """
import orjson
assert refuses(TypeError, lambda: orjson.dumps(t, option=orjson.OPT_SERIALIZE_NUMPY))
text = orjson.dumps(t.numpy(), option=orjson.OPT_SERIALIZE_NUMPY)
assert text == orjson.dumps(t.tolist()) and moonferry.equal(moonferry.tensor(orjson.loads(text), "float32"), t)
""",
    ),
    (
        "Zstandard, LZ4",
        "`compress(t)` packs, `frombuffer(decompress(packed))` is read-only; `stream_reader(f).readinto(t)` unpacks",
        """
import io
import lz4.frame
import zstandard
packed = zstandard.ZstdCompressor().compress(t)
for done in (zstandard.ZstdDecompressor().decompress(packed), lz4.frame.decompress(lz4.frame.compress(t))):
    x = moonferry.frombuffer(done, "float32").reshape(4, 6)
    assert x.readonly and moonferry.equal(x, t)
x = moonferry.zeros((4, 6))
with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)) as reader:
    assert reader.readinto(x) == x.nbytes
assert moonferry.equal(x, t)
""",
    ),
    (
        "imagecodecs",
        "`png_encode(t)` and `png_decode(data, out=t)`, which writes into the tensor's memory",
        """
import imagecodecs
u, x = t.astype("uint8"), moonferry.zeros((4, 6), "uint8")
data = imagecodecs.png_encode(u)
imagecodecs.png_decode(data, out=x)
assert moonferry.equal(x, u) and moonferry.equal(imagecodecs.png_decode(data), u)
""",
    ),
    (
        "PyTables",
        "a file: `create_array('/', 'a', t.numpy())` and `node[0] = t.numpy()` write, `asarray(node[:])` reads; "
        "`asarray(node)` reads single numbers",
        """
import tables
with tables.open_file("x.h5", "w") as file:
    assert refuses(TypeError, lambda: file.create_array("/", "b", t))
    node = file.create_array("/", "a", t.numpy())
    node[0] = t[1].numpy()
    x = moonferry.asarray(node[:])
    assert moonferry.asarray(node).dtype == "float64"
assert moonferry.equal(x[0], t[1]) and moonferry.equal(x[1:], t[1:])
""",
    ),
    (
        "soxr",
        "`resample(t, rate, rate)` accepts tensors, and returns NumPy arrays",
        """
import soxr
sound = moonferry.asarray(numpy.sin(numpy.arange(4800, dtype="float32")))
x = moonferry.asarray(soxr.resample(sound, 48000, 16000))
assert x.shape == (1600,) and x.dtype == "float32"
""",
    ),
    (
        "PyWavelets",
        "its functions need NumPy arrays, of whose class they ask the dtype: `dwt(t.numpy(), 'haar')`",
        """
import pywt
assert refuses(TypeError, lambda: pywt.dwt(t, "haar"))
x = moonferry.asarray(pywt.idwt(*pywt.dwt(t.numpy(), "haar"), "haar"))
assert numpy.allclose(x, t)
""",
    ),
    (
        "ducc0, FINUFFT",
        "they need NumPy arrays, and compute into the tensor's memory: `ducc0.fft.c2c(t.numpy(), out=u.numpy())`",
        """
import ctypes
import ducc0
import finufft
u, x = t.astype("complex64"), moonferry.zeros((4, 6), "complex64")
assert refuses(TypeError, lambda: ducc0.fft.c2c(u))
ducc0.fft.c2c(u.numpy(), out=x.numpy())
assert numpy.allclose(x, numpy.fft.fftn(u.numpy()))
places, ones, out = moonferry.zeros(3, "float64"), moonferry.ones(3, "complex128"), moonferry.zeros(8, "complex128")
assert refuses(ctypes.ArgumentError, lambda: finufft.nufft1d1(places, ones, 8))
finufft.nufft1d1(places.numpy(), ones.numpy(), out=out.numpy())
assert numpy.allclose(out, 3)
""",
    ),
    (
        "pyproj",
        "`transformer.transform(t, u)` accepts tensors, and returns NumPy arrays; `inplace=True` writes into tensors",
        """
import pyproj
project = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform
u, v = moonferry.tensor([1.0, 2.0]), moonferry.tensor([3.0, 4.0])
x, y = project(u, v)
assert u[0] == 1 and numpy.allclose(x, [project(1, 3)[0], project(2, 4)[0]])
project(u, v, inplace=True)
assert moonferry.equal(moonferry.asarray(x), u) and moonferry.equal(moonferry.asarray(y), v)
""",
    ),
    (
        "mapbox_earcut, pyclipper",
        "`triangulate_float32(t, rings)` and `AddPath(t, ...)` accept tensors; the results are NumPy arrays and lists",
        """
import mapbox_earcut
import pyclipper
square = moonferry.tensor([[0, 0], [100, 0], [100, 100], [0, 100]])
x = mapbox_earcut.triangulate_float32(square.astype("float32"), moonferry.tensor([4], "uint32"))
assert moonferry.asarray(x).shape == (6,)
offset = pyclipper.PyclipperOffset()
offset.AddPath(square, pyclipper.JT_MITER, pyclipper.ET_CLOSEDPOLYGON)
assert moonferry.tensor(offset.Execute(10)).shape == (1, 4, 2)
""",
    ),
    (
        "einops",
        "it knows the classes of its libraries alone: `rearrange(t.numpy(), ...)` is a view of the tensor's memory",
        """
import einops
assert refuses(RuntimeError, lambda: einops.rearrange(t, "a b -> b a"))
x = moonferry.asarray(einops.rearrange(t.numpy(), "a b -> b a"))
assert x.data_ptr == t.data_ptr and moonferry.equal(x, t.T)
""",
    ),
    (
        "opt_einsum, autograd",
        "`contract('ij,kj->ik', t, u)` accepts tensors; autograd differentiates for NumPy arrays: `f(t.numpy())`",
        """
import autograd
import autograd.numpy
import opt_einsum
assert numpy.allclose(opt_einsum.contract("ij,kj->ik", t, t), t.numpy() @ t.numpy().T)
gradient = autograd.grad(lambda a: autograd.numpy.sum(a * a))
assert refuses(TypeError, lambda: gradient(t))
assert numpy.allclose(moonferry.asarray(gradient(t.numpy())), 2 * t.numpy())
""",
    ),
    (
        "LightGBM",
        "`Dataset(t.numpy(), u.numpy())`: labels must be NumPy arrays, and tensors go through SciPy's sparse matrices",
        """
import lightgbm
import warnings
warnings.simplefilter("ignore")
rows = moonferry.asarray(numpy.random.default_rng(0).random((200, 4)))
label = moonferry.asarray(rows.numpy()[:, 0] > 0.5).astype("float32")
quiet = {"verbose": -1, "objective": "binary"}
assert refuses(TypeError, lambda: lightgbm.Dataset(rows.numpy(), label, params=quiet).construct())
model = lightgbm.train(quiet, lightgbm.Dataset(rows.numpy(), label.numpy()), 3)
assert numpy.allclose(model.predict(rows), model.predict(rows.numpy()))
""",
    ),
    (
        "PyAMG",
        "`solver.solve(t)` accepts tensors, and returns NumPy arrays",
        """
import pyamg
matrix = pyamg.gallery.poisson((10, 10), format="csr")
x = moonferry.asarray(pyamg.ruge_stuben_solver(matrix).solve(moonferry.ones(100, "float64"), tol=1e-10))
assert numpy.allclose(matrix @ x.numpy(), 1)
""",
    ),
]
