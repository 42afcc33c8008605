"""The end of the interpreter: capsules, tensors and deleters that outlive it. Each case is a process."""

import os
import subprocess
import sys

import pytest

import dlpack_abi as abi

HERE = os.path.dirname(os.path.abspath(__file__))

PROLOGUE = """
import ctypes as c, sys
sys.path.insert(0, {here!r})
import dlpack_abi as abi
import moonferry as mf
import os
def library():
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "libmoonferry" in line:
                return line.split()[-1]
def late(capsule, threaded=0):
    struct = abi.consume(capsule)
    read = abi.address_of(c.CDLL(library()).mf_ledger_read)
    abi.probe().probe_delete_at_exit(c.addressof(struct), read, threaded)
"""


def run(body, **environment):
    abi.probe()
    source = PROLOGUE.format(here=HERE) + body
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


QUIET = {
    "a tensor that a module holds": "t = mf.zeros((4,))",
    "a tensor that sys holds": "sys.kept = mf.zeros((4,))",
    "a tensor in a cycle": "class A: pass\na = A(); a.self = a; a.t = mf.zeros((4,)); sys.kept = a",
    "a capsule that a module holds": "k = mf.zeros((4,)).__dlpack__(max_version=(1, 3))",
    "a capsule that sys holds": "sys.kept = mf.zeros((4,)).__dlpack__()",
    "a memoryview that sys holds": "sys.kept = memoryview(mf.zeros((4,)))",
    "an import from NumPy": "import numpy as np\nsys.kept = mf.from_dlpack(np.arange(4.0))",
    "an export to NumPy": "import numpy as np\nsys.kept = np.from_dlpack(mf.zeros((4,)))",
    "a frombuffer of bytes": "sys.kept = mf.frombuffer(bytearray(8))",
    "a leaked reference": "t = mf.zeros((4,)); c.pythonapi.Py_IncRef(c.py_object(t))",
    "a leaked capsule": "k = mf.zeros((4,)).__dlpack__(); c.pythonapi.Py_IncRef(c.py_object(k))",
    "a leaked frombuffer": "t = mf.frombuffer(bytearray(8)); c.pythonapi.Py_IncRef(c.py_object(t))",
    "an object whose __del__ exchanges at the end": """
class Late:
    def __init__(self): self.t = mf.zeros((4,))
    def __del__(self):
        k = self.t.__dlpack__(max_version=(1, 3))
        back = mf.from_dlpack(k)
sys.kept = Late()
""",
    "an object whose __del__ copies at the end": """
class Late:
    def __init__(self): self.t, self.u = mf.zeros((4,)), mf.ones((4,))
    def __del__(self): self.t[...] = self.u
kept = Late()
""",
    "an object whose __del__ reads a dtype at the end": """
class Late:
    t = mf.zeros((4,))
    def __del__(self): self.t.dtype
kept = Late()
assert kept.t.dtype == "float32"
""",
    "an atexit function that drops a capsule": """
import atexit
k = [mf.zeros((4,)).__dlpack__()]
atexit.register(k.clear)
""",
    "a daemon thread that exchanges": """
import threading
exchanges = threading.Event()
def work():
    t = mf.zeros((4,))
    while True:
        mf.from_dlpack(t.__dlpack__(max_version=(1, 3)))
        exchanges.set()
threading.Thread(target=work, daemon=True).start()
exchanges.wait()
""",
}


@pytest.mark.parametrize("body", QUIET.values(), ids=[name.replace(" ", "_") for name in QUIET])
def test_the_interpreter_ends_in_peace_with(body):
    done = run(body)
    assert done.returncode == 0 and done.stderr == "" and done.stdout == ""


@pytest.mark.parametrize("threaded", [0, 1], ids=["main_thread", "foreign_thread"])
@pytest.mark.parametrize(
    "make",
    ["mf.zeros((100,))", "mf.zeros((10, 10)).T", "mf.from_dlpack(mf.zeros((100,)))"],
    ids=["owned", "view", "reimported"],
)
def test_the_deleter_works_after_py_finalize(make, threaded):
    done = run(f"late({make}.__dlpack__(max_version=(1, 3)), {threaded})")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "initialized=0 ledger=0,0,0,0\n"


@pytest.mark.parametrize(
    "make", ["mf.frombuffer(bytearray(8))", "mf.from_dlpack(np.arange(4.0))", "mf.asarray(np.arange(4.0))"]
)
def test_memory_that_python_owned_is_left_alone_after_py_finalize(make):
    done = run(f"import numpy as np\nlate({make}.__dlpack__(max_version=(1, 3)))")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("initialized=0 ledger=0,0,0,")


def test_memory_that_python_owned_is_left_alone_on_another_thread_while_the_interpreter_ends():
    """CPython ends, or stops for ever, a thread that wants the GIL by then."""
    body = """
struct = abi.consume(mf.frombuffer(bytearray(8)).__dlpack__(max_version=(1, 3)))
class Late:
    def __init__(self):
        self.delete, self.said = abi.probe().probe_delete_on_thread, abi.probe().probe_deleted_on_thread
        self.finalizing, self.address, self.write = sys.is_finalizing, c.addressof(struct), os.write
    def __del__(self):
        ended = self.delete(self.address)
        self.write(1, f"{self.finalizing()} {ended} {self.said()}".encode())
sys.kept = Late()
"""
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True 0 1", "")


def test_a_tensor_that_another_library_made_is_deleted_once_by_the_end():
    body = """
producer = abi.Producer()
import atexit
t = mf.from_dlpack(producer.capsule())
def look(): print("deletes", producer.deletes)
atexit.register(look)
atexit.register(lambda: globals().pop("t"))
"""
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "deletes 1\n", "")


def test_import_twice_and_again_after_it_was_dropped_from_sys_modules():
    body = """
t = mf.zeros((4,))
for name in [n for n in sys.modules if n.startswith("moonferry")]: del sys.modules[name]
import moonferry as again
assert again.zeros((2,)).tolist() == [0, 0]
assert again.from_dlpack(t).data_ptr == t.data_ptr
assert again.from_dlpack(t.__dlpack__()).data_ptr == t.data_ptr
del t
"""
    done = run(body)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_imported_again_leaves_nothing_of_what_was_there_before():
    """What Moonferry does at the end is done, as at the end: then nothing else holds the first one."""
    body = """
import atexit, gc, sysconfig, weakref
has_gil = not sysconfig.get_config_var("Py_GIL_DISABLED")
producer = abi.Producer()
class Slotted:
    __slots__ = ()
    def __dlpack__(self, **kwargs):
        kept.append(kwargs["max_version"])
        return producer.capsule()
kept, resolves = [], []  # what the module has; the latest one's is there still
words = ["max_version", "dl_device", "copy", "stream", "is_neg", "is_conj"]
version = tuple([1, 3])
def again():
    kept.clear()
    atexit._run_exitfuncs()
    for name in [n for n in sys.modules if n.startswith("moonferry")]: del sys.modules[name]
    import moonferry as mf
    gc.collect()
    assert all(resolve() is None for resolve in resolves)
    t = mf.zeros((2,))
    assert abi.managed(t.__dlpack__(max_version=version, copy=None)).flags == 0
    # Without the GIL a thread keeps some types that it has learned about for as long as it runs.
    if has_gil: assert mf.into(mf.Tensor, t).data_ptr == t.data_ptr
    mf.from_dlpack(Slotted())
    assert str(t.dtype) == "float32" and str(t.device) == "cpu"
    kept.append(t.__dlpack_device__())
    assert mf.zeros(1, float).ndim == 1
    resolves[:] = [weakref.ref(sys.modules["moonferry._dtype"].resolve)]
    many = [mf.zeros(1) for _ in range(200)]
called_by = next(names for names in again.__code__.co_consts if names == ("max_version", "copy"))
def count():
    gc.collect()
    shared = [*words, version, called_by, Slotted]
    return [sys.getrefcount(x) for x in shared], len(gc.get_objects()), sys.getallocatedblocks()
del mf
for _ in range(3): again()
references, objects, blocks = count()
for _ in range(10): again()
now = count()
assert now[0] == references, (now[0], references)
assert abs(now[1] - objects) < 10, (now[1], objects)
assert now[2] - blocks < 500, (now[2], blocks)  # CPython 3.13 keeps some ten of each import of any module
of_the_last = list(kept)
again()
assert [sys.getrefcount(of_the_last.pop()) for _ in range(2)] == [1, 1]
"""
    done = run(body)
    assert (done.returncode, done.stderr) == (0, "")


TAKES_THE_TABLE = """
import atexit, gc
table = abi.DLPackExchangeAPI.from_address(abi.capsule_pointer(mf.Tensor.__dlpack_c_exchange_api__))
to_py = abi.ToPyObject(table.managed_tensor_to_py_object_no_sync)
atexit._run_exitfuncs()
for name in [n for n in sys.modules if n.startswith("moonferry")]: del sys.modules[name]
del mf
"""


def test_who_has_the_exchange_table_can_use_it_when_nobody_else_has_the_module():
    body = (
        TAKES_THE_TABLE
        + """
gc.collect()
producer, out = abi.Producer(), c.c_void_p()
assert to_py(c.addressof(producer.struct), c.byref(out)) == 0
t = c.cast(out, c.py_object).value
c.pythonapi.Py_DecRef(c.py_object(t))
assert t.shape == (2, 3)
del t
assert producer.deletes == 1
"""
    )
    done = run(body)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_has_the_exchange_table_of_a_module_that_is_gone_is_told():
    body = (
        TAKES_THE_TABLE
        + """
c.pythonapi.PyInterpreterState_Get.restype = c.c_void_p
get_dict = c.pythonapi.PyInterpreterState_GetDict
get_dict.argtypes, get_dict.restype = [c.c_void_p], c.py_object
del get_dict(c.pythonapi.PyInterpreterState_Get())["moonferry._core"]
gc.collect()
producer, out = abi.Producer(), c.c_void_p()
try:
    to_py(c.addressof(producer.struct), c.byref(out))
except RuntimeError as error:
    print(error)
assert producer.deletes == 1
"""
    )
    done = run(body, PYTHONMALLOC="debug")
    assert (done.returncode, done.stdout, done.stderr) == (0, "moonferry is not imported\n", "")


def test_subinterpreters_are_refused():
    body = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
i = interpreters.create()
code = '''
try:
    import moonferry
except ImportError as error:
    assert "interpreter" in str(error)
    print("refused")
'''
interpreters.run_string(i, "import sys; sys.path[:] = %r\\n" % sys.path + code)
interpreters.destroy(i)
assert mf.ones((2,)).tolist() == [1.0, 1.0]
"""
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")


def test_the_end_of_a_process_by_c_is_not_the_end_of_a_python_that_hosts_lua():
    body = """
import atexit
atexit.register(print, "an exit function", flush=True)
mf.Lua().execute("require('moonferry.python').import 'wave'")
c.CDLL(None).exit(3)
"""
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_forked_child_goes_on():
    body = """
t = mf.zeros((4,))
k = t.__dlpack__()
pid = os.fork()
if pid == 0:
    ok = mf.from_dlpack(k).tolist() == [0, 0, 0, 0]
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0
assert mf.from_dlpack(k).tolist() == [0, 0, 0, 0]
"""
    done = run(body)
    assert (done.returncode, done.stderr) == (0, "")
