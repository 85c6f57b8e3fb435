# The usual targets over CMake, for habit's sake. `make help` lists them.

BUILD := build
JOBS := $(shell nproc 2>/dev/null || echo 2)
TESTS := $(shell expr 4 '*' $(JOBS)) # a test takes two of these, or one where it hardly computes (PROCESSORS)

.PHONY: all demo test check check-containers aarch64 fuzz bench gpu-check check-kubernetes docs site install deb clean help
all:
	@cmake -S . -B $(BUILD) >/dev/null # every time: what is installed may have changed
	@MAKEFLAGS=--no-print-directory cmake --build $(BUILD) --parallel $(JOBS)

demo:
	@MAKEFLAGS=--no-print-directory JOBS=$(JOBS) demo/build.sh $(BUILD)
	@demo/demo.sh $(BUILD)

test: all
	@cd $(BUILD) && ctest --output-on-failure --parallel $(TESTS)

check:
	@tests/check.sh

check-containers: all
	@tests/container/check.sh $(BUILD)

aarch64:
	@cmake --preset aarch64 >/dev/null
	@MAKEFLAGS=--no-print-directory cmake --build build-aarch64 --parallel $(JOBS)
	@tests/aarch64.sh build-aarch64 --output-on-failure --parallel $(TESTS) -R '^(abi|sim\.(doors|memory|launch))\.' -E bystander

fuzz:
	@tests/fuzz/run.sh

bench: all
	@bench/bench.sh $(BUILD)

gpu-check: all
	@tests/gpu/memory.sh $(BUILD)
	@tests/gpu/attacks.sh $(BUILD)
	@tests/gpu/deaths.sh $(BUILD)
	@tests/gpu/exit.sh $(BUILD)
	@tests/gpu/cores.sh $(BUILD)
	@tests/gpu/two.sh $(BUILD) || [ $$? = 77 ]
	@tests/gpu/selftest.sh $(BUILD)

check-kubernetes:
	@cmake -S . -B $(BUILD) >/dev/null
	@MAKEFLAGS=--no-print-directory cmake --build $(BUILD) --parallel $(JOBS) --target demo_all vgpud vgpu-device-plugin
	@VGPU_BUILD=$(BUILD) tests/kubernetes/run.sh

docs: all
	@api/coverage.sh >docs/coverage.md.new && mv docs/coverage.md.new docs/coverage.md
	@docs/pages.sh $(BUILD)/src/cli/vgpu_pages .

site:
	@docs/site/build.sh $(BUILD)

install: all
	@cmake --install $(BUILD) $(if $(DESTDIR),,$(if $(PREFIX),--prefix $(PREFIX)))

deb:
	@debian/build.sh

clean:
	rm -rf build build-*

help:
	@echo 'all        build/libvgpu.so, build/vgpu and the simulated driver in build/sim'
	@echo 'demo       a program held to its slice, on the GPU or, without one, the simulated driver'
	@echo 'test       every test that needs no GPU'
	@echo 'check      format, lint, warnings of gcc and clang, and the unit tests under sanitizers'
	@echo 'check-containers  slices in Podman, containerd and Docker, as root; needs podman, runc, containerd, debootstrap'
	@echo 'aarch64    the cross-compiled library, and its doors, memory and launches under qemu; needs gcc-aarch64-linux-gnu and qemu-user-static'
	@echo 'fuzz       the fuzzers, five minutes each; needs clang'
	@echo 'bench      what the library costs, reported'
	@echo 'gpu-check  the tests that need a GPU that nobody else uses, some 20 minutes'
	@echo 'check-kubernetes  pods in a real cluster of this one machine, with a simulated GPU; needs root'
	@echo 'docs       docs/coverage.md, from the tables in api/; of the manual pages and the completions what the commands' tables say'
	@echo 'site       the documents as a site in build/site; needs mkdocs and mandoc'
	@echo 'install    PREFIX=/usr/local DESTDIR= as usual'
	@echo 'deb        Debian packages in build/deb; needs debhelper'
