#!/usr/bin/env bash
# Upstream's end-to-end tests, built from the Go module proxy, against a fresh cluster of this clone's Ferry.
#   hack/conformance.sh       `make conformance`: the official conformance suite
#   hack/conformance.sh e2e   `make e2e`: the tests beyond it that are neither slow, serial, disruptive, flaky nor of a feature
#   RUNG=1        conformance: only this rung of testdata/conformance-ladder.tsv, or several: RUNG="4a 6"; 4 is 4a and 4b
#   SIG=network   e2e: only the tests of this interest group, or of several: SIG="apps node"
#   FEATURE=name  e2e: only the tests of this feature (NetworkPolicy, IPv6DualStack), which are left out otherwise
#   FOCUS=regex   only tests whose name matches
#   RUNTIME=…     embedded (default), containerd, or the socket of another runtime
#   NODES=3       so many real nodes, made by `ferry cluster` with the embedded runtime; without it there is one, and the tests that
#                 ask for several get simulated ones beside it
#   SERVERS=3     so many of the nodes are servers (needs etcd on the PATH)
#   KILL=240      with SERVERS: the tests reach the servers through a balancer, and every so many seconds one server is killed
#   RESUME=1      goes on: what passed on this commit is not run again
#   KEEP=1        leaves the cluster for looking at; the next run removes it
#   PROCS=4       tests at once      BUILD_JOBS=1  compilers at once
#   FERRY=path    this program instead of a release build of the clone
#   KUBECTL=path  the kubectl that the tests run, such as a link named kubectl to ferry; without it, upstream's
# Results are in $FERRY_CACHE/conformance/results/<commit>-<runtime>, with `-e2e` behind it. See docs/conformance.md.
. "$(dirname "$0")/common.sh"
. "$top/hack/images.sh"
for part in suite ladder images cluster kill run table; do . "$top/hack/conformance/$part.sh"; done

tests=${1:-conformance}
nodes=${NODES:-1}
servers=${SERVERS:-1}
kill_every=${KILL:-}
runtime=${RUNTIME:-embedded}
procs=${PROCS:-$(($(nproc) * 2))}
port=${FERRY_CONFORMANCE_REGISTRY_PORT:-5059}
url="http://127.0.0.1:$port"
given=${FERRY:-}
kubectl=${KUBECTL:+$(realpath -s "$KUBECTL")}
chosen="${RUNG:-}${SIG:-}${FEATURE:-}${FOCUS:-}"
case $tests in
  conformance) [ -z "${SIG:-}${FEATURE:-}" ] || fail "SIG and FEATURE choose among the tests of make e2e; here it is RUNG or FOCUS" ;;
  e2e) [ -z "${RUNG:-}" ] || fail "RUNG chooses among the tests of make conformance; here it is SIG, FEATURE or FOCUS" ;;
  *) fail "usage: hack/conformance.sh [e2e]" ;;
esac
case $runtime in containerd | embedded | unix://*) ;; *) fail "RUNTIME is containerd, embedded or a socket such as unix:///run/other.sock, not '$runtime'" ;; esac
[[ $nodes =~ ^[1-9][0-9]*$ && $servers =~ ^[1-9][0-9]*$ && $procs =~ ^[1-9][0-9]*$ ]] || fail "NODES, SERVERS and PROCS are numbers from 1"
[ "$servers" -le "$nodes" ] || fail "SERVERS=$servers are more than NODES=$nodes: servers are nodes, too"
[ -z "$kill_every" ] || { [[ $kill_every =~ ^[1-9][0-9]*$ ]] && [ "$servers" -ge 3 ]; } || fail "KILL is a number of seconds, and needs SERVERS=3 or more: with fewer there is no quorum while one is away"
[ "$nodes" = 1 ] || [ "$runtime" = embedded ] || fail "several real nodes on one machine run on the embedded runtime; leave RUNTIME out"
[ -z "$kubectl" ] || [ -x "$kubectl" ] || fail "KUBECTL=$KUBECTL is no program"
need_root
cd "$top"

# A second run would take the cluster of the first away. What is started below does not inherit the lock, for it may outlive a run that is killed.
mkdir -p "$cache/conformance"
exec 9>"$cache/conformance/lock"
flock -n 9 || fail "a conformance run is under way on this machine (it holds $cache/conformance/lock)"

"$top/hack/setup.sh" --test
build_suite
list_tests
choose_tests
if [ -n "$given" ]; then
  ferry=$(realpath "$given"); [ -x "$ferry" ] || fail "FERRY=$given is no program"
  commit="program-$(sha256sum "$ferry" | cut -c1-12)"
else
  say "building Ferry"
  cargo build --release -p ferry
  ferry="$CARGO_TARGET_DIR/release/ferry"
  commit=$(git rev-parse --short=12 HEAD)
  [ -z "$(git status --porcelain -- . ':!docs/conformance.md')" ] || commit="$commit-dirty"
fi

results="$cache/conformance/results/$commit-$(tr -c 'a-z0-9\n' - <<<"$runtime")"
kind=${runtime%%:*}
if [ "$nodes" != 1 ]; then
  results="$results-$nodes-nodes"; kind=nodes
  [ "$servers" = 1 ] || { results="$results-$servers-servers"; kind=servers; }
  [ -z "$kill_every" ] || { results="$results-killed"; kind=killed; }
fi
[ "$tests" = conformance ] || { results="$results-$tests"; kind=$tests; }
[ -z "$kubectl" ] || results="$results-kubectl-$(sha256sum "$kubectl" | cut -c1-12)"
kubectl=${kubectl:-$cache/kubectl}
if [ -z "${RESUME:-}" ] && [ -d "$results" ]; then mv "$results" "$results.$(date -r "$results" +%Y%m%d-%H%M%S)"; fi
mkdir -p "$results"; touch "$results/outcomes.tsv" "$results/seconds.tsv"
cp "$suite/chosen.tsv" "$results/ladder.tsv"

# Short: tests make sockets in it, and the path of one has at most 108 bytes.
temporary=$(mktemp -d /tmp/ferryconf-XXXX)
ended() {
  set +e; trap - EXIT INT TERM
  stop_tests
  stop_killer
  keep_logs
  if [ -n "${KEEP:-}" ]; then say "kept: export KUBECONFIG=$kubeconfig"; return; fi
  rm -rf "$temporary"; stop_cluster; "$top/hack/registry.sh" stop "$port"
}
trap ended EXIT
trap 'exit 130' INT TERM
"$top/hack/registry.sh" start "$port" 9>&-
pack_images
repo_list "$results/repo-list.yaml"
start_cluster
[ -z "$kill_every" ] || { start_balancer; start_killer; }

if [ "$nodes" != 1 ]; then
  for rung in $rungs; do run_tests "$rung" '1|2'; done
else
  for rung in $rungs; do run_tests "$rung" 1; done
  if [ -n "$(for rung in $rungs; do tests_to_run "$rung" 2; done)" ]; then
    start_simulated
    for rung in $rungs; do run_tests "$rung" 2; done
    stop_simulated
  fi
fi
report
keep_table
# What did not pass is for the caller to see.
[ ! -s "$results/failures.tsv" ]
