"""Every device to every device, with every `copy`: `__dlpack__(dl_device=...)`, `Tensor.to` and `from_dlpack`.

Array API 2025.12, `__dlpack__` and `from_dlpack`, `device` and `copy`. VIEW shares the memory under the name that was
asked for, COPY is a copy that says so, LACK means that no such device is there.
"""

import ctypes

import pytest

import dlpack_abi as abi
import moonferry as mf

PLACES = ["cpu", "gpu0", "gpu1", "host", "managed", "absent"]
VIEW, COPY, LACK = "view", "copy", "lack"

# own -> asked for, with copy=None. copy=True makes COPY of all but LACK; copy=False refuses COPY.
MATRIX = {
    "cpu": [VIEW, COPY, COPY, COPY, COPY, LACK],
    "gpu0": [COPY, VIEW, COPY, COPY, COPY, LACK],
    "gpu1": [COPY, COPY, VIEW, COPY, COPY, LACK],
    "host": [VIEW, COPY, COPY, VIEW, COPY, LACK],
    "managed": [VIEW, VIEW, VIEW, COPY, VIEW, LACK],
}
CELLS = [
    (own, to, copy, LACK if cell == LACK else COPY if copy else BufferError if copy is False and cell == COPY else cell)
    for own, row in MATRIX.items()
    for to, cell in zip(PLACES, row)
    for copy in (None, True, False)
]


def pair(gpu, place):
    """DLPack's numbers for a place on this driver."""
    assert place != "gpu1" or gpu.second
    kinds = {"cuda": (2, 3, 13, 10), "rocm": (10, 11, None, 2)}[gpu.kind]
    device, host, managed, other = kinds
    if place == "managed" and managed is None:
        pytest.skip("DLPack has no device type for managed memory of ROCm")
    return {
        "cpu": (1, 0),
        "gpu0": (device, 0),
        "gpu1": (device, 1),
        "host": (host, 0),
        "managed": (managed, 0),
        "absent": (other, 0),
    }[place]


def written(gpu, place):
    """A tensor whose last write is still queued, and on a stream that the consumer does not know."""
    t = mf.zeros((3, 8), "int16", device=pair(gpu, place))
    if place == "cpu":
        t.fill(7)
        return t, None
    ordinal = 1 if place == "gpu1" else 0
    gpu.make_current(ordinal)
    producer = mf.Stream(f"{gpu.kind}:{ordinal}")
    t.acquire(producer, write=True)
    gpu.memset(t.data_ptr, 7, t.nbytes, producer.handle)
    gpu.make_current(0)
    return t, producer


def value(place):
    return 7 if place == "cpu" else 0x0707


def consumer_stream(gpu, place):
    """(stream, native) for a consumer on that place; the cpu's has none."""
    if place in ("cpu", "absent"):
        return None, None
    gpu.make_current(1 if place == "gpu1" else 0)
    handle = gpu.stream()
    gpu.make_current(0)
    return handle, handle


def read(gpu, struct, place, native):
    nbytes = 48
    if place == "cpu":
        return ctypes.string_at(struct.dl_tensor.data, nbytes)
    gpu.make_current(1 if place == "gpu1" else 0)
    seen = gpu.read(struct.dl_tensor.data, nbytes, native)
    gpu.make_current(0)
    return seen


@pytest.mark.parametrize("own, to, copy, expected", CELLS)
def test_dlpack(gpu, seed, own, to, copy, expected):
    t, producer = written(gpu, own)
    stream, native = consumer_stream(gpu, to)
    keywords = {"stream": stream, "max_version": (1, 3), "dl_device": pair(gpu, to), "copy": copy}
    if expected in (LACK, BufferError):
        with pytest.raises(mf.ExchangeError, match="__dlpack__"):
            t.__dlpack__(**keywords)
    else:
        struct = abi.consume(t.__dlpack__(**keywords))
        at = struct.dl_tensor.device
        assert (at.type, at.id) == pair(gpu, to)
        assert bool(struct.flags & 2) is (expected == COPY)
        assert (struct.dl_tensor.data == t.data_ptr) is (expected == VIEW)
        assert read(gpu, struct, to, native) == value(own).to_bytes(2, "little") * 24
        abi.call_deleter(struct)
    del t, producer
    finish(gpu, native)


def finish(gpu, native):
    """A stream of somebody else's must live until the memory that it touched is released."""
    for ordinal in range(gpu.count):
        mf.synchronize(f"{gpu.kind}:{ordinal}")
    if native is not None:
        gpu.destroy(native)


@pytest.mark.parametrize("to", ["cpu", "gpu0"])
@pytest.mark.parametrize("version", [None, (0, 8)])
def test_the_old_struct_goes_everywhere_too(gpu, device, seed, to, version):
    t, producer = written(gpu, "gpu0")
    stream, native = consumer_stream(gpu, to)
    struct = abi.consume(t.__dlpack__(stream=stream, dl_device=pair(gpu, to), max_version=version))
    assert (struct.dl_tensor.device.type, struct.dl_tensor.device.id) == pair(gpu, to)
    assert read(gpu, struct, to, native) == b"\7" * 48
    abi.call_deleter(struct)
    del t, producer
    finish(gpu, native)


@pytest.mark.parametrize("own, to, copy, expected", CELLS)
def test_to(gpu, seed, own, to, copy, expected):
    t, producer = written(gpu, own)
    name = mf.Device(pair(gpu, to))
    if expected == LACK:
        with pytest.raises(ValueError):
            t.to(name, copy=copy)
    elif expected is BufferError:
        with pytest.raises(mf.ExchangeError, match="^to"):
            t.to(name, copy=copy)
    else:
        made = t.to(name, copy=copy)
        assert made.device == name and (made.data_ptr == t.data_ptr) is (expected == VIEW)
        assert (made is t) is (expected == VIEW and own == to)
        assert made.tolist() == [[value(own)] * 8] * 3
        del made
    del t, producer
    finish(gpu, None)


class Producer:
    """Somebody else's array that is told everything: it knows all keywords."""

    def __init__(self, t):
        self.t, self.asked = t, []

    def __dlpack_device__(self):
        return self.t.__dlpack_device__()

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        return self.t.__dlpack__(**keywords)


class OnlyHere(Producer):
    """One that cannot put its memory elsewhere."""

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        if keywords.get("dl_device", self.t.__dlpack_device__()) != self.t.__dlpack_device__():
            raise BufferError("not there")
        return self.t.__dlpack__(**keywords)


class Old(Producer):
    """One from before dl_device and copy."""

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append({"stream": stream})
        return self.t.__dlpack__(stream=stream, max_version=max_version)


class Oldest(Producer):
    """One from before max_version."""

    def __dlpack__(self, *, stream=None):
        self.asked.append({"stream": stream})
        return self.t.__dlpack__(stream=stream)


CLASSES = ["knows all", "only here", "old", "oldest", "our own"]


@pytest.mark.parametrize("producer_class", [Producer, OnlyHere, Old, Oldest, lambda t: t], ids=CLASSES)
@pytest.mark.parametrize("own, to, copy, expected", CELLS)
def test_from_dlpack(gpu, producer_class, own, to, copy, expected):
    t, producer = written(gpu, own)
    x, name = producer_class(t), mf.Device(pair(gpu, to))
    cannot_promise = producer_class is Oldest and copy is False
    if expected in (LACK, BufferError) or cannot_promise:
        with pytest.raises(BufferError):
            mf.from_dlpack(x, device=name, copy=copy)
    else:
        made = mf.from_dlpack(x, device=name, copy=copy)
        assert made.device == name and (made.data_ptr == t.data_ptr) is (expected == VIEW)
        assert made.tolist() == [[value(own)] * 8] * 3
        del made
    del x
    del t, producer
    finish(gpu, None)


@pytest.mark.parametrize("place", ["gpu0", "gpu1", "host", "managed"])
def test_the_producer_is_given_our_current_stream(gpu, place):
    t, producer = written(gpu, place)
    name = f"{gpu.kind}:{1 if place == 'gpu1' else 0}"
    x = Producer(t)
    mf.from_dlpack(x)
    s = mf.Stream(name)
    with s:
        mf.from_dlpack(x)
    assert [asked["stream"] for asked in x.asked] == [gpu.default, s.handle]
    assert all(set(asked) == {"stream", "max_version"} for asked in x.asked)


def test_the_stream_is_one_of_the_target(gpu, device):
    t, producer = written(gpu, "gpu0")
    x, far = Producer(t), mf.Stream(gpu.second)
    with mf.Stream(device), far:
        mf.from_dlpack(x, device=gpu.second)
        mf.from_dlpack(x, device="cpu")
    assert x.asked[0]["stream"] == far.handle and "stream" not in x.asked[1]


def test_the_per_thread_stream_has_a_number_on_cuda_and_is_got_round_on_rocm(gpu, device, seed):
    t, producer = written(gpu, "gpu0")
    x = Producer(t)
    with mf.Stream.per_thread(device):
        made = mf.from_dlpack(x)
        assert made.copy().tolist() == [[0x0707] * 8] * 3
    assert x.asked[0]["stream"] == (2 if gpu.kind == "cuda" else 0)


@pytest.mark.parametrize("place", ["cpu", "gpu0"])
def test_a_producer_that_does_not_say_where_it_is_is_not_given_a_stream(gpu, seed, place):
    class Silent:
        def __init__(self, t):
            self.t, self.asked = t, []

        def __dlpack__(self, **keywords):
            self.asked.append(keywords)
            return self.t.__dlpack__(**keywords)

    t, producer = written(gpu, place)
    x = Silent(t)
    with mf.Stream(gpu.kind):
        made = mf.from_dlpack(x)
        assert made.tolist() == [[value(place)] * 8] * 3
    assert "stream" not in x.asked[0]
    del x, made


def test_what_device_asked_raises_comes_out(gpu, device):
    class Broken:
        def __dlpack_device__(self):
            raise BufferError("no exchange today")

        def __dlpack__(self, **keywords):
            raise AssertionError("must not be asked")

    with pytest.raises(BufferError, match="no exchange today"):
        mf.from_dlpack(Broken())


def test_an_error_of_the_producer_is_the_context_of_the_fallbacks(gpu, device):
    class Refuses(Producer):
        def __dlpack__(self, **keywords):
            raise BufferError("with" if "dl_device" in keywords else "without")

    t, producer = written(gpu, "gpu0")
    with pytest.raises(BufferError, match="without") as caught:
        mf.from_dlpack(Refuses(t), device="cpu")
    assert "with" in str(caught.value.__context__)


def test_a_capsule_is_taken_to_be_ready_on_the_current_stream(gpu, device, seed):
    t, producer = written(gpu, "gpu0")
    s = mf.Stream(device)
    with s:
        made = mf.from_dlpack(t.__dlpack__(stream=s.handle, max_version=(1, 3)))
        assert made.tolist() == [[0x0707] * 8] * 3
        made.fill(1)
    assert t.tolist() == [[1] * 8] * 3


def test_what_was_imported_is_given_back_after_the_work_on_it(gpu, device, seed):
    """The producer's memory is reused at once: whoever writes there next must come behind our copy."""
    t, producer = written(gpu, "gpu0")
    with mf.Stream(device):
        made = mf.from_dlpack(Producer(t))
        copied = made.copy()
        del made
    del t
    with producer:
        again = mf.full((3, 8), 1, "int16", device=device)
    assert copied.tolist() == [[0x0707] * 8] * 3 and again.tolist() == [[1] * 8] * 3


@pytest.mark.parametrize("stream_of", ["Stream", "object", "number", "none"])
def test_to_takes_a_stream(gpu, device, seed, stream_of):
    t, producer = written(gpu, "gpu0")
    s = mf.Stream(device)
    foreign = type("Foreign", (), {"__cuda_stream__": lambda self: (0, s.handle)})()
    stream = {"Stream": s, "object": foreign, "number": s.handle, "none": None}[stream_of]
    made = t.to(device, copy=True, stream=stream)
    assert gpu.read(made.data_ptr, 48, gpu.default if stream is None else s.handle) == b"\7" * 48
    host = t.to("cpu", stream=stream)
    assert host.tolist() == [[0x0707] * 8] * 3
    back = host.to(device, stream=stream)
    assert back.tolist() == host.tolist()


@pytest.mark.parametrize("stream, error", [(True, TypeError), (1.5, TypeError), ("1", TypeError), (-7, ValueError)])
def test_to_refuses_what_is_no_stream(gpu, device, stream, error):
    t = mf.zeros((2,), device=device)
    with pytest.raises(error):
        t.to(device, stream=stream)
    with pytest.raises(error):
        t.acquire(stream)
    with pytest.raises(error):
        t.record(stream)


def test_to_refuses_a_stream_of_another_device(gpu, device):
    t, far = mf.zeros((2,), device=device), mf.Stream(gpu.second)
    for use in (lambda: t.to(device, stream=far), lambda: t.acquire(far), lambda: t.record(far)):
        with pytest.raises(ValueError, match=gpu.second):
            use()
    assert t.to(gpu.second, stream=far).tolist() == [0.0, 0.0]


def test_a_device_that_is_not_there_names_itself(gpu):
    for name in (f"{gpu.kind}:7", f"{gpu.kind}:-1", "gpu:0", "cpu:1"):
        with pytest.raises(ValueError, match=name.split(":")[-1]):
            mf.zeros((2,)).to(name)
