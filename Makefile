# Ferry: two commands to know are `make up` and `make test`.
SHELL := /bin/bash
CACHE := $(or $(FERRY_CACHE),$(HOME)/.cache/ferry)
# Outside the clone, so that fresh clones and CI reuse what is built already.
export CARGO_TARGET_DIR ?= $(CACHE)/target
export FERRY_CACHE := $(CACHE)

.PHONY: up down build test lint fmt bench fuzz audit catalogue clean-room dist conformance e2e gateway-conformance envtest mirror upgrade-test vm-test

up: ## install what is missing, build, start a cluster, deploy the example and show it
	@hack/up.sh

down: ## stop everything `make up` started; the cluster's data stays (PURGE=1 removes it)
	@hack/down.sh

build:
	cargo build --release -p ferry

test: ## everything: unit, store, oracle, end to end with real kubectl and containers
	@hack/test.sh

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

clean-room: ## the README's commands in a bare Debian root with namespaces of its own
	@hack/clean-room.sh

conformance: ## the official conformance suite: RUNG=1 FOCUS=regex RUNTIME=containerd NODES=3 RESUME=1
	@hack/conformance.sh

e2e: ## upstream's other end-to-end tests: SIG=network FEATURE=NetworkPolicy FOCUS=regex RUNTIME=containerd NODES=3 RESUME=1 KUBECTL=path
	@hack/conformance.sh e2e

gateway-conformance: ## the Gateway API's own conformance suite: TEST=HTTPRouteWeight CRDS=own RUNTIME=containerd KEEP=1
	@hack/gateway-conformance.sh

envtest: ## controller-runtime's own tests, with Ferry in the place of kube-apiserver and etcd
	@hack/envtest.sh

mirror: ## the same requests to a kube-apiserver and to Ferry, and where their answers differ: UPSTREAM=path SEED=1 N=200 KIND=Pod,Service FERRY=path
	@hack/mirror.sh

vm-test: ## virtual machines with stock Debian 12 under emulation: MACHINES=3 CHECK=regex FERRY=path
	@hack/vm-test.sh

upgrade-test: ## a cluster goes from an older commit to this one and back, under load: OLD=commit
	@hack/upgrade-test.sh

fmt:
	cargo fmt --all

bench: ## figures as JSON lines and tables, beside others; nothing is asserted: PART="gate wires"
	@hack/bench.sh

fuzz: ## ten minutes of fuzzing over all targets; needs nightly Rust
	@hack/fuzz.sh

dist: ## binary, Debian package, OCI image, completions, man pages, bill of materials and checksums in dist/
	@hack/dist.sh

audit: ## licences, bans, sources and, where the network allows it, known vulnerabilities of all dependencies
	@hack/audit.sh

catalogue: ## make the type catalogue anew from k8s-openapi and the wire facts
	cargo run -p xtask -- catalogue
