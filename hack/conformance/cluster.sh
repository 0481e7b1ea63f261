# A cluster of its own: folders, ports, bridge, control group and address ranges that no other cluster of this machine has. Sourced by conformance.sh.

data="$cache/conformance/cluster"
run=/run/ferryconf
# The kubelet's and the DNS server's ports follow it.
api_port=${FERRY_CONFORMANCE_PORT:-17643}
kubeconfig="$data/kubeconfig"
# Several nodes: a cluster of `ferry cluster`, whose nodes are namespaces. Its name is short: sockets lie below it.
clusters="$cache/conformance/clusters"
several=conf

# What a run that was killed has left behind goes first: the cluster is always a fresh one.
start_cluster() {
  stop_tests
  stop_cluster
  # A node that is short of disk runs no pods: every test after that would fail for nothing.
  local free; free=$(df -BG --output=avail "$cache" | tail -n 1 | tr -dc 0-9)
  [ "$free" -ge 6 ] || fail "$cache has $free GB of free disk; the cluster needs 6, of which 4 stay free. Free some, or set FERRY_CACHE to a folder elsewhere"
  if [ "$nodes" != 1 ]; then start_several; return; fi
  say "a fresh cluster (runtime: $runtime; log in $data/ferry.log)"
  "$ferry" up --data-dir "$data" --run-dir "$run" --secure-port "$api_port" --kubelet-port $((api_port + 7)) --dns-port $((api_port + 10)) \
    --cluster-cidr 10.209.0.0/16 --service-cluster-ip-range 10.210.0.0/16 --bridge ferryconf0 --cgroup-root /ferryconf --node-name conformance \
    --registry-mirror "docker.io=$url" --registry-mirror "registry.k8s.io=$url" --container-runtime-endpoint "$runtime" >"$results/up.log" 2>&1 9>&- \
    || { cat "$results/up.log" >&2; fail "the cluster did not start; its log is $data/ferry.log"; }
}

# Nodes reach the registry by the rule for mirrors on the host's loopback; the suite's images are asked for by the registry's own address.
start_several() {
  local registry mirrors=()
  for registry in docker.io registry.k8s.io "127.0.0.1:$port"; do mirrors+=(--registry-mirror "$registry=$url"); done
  kubeconfig="$cache/conformance/kubeconfig"
  say "a fresh cluster of $nodes nodes, $servers of them servers (logs in $clusters/$several)"
  rm -f "$kubeconfig"
  "$ferry" cluster create "$several" --clusters-dir "$clusters" --kubeconfig "$kubeconfig" --servers "$servers" --nodes "$((nodes - servers))" "${mirrors[@]}" \
    >"$results/up.log" 2>&1 9>&- || { cat "$results/up.log" >&2; fail "the cluster did not start; its logs are in $clusters/$several"; }
  cat "$results/up.log"
  # Tests of traffic between zones want three; each node is one.
  local node
  for node in $("$cache/kubectl" --kubeconfig "$kubeconfig" get nodes -o name); do
    "$cache/kubectl" --kubeconfig "$kubeconfig" label "$node" topology.kubernetes.io/zone="zone-${node#*/}" >/dev/null
  done
}

# keep_logs : what the cluster said, beside the results.
keep_logs() {
  local log
  cp "$data/ferry.log" "$results/" 2>/dev/null
  for log in "$clusters/$several"/*/ferry.log; do [ ! -f "$log" ] || cp "$log" "$results/$(basename "$(dirname "$log")").log"; done
}

stop_cluster() {
  stop_simulated
  if [ -e "$clusters/$several" ]; then
    "$ferry" cluster delete "$several" --clusters-dir "$clusters" >/dev/null || say "note: the cluster in $clusters could not be deleted"
  fi
  [ -e "$data" ] || [ -e "$run" ] || return 0
  "$ferry" down --data-dir "$data" --run-dir "$run" --purge >/dev/null || say "note: the cluster in $data could not be stopped"
}

# Nodes without containers, for tests that count nodes and run nothing in their pods.
simulator=
simulated=2
start_simulated() {
  say "$simulated simulated nodes beside the real one"
  "$ferry" node simulate --kubeconfig "$kubeconfig" --nodes "$simulated" --name-prefix simulated- >"$results/simulated.log" 2>&1 9>&- &
  simulator=$!
  "$cache/kubectl" --kubeconfig "$kubeconfig" wait --for=create "node/simulated-$((simulated - 1))" --timeout=60s >/dev/null \
    && "$cache/kubectl" --kubeconfig "$kubeconfig" wait --for=condition=Ready nodes --all --timeout=60s >/dev/null || fail "the simulated nodes did not become Ready; see $results/simulated.log"
}

stop_simulated() {
  [ -n "$simulator" ] || return 0
  kill "$simulator" 2>/dev/null || true; wait "$simulator" 2>/dev/null || true
  simulator=
  "$cache/kubectl" --kubeconfig "$kubeconfig" delete nodes $(seq -f 'simulated-%g' 0 $((simulated - 1))) --wait=false >/dev/null 2>&1 || true
}
