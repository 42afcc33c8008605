# A thin front door; `make help` lists the doors. CMakePresets.json and specs/run do the work.
.DEFAULT_GOAL := help
export LUA_PATH := lua/?.lua;lua/?/init.lua;;

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1 \t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

setup: ## Debian packages and .venv/ (quick when there is nothing to do)
	@./setup.sh

build: setup ## the runtime and the bindings, in build/dev
	@specs/build dev

demo: build ## the main job: a picture through LuaJIT, Pillow and PyTorch
	@luajit examples/ferry.lua

engine: build ## 100,000 particles that PyTorch moves in an engine's vertex buffer; R reads their script anew
	@MOONFERRY_PYTHON=.venv/bin/python PYTHONPATH=build/dev/python build/dev/examples/engine

love: build ## a game of LÖVE's whose water NumPy moves: carry the leaf into the ring with the mouse's waves
	@MOONFERRY_PYTHON=.venv/bin/python PYTHONPATH=build/dev/python love examples/love

worker: build ## a model of PyTorch's on a worker thread, while LÖVE draws at its own rate
	@MOONFERRY_PYTHON=.venv/bin/python PYTHONPATH=build/dev/python love examples/worker

shared: build ## one memory that NumPy paints, Vulkan mirrors and OpenGL draws
	@MOONFERRY_PYTHON=.venv/bin/python PYTHONPATH=build/dev/python build/dev/examples/shared

test: build ## every spec, in every build; ends with the counts
	@.venv/bin/python specs/run

seams: build ## what can happen inside of a call, with each public operation: make seams SECONDS_EACH=3600 (two hosts, three suites)
	@MOONFERRY_SEAMS_SECONDS=$(or $(SECONDS_EACH),600) .venv/bin/python specs/run --only seams

test-sanitizers: build ## every spec under the sanitizers; `make test` has a share, another one with each commit
	@.venv/bin/python specs/run --whole --only "python asan+ubsan" "lua asan+ubsan" "c asan+ubsan" "c tsan" "cli asan+ubsan" \
	  "life asan+ubsan" "sim asan+ubsan" "sim tsan" "gpu cuda asan+ubsan" "gpu rocm asan+ubsan" \
	  "gpu cuda tsan" "gpu rocm tsan" "seams host tsan"

lint: build ## only the style checks
	@.venv/bin/python specs/run --only lint

site: setup ## the pages of docs/ as a site: build/site/html
	@.venv/bin/python docs/site

bench: setup ## the table of docs/bench.md: Moonferry beside its peers
	@specs/build bench
	@.venv/bin/python specs/bench/bench.py

bench-copy: setup ## copies and casts beside NumPy and PyTorch: docs/copy.md and its picture
	@specs/build bench
	@.venv/bin/python specs/bench/copies.py --publish

bench-engine: setup ## what a frame of an engine costs: docs/engine-bench.md and its picture (two minutes)
	@specs/build bench
	@.venv/bin/python specs/bench/engine.py --publish

test-sim-long: setup ## the specs of specs/gpu under 200 seeds, on every simulated driver
	@specs/build dev
	@MOONFERRY_SPEC_SEEDS=200 .venv/bin/python specs/run --only gpu

test-ptxas: setup ## every kernel for CUDA through the toolkit's assembler, for three architectures: some minutes
	@specs/build dev
	@MOONFERRY_SPEC_EVERY=1 ctest --preset dev -R '^gpu.cuda.kernel$$'

test-hiprtc: setup ## every kernel for ROCm through a real hiprtc, of Debian's, which it fetches for build/sim/hiprtc: some minutes
	@specs/build dev
	@specs/gpu/hiprtc

test-sim-torch: build ## PyTorch's CUDA build on the simulated driver: fetches 530 MB for build/sim/torch-venv, then some minutes
	@.venv/bin/python specs/run --only torch

test-sim-jax: build ## JAX's CUDA build on the simulated driver: fetches 270 MB for build/sim/jax-venv, then some minutes
	@.venv/bin/python specs/run --only jax

test-sim-numba: build ## Numba-CUDA's own tests on the simulated driver: an hour (ONLY="atomics sm": a part)
	@specs/sim/setup.sh
	@specs/sim/numba_tests $(ONLY)

test-valgrind: setup ## how processes with both languages end, each under Valgrind (four minutes and more)
	@./setup.sh valgrind
	@specs/build dev
	@.venv/bin/python specs/run --only valgrind

test-gpu: setup ## the same specs on this machine's own driver and GPU
	@specs/build dev
	@specs/gpu/here .venv/bin/python specs/run --only real

matrix: build ## every array library with every other, through Moonferry (ONLY="NumPy JAX": a part; SHARE=0.15: Moonferry and so much of the rest; TABLE=cuda: that table; PUBLISH=1: docs/matrix.md)
	@$(if $(PUBLISH),specs/build timed)
	@$(if $(PUBLISH),MOONFERRY_BUILD=$(CURDIR)/build/timed) .venv/bin/python specs/exchange/matrix $(if $(TABLE),--table $(TABLE)) $(if $(ONLY),--only $(ONLY)) $(if $(SHARE),--share $(SHARE)) $(if $(PUBLISH),--publish) $(if $(STRICT),--strict)
	$(if $(ONLY)$(SHARE)$(TABLE),,@.venv/bin/python specs/exchange/long)

test-distributed: build ## Ray, Dask, MPI and torch.distributed, each in two processes: fetches 100 MB once, then a minute
	@.venv/bin/python specs/exchange/distributed

libraries: build ## more array libraries with Moonferry alone (ONLY="Polars VTK": a part; PUBLISH=1: docs/libraries.md)
	@.venv/bin/python specs/exchange/matrix --table more $(if $(ONLY),--only Moonferry $(ONLY)) $(if $(PUBLISH),--publish) $(if $(STRICT),--strict)

mutants: setup ## takes one ordering step after another out of the runtime: does a spec notice?
	@specs/build dev
	@specs/build tsan
	@.venv/bin/python specs/mutants

bench-gpu: setup ## what the device layer costs on this machine's GPU, beside CuPy and PyTorch
	@specs/build timed
	@specs/gpu/here .venv/bin/python specs/bench/gpu.py

coverage: setup ## line and branch coverage of runtime/src by the C specs
	@specs/build coverage
	@.venv/bin/python specs/run --only coverage

fuzz: setup ## a longer fuzz run: make fuzz SECONDS_EACH=600
	@specs/build fuzz
	@.venv/bin/python specs/run --only fuzz --fuzz-seconds $(or $(SECONDS_EACH),600)

test-pythons: build ## the Python specs on every CPython from 3.9 on that this machine has, Lua hosting it, and how processes end (PUBLISH=1: their rows of docs/platforms.md)
	@.venv/bin/python specs/pythons $(if $(PUBLISH),--publish)

test-nogil: build ## CPython without the GIL, built from Debian's source: the specs, and threads under ThreadSanitizer (the first time half an hour)
	@specs/nogil $(if $(PUBLISH),--publish)

test-platforms: ## the specs in the next Debian: newest gcc, cmocka, LuaJIT and CPython (as root; 2 GB below /var/tmp; PYTHON=python3.15: another of its own; PUBLISH=1: the row of docs/platforms.md)
	@specs/platforms $(if $(PUBLISH),--publish) $(if $(PYTHON),--python $(PYTHON))

neovim: build ## a map of a text beside it, in Neovim: make neovim FILE=...
	@MOONFERRY_PYTHON=.venv/bin/python PYTHONPATH=build/dev/python LUA_PATH="lua/?.lua;lua/?/init.lua;;" \
	  nvim -c 'luafile examples/neovim/minimap.lua' -c Minimap $(or $(FILE),examples/neovim/minimap.lua)

test-neovim: build ## examples/neovim in a Neovim without a window (Debian: neovim)
	@MOONFERRY_PYTHON=$(CURDIR)/.venv/bin/python PYTHONPATH=$(CURDIR)/build/dev/python \
	  LUA_PATH="$(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;;" .venv/bin/python -m pytest -q specs/neovim

test-luajit: setup ## the specs of engines that embed LuaJIT, with three of Debian's, from their sources (LUAJIT=FOLDER: with that one)
	@specs/luajit $(if $(LUAJIT),--sources "$(LUAJIT)") $(if $(PUBLISH),--publish)

dist: setup ## all that a release consists of, in dist/: make dist URL=ADDRESS (docs/release.md)
	@specs/release/dist $(if $(URL),--url $(URL)) $(if $(SYSTEM),--system $(SYSTEM))

wheels: setup ## a manylinux wheel for each CPython here, with LuaJIT inside, in dist/
	@specs/release/dist --only wheels $(if $(URL),--url $(URL)) $(if $(SYSTEM),--system $(SYSTEM))

try-wheels: ## what is in dist/, in a Debian that has Python and nothing else (as root; 300 MB below /var/tmp; ARCH=arm64 SUITE=trixie: in QEMU)
	@specs/release/bare $(if $(ARCH),--arch $(ARCH)) $(if $(SUITE),--suite $(SUITE))

test-musl: ## the C specs and the plain Lua specs with musl (some minutes; a network, as root)
	@specs/cross musl $(if $(PUBLISH),--publish)

test-windows: ## the same for Windows, built by MinGW, in Wine
	@specs/cross windows $(if $(PUBLISH),--publish)

test-aarch64: ## the same for aarch64, in QEMU, and Python's there, in an arm64 Debian (as root; 700 MB below /var/tmp; RESUME=1: goes on with a run that was cut off)
	@specs/cross aarch64 $(if $(PUBLISH),--publish) $(if $(RESUME),--resume)

clean: ## removes build/, .venv/ and every cache, nothing else
	@rm -rf build .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis .cache
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
