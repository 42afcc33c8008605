"""What a producer of another library on a device is asked for, and what is believed of its answer."""

import contextlib
import sys

import pytest

import dlpack_abi as abi
import moonferry as mf
import small_stack

NBYTES = 64


class Theirs:
    """Memory of the driver's, handed out by one struct. It writes ${value} on the stream that it is told."""

    value = 5

    def __init__(self, gpu, place=None):
        self.gpu, self.calls = gpu, []
        self.ours = None if place is None else mf.full((NBYTES,), 1, "uint8", device=place)
        self.address = gpu.alloc(NBYTES) if place is None else self.ours.data_ptr
        like = self.ours if place else mf.empty(0, device=f"{gpu.kind}:0")
        self.device = tuple(map(int, like.__dlpack_device__()))

    def __dlpack_device__(self):
        return self.device

    def struct(self, device=None, **fields):
        made = abi.Producer((NBYTES,), (1,), (1, 8, 1), **fields)
        made.dl.data, made.dl.device = self.address, abi.DLDevice(*(device or self.device))
        return made.capsule()

    def write(self, stream):
        self.gpu.memset(self.address, self.value, NBYTES, stream)

    def end(self):
        mf.synchronize(self.gpu.kind)
        self.gpu.free(self.address)


class Modern(Theirs):
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.calls.append((stream, dl_device, copy))
        self.write(stream)
        return self.struct()


class Old(Theirs):
    def __dlpack__(self, stream=None):
        self.calls.append((stream, None, None))
        self.write(stream)
        return self.struct(versioned=False)


@pytest.mark.parametrize("kind", [Modern, Old])
def test_the_memory_is_ready_on_the_stream_that_is_current(gpu, device, seed, kind):
    source, s = kind(gpu), mf.Stream(device)
    with s:
        t = mf.from_dlpack(source)
    (stream, _, _), *more = source.calls
    assert stream == s.handle and not more
    with mf.Stream(device):
        assert t.copy().tolist() == [5] * NBYTES
    del t
    source.end()


def test_a_capsule_that_is_handed_over_is_ready_on_the_stream_that_is_current(gpu, device, seed):
    source = Theirs(gpu)
    with mf.Stream(device) as s:
        source.write(s.handle)
        t = mf.from_dlpack(source.struct())
    with mf.Stream(device):
        assert t.copy().tolist() == [5] * NBYTES
    del t
    source.end()


def test_a_stream_that_has_no_number(gpu, device, seed):
    """ROCm's of each thread: the producer is told of the default one, on which the memory is ready then."""
    source = Modern(gpu)
    with mf.Stream.per_thread(device) as s:
        t = mf.from_dlpack(source)
    assert source.calls[0][0] == (2 if gpu.kind == "cuda" else 0) and source.calls[0][0] in (s.handle, gpu.default)
    with mf.Stream(device):
        assert t.copy().tolist() == [5] * NBYTES
    del t
    source.end()


class Liar(Theirs):
    """Says that it is on the cpu, knows no other device, and gives memory of a GPU, ready on the default stream."""

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, max_version=None, **keywords):
        self.calls.append((stream, *keywords))
        if keywords:
            raise BufferError("not there")
        self.write(self.gpu.default)
        return self.struct()


def test_a_stream_that_it_was_told_and_did_not_use_orders_nothing(gpu, device, seed):
    source = Liar(gpu)
    with mf.Stream(device) as s:
        t = mf.from_dlpack(source, device=device)
        assert source.calls == [(s.handle, "dl_device"), (None,)] and mf.current_stream(device) == s
        assert t.copy().tolist() == [5] * NBYTES
    del t
    source.end()


class Elsewhere(Theirs):
    """Says that it is on the first GPU, and gives memory of the second, ready on the default stream there."""

    def __init__(self, gpu):
        with on_the_second(gpu):
            super().__init__(gpu)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.calls.append(stream)
        with on_the_second(self.gpu):
            self.write(self.gpu.default)
        return self.struct((self.device[0], 1))


@contextlib.contextmanager
def on_the_second(gpu):
    gpu.make_current(1)
    yield
    gpu.make_current(0)


def test_a_stream_of_another_gpu_orders_nothing(gpu, device, seed):
    source = Elsewhere(gpu)
    with mf.Stream(device) as s, mf.Stream(gpu.second):
        t = mf.from_dlpack(source)
        assert source.calls == [s.handle] and t.device == gpu.second
        assert t.copy().tolist() == [5] * NBYTES
    del t
    mf.synchronize(gpu.second)
    source.end()


@pytest.mark.parametrize("kind", [Modern, Old])
def test_the_number_of_the_stream_is_given_back(gpu, device, kind):
    source, s = kind(gpu), mf.Stream(device)
    with s:
        mf.from_dlpack(source)
    stream = source.calls.pop()[0]
    assert sys.getrefcount(stream) == sys.getrefcount(s.handle)
    source.end()


class Refuses(Theirs):
    """Of pinned memory, by another name for the cpu; it knows no keyword but the stream, or says so in its own way."""

    error, versioned = TypeError, True

    def __dlpack__(self, *, stream=None, max_version=None, **keywords):
        self.calls.append(keywords)
        if keywords:
            raise self.error("not so")
        return self.struct(versioned=self.versioned)


@pytest.mark.parametrize("error", [TypeError, BufferError, ValueError, NotImplementedError])
def test_who_refuses_another_device_is_asked_for_the_memory_as_it_is(gpu, error):
    source = Refuses(gpu, f"{gpu.kind}_host")
    source.error = error
    t = mf.from_dlpack(source, device="cpu")
    assert source.calls[0] == {"dl_device": (1, 0)} and source.calls[-1] == {}
    assert t.device == "cpu" and t.tolist() == [1] * NBYTES


def test_what_else_a_producer_raises_for_another_device_passes_through(gpu):
    source = Refuses(gpu, f"{gpu.kind}_host")
    source.error = KeyError
    with pytest.raises(KeyError, match="not so"):
        mf.from_dlpack(source, device="cpu")
    assert len(source.calls) == 1


def test_without_a_promise_an_old_struct_is_no_proof_that_nothing_was_copied(gpu):
    source = Refuses(gpu, f"{gpu.kind}_host")
    source.versioned = False
    with pytest.raises(mf.ExchangeError, match="cannot say whether it copied"):
        mf.from_dlpack(source, device="cpu", copy=False)


class Promises(Theirs):
    """Takes every keyword, and gives the older struct."""

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.calls.append((dl_device, copy))
        return self.struct(dl_device, versioned=False)


def test_who_took_the_keyword_is_believed(gpu):
    source = Promises(gpu, f"{gpu.kind}_host")
    t = mf.from_dlpack(source, device="cpu", copy=False)
    assert source.calls == [((1, 0), False)] and t.data_ptr == source.address


NONSENSE = {
    "three": lambda kind, number: (kind, number, 9),
    "one": lambda kind, number: (kind,),
    "a list": lambda kind, number: [kind, number],
    "a text": lambda kind, number: (kind, "0"),
    "a text first": lambda kind, number: ("cuda", number),
    "a truth": lambda kind, number: (kind, bool(number)),
    "a truth first": lambda kind, number: (True, number),
    "beyond 32 bits": lambda kind, number: (kind, number + (1 << 40)),
    "a kind beyond 32 bits": lambda kind, number: (kind + (1 << 40), number),
}


@pytest.mark.parametrize("said", NONSENSE)
def test_a_device_that_is_no_pair_of_numbers_is_as_if_it_were_not_told(gpu, device, said):
    """Such a producer is asked for no stream; where its memory is, its struct tells."""

    class Vague(Modern):
        def __dlpack_device__(self):
            return NONSENSE[said](*self.device)

        def write(self, stream):
            assert stream is None
            super().write(gpu.default)

    source = Vague(gpu)
    with mf.Stream(device):
        t = mf.from_dlpack(source)
    assert t.tolist() == [5] * NBYTES and t.device == device
    del t
    source.end()


def test_an_array_of_numpy_s_goes_to_a_gpu(gpu, device):
    np = pytest.importorskip("numpy")
    assert mf.from_dlpack(np.arange(5), device=device).tolist() == [0, 1, 2, 3, 4]


def test_a_long_chain_of_capsules_of_a_gpu_s_memory_ends_on_a_small_stack(gpu, device):
    def work():
        t = mf.ones(2, device=device)
        for _ in range(20000):
            t = mf.from_dlpack(t.__dlpack__(stream=gpu.default, max_version=(1, 3)))
        return t.tolist()

    assert small_stack.call(512 * 1024, work) == [1, 1]
