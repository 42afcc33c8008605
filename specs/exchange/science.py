"""The libraries of pictures, maps, shapes and measurements among those of others.py, which says how they are run.

Responsible for what each does with a tensor, and for the program that asserts it. Must not know the other libraries.
"""

ROWS = [
    (
        "decord",
        "`nd.from_dlpack(t.__dlpack__())` and `from_dlpack(x.to_dlpack())` without a copy, as before DLPack 1.0",
        """
import decord
x = decord.nd.from_dlpack(t.__dlpack__())
t[0, 0] = 7
x = moonferry.from_dlpack(x.to_dlpack())
assert x.data_ptr == t.data_ptr
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
    (
        "Astropy",
        "`fits.PrimaryHDU(t.numpy())` writes, and `asarray(fits.getdata(file))` reads, turning FITS's bytes round; "
        "`Quantity(t, unit)` copies, `asarray(quantity)` does not and drops the unit; columns accept tensors",
        """
import io
from astropy import table, units
from astropy.io import fits
file = io.BytesIO()
fits.PrimaryHDU(t.numpy()).writeto(file)
file.seek(0)
x = fits.getdata(file)
assert refuses(BufferError, lambda: moonferry.asarray(x, copy=False))
quantity = units.Quantity(t, units.m, dtype="float32")
shared = moonferry.asarray(quantity)
assert moonferry.equal(shared, t) and shared.data_ptr == quantity.ctypes.data
assert moonferry.equal(moonferry.asarray(table.Table({"a": t[0]})["a"]), t[0])
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
    (
        "tifffile",
        "`imwrite(file, t)`, `imread(file, out=t.numpy())` and `asarray(memmap(file))`, the mapped file",
        """
import tifffile
tifffile.imwrite("x.tif", t)
x = moonferry.zeros((4, 6))
tifffile.imread("x.tif", out=x.numpy())
mapped = tifffile.memmap("x.tif", mode="r")
assert moonferry.equal(mapped, t) and moonferry.asarray(mapped).data_ptr == mapped.ctypes.data
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
    (
        "rasterio",
        "`d.write(t)` and `asarray(d.read())`; `d.read(out=t.numpy())` reads into the tensor's memory",
        """
import warnings
from rasterio.io import MemoryFile
warnings.simplefilter("ignore")
x = moonferry.zeros((4, 6))
with MemoryFile() as file:
    with file.open(driver="GTiff", width=6, height=4, count=1, dtype="float32") as d:
        d.write(t, 1)
    with file.open() as d:
        assert moonferry.equal(d.read(1), t)
        assert refuses((TypeError, AttributeError), lambda: d.read(1, out=x))
        d.read(1, out=x.numpy())
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
    (
        "pydicom",
        "`set_pixel_data(t.numpy(), ...)` and `PixelData = t.tobytes()` write; `asarray(ds.pixel_array)` reads",
        """
import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian
ds, u = Dataset(), t.astype("uint16")
ds.file_meta = FileMetaDataset()
ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
ds.set_pixel_data(u.numpy(), "MONOCHROME2", 16)
ds.PixelData = u.tobytes()
assert moonferry.equal(moonferry.asarray(ds.pixel_array), u)
""",
    ),
    (
        "NiBabel",
        "`Nifti1Image(t.numpy(), affine)`; `asarray(image.dataobj)` reads a file, which copy=False refuses",
        """
import nibabel
nibabel.save(nibabel.Nifti1Image(t.numpy(), numpy.eye(4)), "x.nii")
x = nibabel.load("x.nii").dataobj
assert refuses(BufferError, lambda: moonferry.asarray(x, copy=False))
x = moonferry.asarray(x).astype("float32")
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
    (
        "SimpleITK",
        "`GetImageFromArray(t)` copies, `asarray(GetArrayViewFromImage(image))` does not and is read-only; "
        "`asarray(image)` reads single numbers",
        """
import SimpleITK
image = SimpleITK.GetImageFromArray(t)
x = SimpleITK.GetArrayViewFromImage(image)
shared = moonferry.asarray(x)
assert shared.readonly and shared.data_ptr == x.ctypes.data and moonferry.asarray(image).shape == (24,)
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
    (
        "Shapely",
        "coordinates: `points(t)`, `Polygon(t)` and `contains_xy(p, u, v)` accept tensors; "
        "`asarray(get_coordinates(p))`; geometries are objects, which `asarray` refuses",
        """
import shapely
corners = moonferry.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0]])
square = shapely.Polygon(corners)
assert square.area == 2 and len(shapely.points(corners)) == 3
assert moonferry.equal(moonferry.asarray(shapely.get_coordinates(square))[:3], corners)
assert shapely.contains_xy(square, corners[:, 0], corners[:, 1]).shape == (3,)
assert refuses(BufferError, lambda: moonferry.asarray(shapely.points(corners)))
""",
    ),
    (
        "trimesh",
        "`Trimesh(t, faces)` copies, `asarray(mesh.vertices)` does not",
        """
import trimesh
corners, faces = moonferry.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), moonferry.tensor([[0, 1, 2]])
mesh = trimesh.Trimesh(corners, faces, process=False)
assert mesh.area == 0.5 and moonferry.equal(mesh.vertices, corners)
assert moonferry.asarray(mesh.vertices).data_ptr == mesh.vertices.ctypes.data
""",
    ),
    (
        "Faiss",
        "`index.add(t)` and `index.search(t, k)` accept tensors; it returns NumPy arrays",
        """
import faiss
index = faiss.IndexFlatL2(6)
index.add(t)
distances, places = map(moonferry.asarray, index.search(t[2:3], 1))
assert places.tolist() == [[2]] and distances.tolist() == [[0.0]]
""",
    ),
    (
        "DataFusion",
        "a table of tensors through pyarrow, columns of results by `asarray`; `from_arrow` refuses whole tables",
        """
import datafusion, pyarrow
frame = datafusion.SessionContext().from_arrow(pyarrow.table({"a": t.reshape(-1)}))
x = moonferry.asarray(frame.to_arrow_table().column("a")).reshape(4, 6)
assert refuses(BufferError, lambda: moonferry.from_arrow(frame))
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
    (
        "Bottleneck, healpy",
        "they accept tensors and return NumPy arrays, but for `bottleneck.replace(t.numpy(), ...)`, which works in "
        "place, and `healpy.anafast(t.numpy())`, which calls NumPy's `astype`",
        """
import bottleneck, healpy
assert bottleneck.nansum(t) == 276 and healpy.ud_grade(moonferry.ones(12, "float64"), 2).shape == (48,)
assert refuses(TypeError, lambda: bottleneck.replace(t, 1, 2))
assert refuses(TypeError, lambda: healpy.anafast(moonferry.ones(12, "float64")))
assert moonferry.asarray(healpy.anafast(moonferry.ones(12, "float64").numpy())).shape == (3,)
bottleneck.replace(t.numpy(), 1, 2)
assert t[0, 1] == 2
""",
    ),
    (
        "unyt",
        "`unyt_array(t.numpy(), unit)` shares the memory (it asks a tensor for its truth), and `t * unit` copies; "
        "`asarray(quantity)` shares the memory and drops the unit",
        """
import unyt
assert refuses(ValueError, lambda: unyt.unyt_array(t, "m"))
quantity = unyt.unyt_array(t.numpy(), "m")
x = moonferry.asarray(quantity)
assert x.data_ptr == t.data_ptr and moonferry.equal(t * unyt.m, x)
assert moonferry.equal(moonferry.asarray(x), t)
""",
    ),
]
