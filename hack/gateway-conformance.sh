#!/usr/bin/env bash
# `make gateway-conformance`: the Gateway API's own conformance suite, built from the Go module proxy, against a fresh cluster of this clone's Ferry.
#   TEST=name     only this test, by the suite's short name: TEST=HTTPRouteSimpleSameNamespace
#   CRDS=own      Ferry's own CustomResourceDefinitions instead of those of the suite's release; the report then names no version
#   RUNTIME=…     embedded (default), containerd, or the socket of another runtime
#   BUILD=1       builds the suite, and nothing else
#   KEEP=1        leaves the cluster for looking at; the next run removes it
#   FERRY=path    this program instead of a release build of the clone
# A whole run without failures writes docs/gateway-conformance.yaml and the table of docs/gateway.md.
. "$(dirname "$0")/common.sh"
. "$top/hack/images.sh"
for part in suite cluster; do . "$top/hack/conformance/$part.sh"; done
. "$top/hack/gateway-conformance/parts.sh"

runtime=${RUNTIME:-embedded}
port=${FERRY_CONFORMANCE_REGISTRY_PORT:-5059}
url="http://127.0.0.1:$port"
case $runtime in containerd | embedded | unix://*) ;; *) fail "RUNTIME is containerd, embedded or a socket such as unix:///run/other.sock, not '$runtime'" ;; esac
case ${CRDS:-} in '' | own) ;; *) fail "CRDS is 'own' or not given, not '$CRDS'" ;; esac
need_root
cd "$top"

# The cluster is that of `make conformance`: one of the two at a time.
mkdir -p "$cache/conformance"
exec 9>"$cache/conformance/lock"
flock -n 9 || fail "a conformance run is under way on this machine (it holds $cache/conformance/lock)"

build_gateway_suite
[ -z "${BUILD:-}" ] || exit 0
"$top/hack/setup.sh" --test
if [ -n "${FERRY:-}" ]; then
  ferry=$(realpath "$FERRY"); [ -x "$ferry" ] || fail "FERRY=$FERRY is no program"
else
  say "building Ferry"
  cargo build --release -p ferry
  ferry="$CARGO_TARGET_DIR/release/ferry"
fi

results="$cache/conformance/results/gateway"
rm -rf "$results"; mkdir -p "$results"
ended() {
  set +e; trap - EXIT INT TERM
  cp "$data/ferry.log" "$results/" 2>/dev/null
  if [ -n "${KEEP:-}" ]; then say "kept: export KUBECONFIG=$kubeconfig"; return; fi
  stop_cluster; "$top/hack/registry.sh" stop "$port"
}
trap ended EXIT
trap 'exit 130' INT TERM
"$top/hack/registry.sh" start "$port" 9>&-
pack_gateway_images
start_cluster
[ "${CRDS:-}" = own ] || use_definitions_of_the_suite
run_gateway_suite
