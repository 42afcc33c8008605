"""Arrow's libraries take tensors and give columns over one memory: pyarrow, polars and, through a table, duckdb."""

import gc
import importlib.util

import pytest

import moonferry as mf


def library(name):
    if not importlib.util.find_spec(name):
        pytest.skip(f"{name} is not installed for this Python")
    return importlib.import_module(name)


NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_pyarrow_takes_the_exact_dtype_over_the_same_memory(dtype):
    pa = library("pyarrow")
    t = mf.tensor([1, 2, 3], dtype)
    address, a = t.data_ptr, pa.array(t)
    del t
    gc.collect()
    assert a.type == getattr(pa, dtype if dtype != "float64" else "float64")() and a.to_pylist() == [1, 2, 3]
    assert a.buffers()[1].address == address
    back = mf.from_arrow(a[1:])
    assert back.dtype == dtype and back.tolist() == [2, 3] and back.data_ptr == address + back.itemsize


def test_pyarrow_takes_axes_and_truth_values():
    pa = library("pyarrow")
    t = mf.tensor([[1, 2, 3], [4, 5, 6]], "int32")
    a = pa.array(t)
    assert a.type == pa.list_(pa.int32(), 3) and a.to_pylist() == t.tolist()
    assert pa.table({"a": t, "b": mf.tensor([True, False])}).to_pydict() == {"a": t.tolist(), "b": [True, False]}
    assert mf.from_arrow(pa.array([[1, 2], [3, 4]], pa.list_(pa.uint8(), 2))[1:]).tolist() == [[3, 4]]


def test_pyarrows_nulls_and_chunks_are_refused():
    pa = library("pyarrow")
    with pytest.raises(mf.ExchangeError, match="1 nulls"):
        mf.from_arrow(pa.array([1, None, 3]))
    assert mf.from_arrow(pa.array([1, None, 3])[2:]).tolist() == [3]
    chunks = pa.chunked_array([[1, 2], [3]])
    with pytest.raises(mf.ExchangeError, match="2 chunks"):
        mf.from_arrow(chunks)
    assert mf.from_arrow(chunks.combine_chunks()).tolist() == [1, 2, 3]
    with pytest.raises(mf.ExchangeError, match="'u'|'U'"):
        mf.from_arrow(pa.array(["a"]))
    with pytest.raises(mf.ExchangeError, match="one column"):
        mf.from_arrow(pa.table({"a": [1]}))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_polars_takes_and_gives(dtype):
    pl = library("polars")
    t = mf.tensor([1, 2, 3], dtype)
    s = pl.Series(t)
    assert s.to_list() == [1, 2, 3] and (dtype == "float16" or str(s.dtype).lower() == dtype)
    back = mf.from_arrow(s)
    assert back.dtype == dtype and back.tolist() == [1, 2, 3] and back.data_ptr == t.data_ptr
    del t, s
    gc.collect()
    assert back.tolist() == [1, 2, 3]
    assert pl.DataFrame({"a": mf.tensor([[1, 2], [3, 4]], dtype)})["a"].to_list() == [[1, 2], [3, 4]]


def test_polars_nulls_are_refused():
    pl = library("polars")
    with pytest.raises(mf.ExchangeError, match="1 nulls"):
        mf.from_arrow(pl.Series([1, None]))
    assert mf.from_arrow(pl.Series([True, False, True])).tolist() == [True, False, True]


def holed():
    """Arrays that lack an element, by library and kind."""
    pa, pl, pd = library("pyarrow"), library("polars"), library("pandas")
    yield pa.array([1, None, 3])
    yield pa.chunked_array([[1, None], [3]])
    yield pa.table({"a": [1, 2], "b": [1, None]})
    yield pl.Series([1.5, None])
    yield pl.DataFrame({"a": [1, 2], "b": [1, None]})
    yield pd.Series([1, None], dtype="Int64")
    yield pd.Series([1, None], dtype="int64[pyarrow]")
    yield pd.DataFrame({"a": [1, 2], "b": pd.array([1, None])})


def test_asarray_makes_no_nan_of_a_null():
    """Their own __array__ does, and floats of integers."""
    for obj in holed():
        with pytest.raises(mf.ExchangeError, match=f"asarray: 1 nulls in a .*{type(obj).__name__}.*to_numpy"):
            mf.asarray(obj)


def test_asarray_takes_what_has_no_null():
    pl, pd = library("polars"), library("pandas")
    assert mf.asarray(pd.Series([1, 2], dtype="Int64")).tolist() == [1, 2]
    assert mf.asarray(pd.DataFrame({"a": [1, 2], "b": [3, 4]})).tolist() == [[1, 3], [2, 4]]
    assert mf.asarray(pl.DataFrame({"a": [1, 2], "b": [3, 4]})).tolist() == [[1, 3], [2, 4]]
    there = mf.asarray(pd.Series([1.5, None]))  # NaN is a number of NumPy's, and no null
    assert str(there.tolist()) == "[1.5, nan]"


def test_duckdb_reads_a_table_of_tensors():
    pa, duckdb = library("pyarrow"), library("duckdb")
    columns = pa.table({"a": mf.tensor([1, 2, 3], "int16"), "b": mf.tensor([0.5, 1, 1.5], "float32")})  # noqa: F841
    given = duckdb.sql("select a * 2 as x, b from columns where a > 1").to_arrow_table()
    assert mf.from_arrow(given["x"].combine_chunks()).tolist() == [4, 6]
    assert mf.from_arrow(given["b"].combine_chunks()).dtype == "float32"
