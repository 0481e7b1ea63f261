#!/usr/bin/env bash
# `make upgrade-test`: a cluster of a server and two nodes goes from an older commit to this one and back, under load.
#   OLD=commit     where it comes from (default: the one before the last)
. "$(dirname "$0")/common.sh"
need_root
cd "$top"
old=$(git rev-parse --verify --quiet "${OLD:-HEAD~1}^{commit}") || fail "no such commit: ${OLD:-HEAD~1}"
home="$cache/upgrade"
port=${FERRY_TEST_REGISTRY_PORT:-5057}
"$top/hack/setup.sh" --test
mkdir -p "$home"
if [ ! -x "$home/ferry-$old" ]; then
  say "building ferry of ${old:0:7}"
  rm -rf "$home/clone"; git clone -q "$top" "$home/clone"; git -C "$home/clone" checkout -q "$old"
  (cd "$home/clone" && CARGO_TARGET_DIR="$home/target" cargo build --workspace --bin ferry)
  install -m 755 "$home/target/debug/ferry" "$home/ferry-$old"
fi
"$top/hack/registry.sh" start "$port"
trap '"$top/hack/registry.sh" stop "$port"' EXIT
say "from ${old:0:7} to $(git rev-parse --short HEAD) and back"
FERRY_OLD_BINARY="$home/ferry-$old" FERRY_TEST_REGISTRY="http://127.0.0.1:$port" cargo test --quiet --workspace --test e2e -- upgrades
