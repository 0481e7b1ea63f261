#!/usr/bin/env bash
# `make bench`: figures of this machine, as JSON lines; nothing is asserted.
. "$(dirname "$0")/common.sh"
need_root
cd "$top"
"$top/hack/setup.sh" --test
export PATH="$cache/etcd/usr/bin:$PATH"
say "building"
cargo build --release --quiet -p ferry --example load --example controllers
cargo build --release --quiet -p ferry
ferry="$CARGO_TARGET_DIR/release/ferry"
load="$CARGO_TARGET_DIR/release/examples/load"
kubectl="$cache/kubectl"
work=$(mktemp -d); run=$(mktemp -d /run/ferry-bench-XXXX)
port=${FERRY_BENCH_REGISTRY_PORT:-5058}
now() { date +%s%N; }
since() { echo $((($(now) - $1) / 1000000)); }
line() { printf '{"what":"%s","%s":%s}\n' "$1" "$2" "$3" | tee -a "$work/lines"; }
resident() { awk '/^VmRSS/ {printf "%.1f", $2 / 1024}' "/proc/$1/status"; }
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

say "the store beside raw append and fdatasync, and etcd"
cargo bench --quiet -p ferry-store --bench store -- --folder "$work/store"

say "who is asking, may they, and is it their turn"
cargo bench --quiet -p ferry-auth --features testing --bench auth
cargo bench --quiet -p ferry-fairness --bench fairness
say "admission policies"
cargo bench --quiet -p ferry-admission --bench policies | tee -a "$work/lines"

say "the API server's handlers, before TLS"
cargo bench --quiet -p ferry-apiserver --bench handler | tee -a "$work/lines"

say "the API server alone"
printf '%s\n' 'bench-token,admin,1,"system:masters"' >"$work/tokens"
begin=$(now)
"$ferry" apiserver --data-dir "$work/api" --bind-address 127.0.0.1 --secure-port 18443 --token-auth-file "$work/tokens" >"$work/api.log" 2>&1 &
server=$!
until curl -skf -o /dev/null https://127.0.0.1:18443/readyz; do sleep 0.005; done
line "API server, start to ready" ms "$(since "$begin")"
line "API server, just started" rss_mb "$(resident $server)"
# What the start took is given back within seconds.
sleep 10
line "API server, idle" rss_mb "$(resident $server)"
"$load" --server 127.0.0.1:18443 --token bench-token --connections 32 --count 5000 | tee -a "$work/lines"
line "API server, after the load" rss_mb "$(resident $server)"

say "10,000 simulated nodes, without controllers"
cat >"$work/alone.kubeconfig" <<KUBECONFIG
{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
 "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:18443", "insecure-skip-tls-verify": true}}],
 "users": [{"name": "u", "user": {"token": "bench-token"}}]}
KUBECONFIG
"$ferry" node simulate --nodes 10000 --kubeconfig "$work/alone.kubeconfig" >"$work/many.log" 2>&1 &
many=$!
until grep -q registered "$work/many.log"; do sleep 0.2; done
# Every node has its turn once in ten seconds: the first makes the lease, the others renew it.
sleep 15
renewals() { curl -sk -H "Authorization: Bearer bench-token" https://127.0.0.1:18443/metrics | awk '/^apiserver_request_total/ && /leases/ && /PATCH/ {sum += $NF} END {printf "%d", sum}'; }
share() { awk -v t="$1" -v h="$(getconf CLK_TCK)" 'BEGIN {printf "%.2f", t / h / 20 * 100}'; }
before=($(renewals) $(ticks $server) $(ticks $many)); sleep 20
after=($(renewals) $(ticks $server) $(ticks $many))
line "10,000 nodes, leases renewed" per_second "$(((after[0] - before[0]) / 20))"
line "10,000 nodes, the API server" cpu_percent "$(share $((after[1] - before[1])))"
line "10,000 nodes, the simulator" cpu_percent "$(share $((after[2] - before[2])))"
line "10,000 nodes, the API server" rss_mb "$(resident $server)"
line "10,000 nodes, the simulator" rss_mb "$(resident $many)"
kill $many; wait $many 2>/dev/null || true
kill $server; wait $server 2>/dev/null || true

say "the cluster"
"$top/hack/registry.sh" start "$port"
flags=(--data-dir "$work/cluster" --run-dir "$run" --secure-port 18443 --kubelet-port 28250 --dns-port 28053 --cluster-cidr 10.212.0.0/14 --service-cluster-ip-range 10.210.0.0/16
  --bridge ferrybench0 --cgroup-root /ferrybench --registry-mirror "docker.io=http://127.0.0.1:$port" --registry-mirror "registry.k8s.io=http://127.0.0.1:$port")
trap 'kill ${nodes:-} 2>/dev/null || true; "$ferry" down --data-dir "$work/cluster" --run-dir "$run" >/dev/null; "$top/hack/registry.sh" stop "$port"; rm -rf "$work" "$run"' EXIT
begin=$(now)
"$ferry" up "${flags[@]}" >/dev/null
line "start to node Ready" ms "$(since "$begin")"
export KUBECONFIG="$work/cluster/kubeconfig"
for round in "image pulled" "image present"; do
  begin=$(now)
  # Without the example's initial delay: the figure is the system's, not the probe's.
  sed -e '/initialDelaySeconds/d' -e 's/periodSeconds: 5/periodSeconds: 1/' examples/nginx-demo.yaml | "$kubectl" apply -f - >/dev/null
  "$kubectl" rollout status deployment/nginx-demo --timeout=120s >/dev/null
  line "apply to three Ready, $round" ms "$(since "$begin")"
  "$kubectl" delete -f examples/nginx-demo.yaml >/dev/null
  "$kubectl" wait --for=delete pod -l app=nginx-demo --timeout=120s >/dev/null
done
"$kubectl" apply -f examples/nginx-demo.yaml >/dev/null; "$kubectl" rollout status deployment/nginx-demo --timeout=120s >/dev/null
pid=$(cat "$run/ferry.lock"); sleep 5; before=$(ticks "$pid"); sleep 20
line "cluster with three pods, idle" rss_mb "$(resident "$pid")"
line "cluster with three pods, idle" cpu_percent "$(awk -v t=$(($(ticks "$pid") - before)) -v h="$(getconf CLK_TCK)" 'BEGIN {printf "%.2f", t / h / 20 * 100}')"
for shim in $(pgrep -f "runtime-shim.*$run"); do awk '/^Pss:/ {print $2}' "/proc/$shim/smaps_rollup"; done >"$work/shims"
line "shims of its pods, all together" pss_mb "$(awk '{s += $1} END {printf "%.0f", s / 1024}' "$work/shims")"

say "the controllers, with 1,000 simulated nodes"
"$ferry" node simulate --nodes 1000 --kubeconfig "$KUBECONFIG" >"$work/nodes.log" 2>&1 &
nodes=$!
until grep -q registered "$work/nodes.log"; do sleep 0.1; done
"$CARGO_TARGET_DIR/release/examples/controllers" --kubeconfig "$KUBECONFIG" | tee -a "$work/lines"
idle() { before=$(ticks "$pid"); sleep "$2"; line "$1" cpu_percent "$(awk -v t=$(($(ticks "$pid") - before)) -v h="$(getconf CLK_TCK)" -v s="$2" 'BEGIN {printf "%.2f", t / h / s * 100}')"; }
# What ten thousand pods left behind is cleared away first; nodes report in clumps, so a short look may meet none or many.
sleep 30
idle "1,000 nodes and pods, leases renewed" 60
line "1,000 nodes and pods" rss_mb "$(resident "$pid")"
line "1,000 simulated nodes" rss_mb "$(resident $nodes)"
kill $nodes; wait $nodes 2>/dev/null || true; nodes=
# Within the time that nodes may be silent: what is left is the control plane alone.
idle "1,000 nodes and pods, idle" 20

# Upstream's figures were recorded earlier on another 2-core machine: kube-apiserver v1.37 with etcd, and the whole of its node.
say "beside upstream's"
printf '%-40s %-12s %10s %10s\n' figure unit ferry upstream
while IFS='|' read -r what unit upstream; do
  value=$(sed -n "s/^{\"what\":\"$what\",.*\"$unit\":\([0-9.]*\).*/\1/p" "$work/lines" | tail -1)
  printf '%-40s %-12s %10s %10s\n' "$what" "$unit" "${value:--}" "$upstream"
done <<'TABLE'
API server, start to ready|ms|1600
API server, idle|rss_mb|286
API server, after the load|rss_mb|696
create, serial|p50_ms|2.3
create|per_second|1314
get|per_second|2527
patch|per_second|895
list, serial|p50_ms|218
list, eight at once|p50_ms|1100
start to node Ready|ms|3200
apply to three Ready, image pulled|ms|1900
apply to three Ready, image present|ms|1100
cluster with three pods, idle|rss_mb|686
cluster with three pods, idle|cpu_percent|-
TABLE

# Last: it takes as long as all the others together.
say "the scheduler on fake nodes"
cargo bench --quiet -p ferry --bench scheduler -- --folder "$work"
