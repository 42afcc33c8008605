"""Devices as the module reads and gives them."""

import enum
import re
import sys

import pytest

import moonferry as mf

OUT_OF_RANGE = [(1 << 40, 0), (1, 1 << 40), (-(1 << 40), 0), (1, -(1 << 40)), (1 << 40, 1 << 40)]


@pytest.mark.parametrize("pair", OUT_OF_RANGE, ids=repr)
def test_a_pair_of_numbers_that_no_device_has_is_refused(pair):
    with pytest.raises(ValueError, match=re.escape(f"device is {pair}; two integers of 32 bits expected")):
        mf.empty(2, device=pair)


@pytest.mark.parametrize("name", ["x.float32", "<class 'numpy.int8'>"])
def test_a_dtype_in_its_place_is_named(name):
    with pytest.raises(ValueError, match="a dtype; astype converts"):
        mf.empty(2, device=name)


@pytest.mark.parametrize("length", [1, 31, 32, 62, 63, 64, 65, 300])
def test_a_name_of_any_length_is_read_to_its_end(length):
    with pytest.raises(ValueError) as error:
        mf.empty(2, device="x" * length)
    shown = "x" * min(length, 64)
    assert str(error.value) == f'device is "{shown}"; a name such as "cpu", "cuda:0" or "rocm:0" expected'


@pytest.mark.parametrize("name", ["cpu\0", "cpu\0:7", "\0", "cuda:0\0x"])
def test_a_name_with_a_null_character_is_refused(name):
    for read in (mf.Device, mf.device_count, lambda name: mf.empty(2, device=name)):
        with pytest.raises(ValueError) as error:
            read(name)
        assert str(error.value) == f"device is {name!r}, which contains a null character"


def test_a_member_of_an_enumeration_of_names_is_its_name():
    class Places(str, enum.Enum):
        HOST = "cpu"
        PINNED = "cuda_host"

    assert mf.Device(Places.HOST) is mf.Device("cpu") and mf.zeros(2, device=Places.HOST).device == "cpu"
    assert mf.Device(Places.PINNED) is mf.Device("cuda_host:0")


def test_the_hosts_device_is_one_object_which_is_made_once(monkeypatch):
    t, device = mf.zeros(2), mf.zeros(2).device
    before = sys.getrefcount(device)
    monkeypatch.setattr("moonferry._dtype.Device", None)
    for _ in range(20):
        assert t.device is device
    assert sys.getrefcount(device) == before


@pytest.mark.parametrize("make", [mf.empty, mf.zeros, mf.ones, lambda n, **words: mf.full(n, 1, **words)])
@pytest.mark.parametrize("device", ["cuda:0", "cuda_host", "rocm:1"])
def test_whole_pages_are_the_hosts(make, device):
    with pytest.raises(ValueError) as error:
        make(3, device=device, pages=True)
    assert str(error.value) == f'pages is true, but device is "{mf.Device(device)}"; whole pages are the cpu\'s alone'
