"""Programs for Windows that use Moonferry as its users' do: specs/cross runs them in Wine.

Responsible for: building one that Microsoft's linker could have made, of objects with Microsoft's ABI (clang and lld,
as none of Microsoft's own programs is here), and one that embeds LuaJIT, with its DLL and with LuaJIT inside. Must not
know: how the runtime is built, nor how a program is run (specs/cross).
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"clang-14": "clang-14", "lld-link-14": "lld-14"}
COUNTS = r"alone: (\d+) passed", r"(?!)()"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def kernel32():
    """The names that Windows itself has; MinGW's file of them is one that Microsoft's linker reads."""
    return "/usr/x86_64-w64-mingw32/lib/libkernel32.a"


def includes(build):
    return [f"-I{folder}" for folder in (ROOT / "runtime/include", ROOT / "runtime/abi", build / "include")]


def of_microsofts_abi(package, build, here):
    """The commands that make it, and the program."""
    source, made, program = ROOT / "specs/windows/msvc_host.c", here / "msvc_host.obj", here / "msvc_host.exe"
    target = ["--target=x86_64-pc-windows-msvc", "-ffreestanding", "-O1", "-std=c11"]
    link = ["lld-link-14", f"/out:{program}", "/subsystem:console", "/entry:mainCRTStartup", "/nodefaultlib"]
    return [
        ["clang-14", *target, *WARNINGS, *includes(build), "-c", source, "-o", made],
        [*link, made, package / "moonferry.lib", kernel32()],
    ], program


def of_luajit(package, build, here, luajit, inside):
    """The same for a game: LuaJIT is inside of it, or is the DLL beside it."""
    source = ROOT / "specs/windows/luajit_host.c"
    program = here / ("luajit_host_static.exe" if inside else "luajit_host.exe")
    objects = sorted(path for path in (luajit / "src").glob("l*.o") if path.stem != "luajit")
    library = objects if inside else [luajit / "src/lua51.dll"]
    folders = [*includes(build), f"-I{ROOT / 'bindings/lua'}", f"-I{luajit / 'src'}"]
    words = ["x86_64-w64-mingw32-gcc", "-O1", "-std=c11", *WARNINGS, *folders, source, "-o", program]
    return [[*words, *library, package / "libmoonferry.dll.a"]], program


def jobs(quietly, build, luajit, environment):
    """What specs/cross runs: names, commands, their variables, and how to read what they print."""
    here, package = build / "hosts", build / "python/moonferry"
    here.mkdir(exist_ok=True)
    for name, (commands, program) in {
        "hosts.msvc": of_microsofts_abi(package, build, here),
        "hosts.luajit": of_luajit(package, build, here, luajit, False),
        "hosts.luajit_static": of_luajit(package, build, here, luajit, True),
    }.items():
        for command in commands:
            quietly(f"building {program.name}", command)
        yield name, [program], {**environment, "LUA_PATH": "lua/?.lua;lua/?/init.lua"}, COUNTS
