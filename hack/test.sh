#!/usr/bin/env bash
# `make test`: every test, with the real parts.
. "$(dirname "$0")/common.sh"
need_root
cd "$top"
port=${FERRY_TEST_REGISTRY_PORT:-5057}
"$top/hack/setup.sh" --test
"$top/hack/registry.sh" start "$port"
trap '"$top/hack/registry.sh" stop "$port"' EXIT
export FERRY_TEST_REGISTRY="http://127.0.0.1:$port"
export PATH="$cache/etcd/usr/bin:$PATH"

say "unit, store and end-to-end tests"
cargo test --workspace

say "pods on the embedded runtime"
FERRY_TEST_RUNTIME=embedded cargo test --quiet -p ferry --test e2e -- spine failures storage

say "kubectl, and the Python and Node clients"
"$top/hack/clients.sh"
