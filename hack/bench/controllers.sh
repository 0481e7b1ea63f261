# The controllers, with 1,000 simulated nodes.
say "the controllers, with 1,000 simulated nodes"
trap 'end ${nodes:-}; cluster_down' EXIT
"$ferry" up "${cluster_flags[@]}" >/dev/null
export KUBECONFIG="$work/cluster/kubeconfig"
pid=$(cat "$run/ferry.lock")
"$ferry" node simulate --nodes 1000 --kubeconfig "$KUBECONFIG" >"$work/nodes.log" 2>&1 &
nodes=$!
until grep -q registered "$work/nodes.log"; do sleep 0.1; done
"$examples/controllers" --kubeconfig "$KUBECONFIG" | tee -a "$work/lines"
# What ten thousand pods left behind is cleared away first; nodes report in clumps, so a short look may meet none or many.
sleep 30
processor "1,000 nodes and pods, leases renewed" "$pid" 60
line "1,000 nodes and pods" $(memory "$pid")
line "1,000 simulated nodes" $(memory $nodes)
end $nodes; nodes=
# Within the time that nodes may be silent: what is left is the control plane alone.
processor "1,000 nodes and pods, idle" "$pid" 20
