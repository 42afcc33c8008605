"""What `make test` looks at beside the specs: linters, fuzzers, examples, mutants, the wheel, the drivers' headers.

Responsible for: how each is run and counted. Must not know which of them are asked for, and when (specs/run).
"""

import os
import re

import expected
from programs import (
    BUILD,
    ROOT,
    Result,
    check_end,
    cmocka,
    environment,
    how_it_ended,
    log,
    need_build,
    once,
    registered,
    run_program,
    tests_of,
)

PYTHON = str(ROOT / ".venv" / "bin" / "python")
# What the suites on simulated drivers use of other people's.
PEERS = ("specs/sim/setup.sh", "specs/sim/hip/setup.sh")


def fetch_peers():
    """Other people's GPU libraries, headers and tools, into environments of their own under build/sim: what failed."""

    def install():
        done = [run_program([script], {"PYTHON": PYTHON}, 900) for script in PEERS]
        return [(script, code, text) for script, (code, text) in zip(PEERS, done) if code != 0]

    return once("peers", install)


def install_peers():
    for script, code, text in fetch_peers():
        raise RuntimeError(f"{script}: {how_it_ended(code)}\n{text[-6000:]}")
    once("registered with peers", registered.cache_clear)  # CTest leaves out the command of a program that is not there


def show(pattern, text):
    """Prints the lines of a log that say what a suite drew."""
    for line in re.findall(pattern, text, re.MULTILINE):
        print(f"  {line}", flush=True)


# How many mutants each commit draws, of three files: about a minute.
SAMPLE = 10


def mutants():
    """Some changes of the runtime, each of which a spec must notice, as the seed draws them, and the list of those that
    none can."""
    code, text = run_program([PYTHON, "specs/mutants", "--sample", SAMPLE, "--jobs", 1], {})
    log("mutants", text)
    result = Result()
    show(r"^mutants: seed .*$", text)
    for place, why in re.findall(r"^WRONG: (.*)\n    (.*)$", text, re.MULTILINE):
        result.fail(place, why)
    for place, why in re.findall(r"^WRONG: (.*?): (listed.*)$", text, re.MULTILINE):
        result.fail(place, why)
    if caught := re.search(r"^all +\d+ +(\d+)", text, re.MULTILINE):
        result.ok(int(caught[1]))
    check_end(result, "mutants", code, text)
    return result


def fuzz(seconds):
    """Each target from its committed seeds and what earlier runs have kept under build/fuzz/corpus/ (specs/fuzz/merge
    brings that back to the seeds)."""
    result = Result()
    for source in sorted((ROOT / "specs" / "fuzz").glob("*_fuzz.c")):
        corpus = BUILD / "fuzz" / "corpus" / source.stem
        corpus.mkdir(parents=True, exist_ok=True)
        seeds = ROOT / "specs" / "fuzz" / "corpus" / source.stem.removesuffix("_fuzz")
        command = [BUILD / "fuzz" / "specs" / source.stem, f"-max_total_time={seconds}", "-timeout=10"]
        command += ["-print_final_stats=1", f"-artifact_prefix={corpus.parent}/", corpus, seeds]
        code, text = run_program(command, {}, seconds + 120)
        log(f"fuzz {source.stem}", text)
        runs = re.search(r"stat::number_of_executed_units: *(\d+)", text)
        if code == 0 and runs and int(runs[1]) > 1000:
            result.ok()
        else:
            result.fail(source.stem, f"{how_it_ended(code)}\n{text[-6000:]}")
    return result


def checks(named_commands):
    result = Result()
    for name, command, env in named_commands:
        code, text = run_program(command, env)
        log(f"lint {name}", text)
        if code == 0:
            result.ok()
        else:
            result.fail(name, text[-6000:] or how_it_ended(code))
    return result


# A program as a user's editor checks it: its right lines pass, and each wrong one is an error, which the comment wants.
TYPED = "specs/python/typed_sample.py"


def lint():
    package = str(BUILD / "dev" / "python")
    python_files = ["bindings", "specs", "examples", "lua", *expected.python_programs()]
    names = ["entries", "environments", "libraries", "others", "rule", "verdict", "report", "support"]
    tools = [ROOT / "specs" / "exchange" / name for name in ["matrix", *(f"{name}.py" for name in names)]]
    lua_files = ["lua", "specs/lua", "examples", "specs/bench", "specs/exchange", "specs/seams"]
    env = tests_of("dev", "python.test_")[0].env
    stubtest = [PYTHON, "-m", "mypy.stubtest", "moonferry", "--mypy-config-file", "pyproject.toml"]
    stubtest += ["--allowlist", "bindings/python/stubtest.allow"]
    return checks(
        [
            ("ruff", [PYTHON, "-m", "ruff", "check", "--quiet", "--no-cache", *python_files], {}),
            ("ruff format", [PYTHON, "-m", "ruff", "format", "--check", "--quiet", "--no-cache", *python_files], {}),
            ("luacheck", ["luacheck", "--quiet", "--no-color", *lua_files], {}),
            ("style", [PYTHON, "specs/style"], {}),
            ("arrows", [PYTHON, "specs/arrows"], {}),
            ("mutants' list", [PYTHON, "specs/mutants", "--stale"], {}),
            ("mypy", [PYTHON, "-m", "mypy", "--cache-dir", f"{BUILD}/mypy", f"{package}/moonferry"], env),
            (
                "mypy exchange",
                [PYTHON, "-m", "mypy", "--cache-dir", f"{BUILD}/mypy", *tools],
                {"MYPYPATH": str(ROOT / "specs")},
            ),
            (
                "mypy sample",
                [PYTHON, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", f"{BUILD}/mypy", TYPED],
                env,
            ),
            ("stubtest", stubtest, env),
            ("site", [PYTHON, "docs/site"], {}),
            ("cdef.lua is fresh", [PYTHON, "lua/generate_cdef.py", "--check"], {}),
            ("seeds are fresh", [PYTHON, "specs/fuzz/make_seeds.py", "--check"], {}),
        ]
    )


def examples():
    """Every program in examples/ ends well. They run in a directory of their own, where they may write."""
    result = Result()
    env = environment("dev")
    here = BUILD / "examples"
    here.mkdir(parents=True, exist_ok=True)
    interpreters = {".lua": ["luajit"], ".py": [PYTHON]}
    for source in sorted((ROOT / "examples").iterdir()):
        if source.suffix == ".c":
            command = [BUILD / "dev" / "examples" / source.stem]
        elif source.suffix in interpreters:
            command = [*interpreters[source.suffix], source]
        else:
            continue
        code, text = run_program(command, env, cwd=here)
        log(f"example {source.name}", text)
        if code == 0:
            result.ok()
        else:
            result.fail(source.name, f"{how_it_ended(code)}\n{text[-6000:]}")
    return result


def imports():
    """What a user types at the root of a built clone, with no variable set but LUA_PATH."""
    lua = {"LUA_PATH": "lua/?.lua;lua/?/init.lua;;"}
    return checks(
        [
            ("import moonferry", [PYTHON, "-c", "import moonferry"], {}),
            ("require moonferry", ["luajit", "-e", 'require "moonferry"'], lua),
        ]
    )


def wheel():
    code, text = run_program([PYTHON, "specs/wheel"], {}, 1200)
    log("wheel", text)
    result = Result()
    result.ok(len(re.findall(r"^ok ", text, re.MULTILINE)))
    for name in re.findall(r"^not ok (.*)$", text, re.MULTILINE):
        result.fail(name, text[-6000:])
    check_end(result, "wheel", code, text)
    return result


# Needs the headers of CUDA 12, which install_peers brings and a machine with a toolkit may not have.
OF_CUDA_12 = "sim_cudart12_types_spec"


def headers():
    """What the runtime and the simulators declare of the drivers, beside the drivers' own headers, in a build of its
    own: they are found when it is configured, after they have been installed."""
    result = Result()
    need_build("dev")  # its dlpack.h
    if not all(os.environ.get(name) for name in ("MOONFERRY_CUDA_H", "MOONFERRY_HIP_H")):
        install_peers()
    where = [f"-D{name}={os.environ[name]}" for name in ("MOONFERRY_CUDA_H", "MOONFERRY_HIP_H") if os.environ.get(name)]
    configure = ["-G", "Ninja", "-S", "specs/gpu/types", "-B", BUILD / "types", *where]
    for words in (configure, ["--build", BUILD / "types"]):
        code, text = run_program(["cmake", *words], {})
        if code:
            result.fail("build/types", text[-6000:])
            return result
    names = ["types_spec", "sim_cuda_types_spec", "sim_cudart13_types_spec", "sim_hip_types_spec"]
    if not where or (BUILD / "types" / OF_CUDA_12).exists():
        names.append(OF_CUDA_12)
    for name in names:
        result.add(cmocka(name, BUILD / "types" / name, {}))
    code, text = run_program([PYTHON, "specs/gpu/types/signatures.py", BUILD / "types"], {})
    log("signatures", text)
    result.ok(len(re.findall(r"^\w[\w ]*: [1-9]\d* calls", text, re.MULTILINE)))
    check_end(result, "signatures.py", code, text)
    return result
