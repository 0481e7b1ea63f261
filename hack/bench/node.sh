# Real containers on one node: Ferry's own runtime beside containerd and runc.
say "a node with containers"
"$top/hack/registry.sh" start "$registry_port"
trap 'end ${containerd:-}; cluster_down; "$top/hack/registry.sh" stop "$registry_port"' EXIT
for runtime in embedded containerd; do
  begin=$(now)
  "$ferry" up "${cluster_flags[@]}" --container-runtime-endpoint "$runtime" >/dev/null
  line "start to node Ready, $runtime" ms "$(since "$begin")"
  export KUBECONFIG="$work/cluster/kubeconfig"
  pid=$(cat "$run/ferry.lock")
  "$ferry" kubectl config view --raw -o json >"$work/cluster.kubeconfig"
  python pods start "$work/cluster.kubeconfig" "$runtime" | tee -a "$work/lines"
  sleep 30
  # What is shared is counted once: Ferry, the runtime's processes beside the pods, and containerd. What the pods run is their own.
  all=$(pgrep -f "runtime-shim.*$run|containerd-shim.*$run|containerd .*$run" || true)
  for one in $pid $all; do awk '/^Pss:/ {print $2}' "/proc/$one/smaps_rollup" 2>/dev/null; done >"$work/pss"
  line "cluster with three pods, $runtime" ferry_$(memory "$pid") processes "$(wc -l <"$work/pss")" all_pss_mb "$(awk '{s += $1} END {printf "%.0f", s / 1024}' "$work/pss")"
  processor "cluster with three pods, $runtime" "$pid" 30
  python pods many "$work/cluster.kubeconfig" "$runtime" | tee -a "$work/lines"
  sleep 20
  line "cluster after a burst of 50 pods, $runtime" ferry_$(memory "$pid")
  cluster_down
done
