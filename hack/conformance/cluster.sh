# A cluster of its own: folders, ports, bridge, control group and address ranges that no other cluster of this machine has. Sourced by conformance.sh.

data="$cache/conformance/cluster"
run=/run/ferryconf
# The kubelet's and the DNS server's ports follow it.
api_port=${FERRY_CONFORMANCE_PORT:-17643}
kubeconfig="$data/kubeconfig"

# What a run that was killed has left behind goes first: the cluster is always a fresh one.
start_cluster() {
  stop_tests
  stop_cluster
  # A node that is short of disk runs no pods: every test after that would fail for nothing.
  local free; free=$(df -BG --output=avail "$cache" | tail -n 1 | tr -dc 0-9)
  [ "$free" -ge 6 ] || fail "$cache has $free GB of free disk; the cluster needs 6, of which 4 stay free. Free some, or set FERRY_CACHE to a folder elsewhere"
  say "a fresh cluster (runtime: $runtime; log in $data/ferry.log)"
  "$ferry" up --data-dir "$data" --run-dir "$run" --secure-port "$api_port" --kubelet-port $((api_port + 7)) --dns-port $((api_port + 10)) \
    --cluster-cidr 10.209.0.0/16 --service-cluster-ip-range 10.210.0.0/16 --bridge ferryconf0 --cgroup-root /ferryconf --node-name conformance \
    --registry-mirror "docker.io=$url" --registry-mirror "registry.k8s.io=$url" --container-runtime-endpoint "$runtime" >"$results/up.log" 2>&1 9>&- \
    || { cat "$results/up.log" >&2; fail "the cluster did not start; its log is $data/ferry.log"; }
}

stop_cluster() {
  stop_simulated
  [ -e "$data" ] || [ -e "$run" ] || return 0
  "$ferry" down --data-dir "$data" --run-dir "$run" --purge >/dev/null || say "note: the cluster in $data could not be stopped"
}

# Nodes without containers, for tests that count nodes and run nothing in their pods.
simulator=
start_simulated() {
  say "$nodes simulated nodes beside the real one"
  "$ferry" node simulate --kubeconfig "$kubeconfig" --nodes "$nodes" --name-prefix simulated- >"$results/simulated.log" 2>&1 9>&- &
  simulator=$!
  "$cache/kubectl" --kubeconfig "$kubeconfig" wait --for=create "node/simulated-$((nodes - 1))" --timeout=60s >/dev/null \
    && "$cache/kubectl" --kubeconfig "$kubeconfig" wait --for=condition=Ready nodes --all --timeout=60s >/dev/null || fail "the simulated nodes did not become Ready; see $results/simulated.log"
}

stop_simulated() {
  [ -n "$simulator" ] || return 0
  kill "$simulator" 2>/dev/null || true; wait "$simulator" 2>/dev/null || true
  simulator=
  "$cache/kubectl" --kubeconfig "$kubeconfig" delete nodes $(seq -f 'simulated-%g' 0 $((nodes - 1))) --wait=false >/dev/null 2>&1 || true
}
