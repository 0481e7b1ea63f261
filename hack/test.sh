#!/usr/bin/env bash
# `make test`: every test, with the real parts. No part stops another. The last lines name every failure and the reason of
# every skip, and count: `N passed, N failed, N skipped`. Where CI=true only hack/allowed-skips.txt may be skipped.
. "$(dirname "$0")/common.sh"
need_root
cd "$top"
# Only the summary is to know it: cargo would build without its incremental state, and so more.
ci=${CI:-}; unset CI
port=${FERRY_TEST_REGISTRY_PORT:-5057}
"$top/hack/setup.sh" --test
"$top/hack/registry.sh" start "$port"
results=$(mktemp -d)
trap '"$top/hack/registry.sh" stop "$port"; rm -rf "$results"' EXIT
trap 'exit 130' INT TERM
export FERRY_TEST_REGISTRY="http://127.0.0.1:$port" FERRY_SKIPS="$results/skips"
export PATH="$cache/etcd/usr/bin:$PATH"

# part NAME TITLE COMMAND... : runs it, whatever became of those before.
part() {
  local name=$1 status=0; shift
  say "$1"; shift
  "$@" 2>&1 | tee "$results/$name.log" || status=$?
  echo "$status" >"$results/$name.status"
}
# Built on its own, so that there is a summary also where something else does not build.
cargo build --quiet --workspace --bin xtask
part workspace "unit, store, exchange and end-to-end tests" cargo test --workspace --no-fail-fast
part containerd "pods on containerd" env FERRY_TEST_RUNTIME=containerd cargo test --quiet --workspace --test e2e -- spine failures storage what_cannot_be_had
part clients "kubectl, and the Python and Node clients" "$top/hack/clients.sh"

say "summary"
CI=$ci "$CARGO_TARGET_DIR/debug/xtask" summary "$results"
