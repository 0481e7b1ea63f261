# A cluster of several nodes on this machine, a machine that joins it, an idle node, and what passes between pods of two nodes.
install_packages iperf3 util-linux
say "a cluster of a server and three nodes"
"$top/hack/registry.sh" start "$registry_port"
clusters="$work/clusters" joiner='' plain=()
export KUBECONFIG="$work/fleet.kubeconfig" HOME="$work"
create() { # NAME OPTION...
  "$ferry" cluster create "$@" --clusters-dir "$clusters" --kubeconfig "$KUBECONFIG" "${mirrors[@]}" >"$work/said"
}
delete() { "$ferry" cluster delete "$1" --clusters-dir "$clusters" >/dev/null; }
clear() {
  [ -z "$joiner" ] || kill -9 "$joiner" 2>/dev/null || true
  local name
  for name in "${plain[@]}"; do ip netns delete "$name" 2>/dev/null || true; done
  for name in "$clusters"/*/; do [ ! -d "$name" ] || delete "$(basename "$name")"; done
  "$top/hack/registry.sh" stop "$registry_port"
}
trap clear EXIT
for round in 1 2 3 4 5; do
  [ "$round" = 1 ] || delete fbench
  begin=$(now)
  create fbench --nodes 3
  since "$begin" >>"$work/created"
done
line "cluster of a server and three nodes, all Ready" rounds 5 p50_ms "$(sort -n "$work/created" | sed -n 3p)" most_ms "$(sort -n "$work/created" | tail -1)"

# The host's number of Ferry in a node: the child of its first process.
process() { pgrep -P "$(cat "$clusters/$1/$2.lock")" -f 'ferry (run|node run)'; }
server=$(sed -n 's|.*server: *.*//\(10\.[0-9.]*\):.*|\1|p' "$KUBECONFIG" | head -1)
network=${server%.*} bridge="ferry-c$(echo "$server" | cut -d. -f3)"

say "a machine that joins"
unshare --net --uts --ipc --mount --pid --fork --propagation slave -- sh -c 'mount -t proc proc /proc; mount -t tmpfs tmpfs /run; hostname joiner; exec sleep 1000000' &
sleep 0.5; joiner=$(pgrep -P $!)
within() { nsenter -t "$joiner" -a -- "$@"; }
ip link add ferry-join type veth peer name eth0 netns "$joiner"; ip link set ferry-join master "$bridge" up
within sh -c "ip link set lo up; ip addr add $network.200/24 dev eth0; ip link set eth0 up; ip route add default via $network.1"
for round in 1 2 3 4 5; do
  words=($("$ferry" token create | sed -n 's/.*ferry join //p'))
  folders=(--data-dir "$work/joiner" --run-dir /run/ferry)
  begin=$(now)
  within "$ferry" join "$server:6443" "${words[1]}" "${folders[@]}" --node-name "joiner-$round" --cgroup-root /ferry-bench-join "${mirrors[@]}" >"$work/join-$round.log"
  since "$begin" >>"$work/joined"
  [ "$round" = 5 ] || within "$ferry" leave "${folders[@]}" >/dev/null
done
line "join, from the command to Ready" rounds 5 p50_ms "$(sort -n "$work/joined" | sed -n 3p)" most_ms "$(sort -n "$work/joined" | tail -1)"
within "$ferry" leave "${folders[@]}" >/dev/null; kill -9 "$joiner"; joiner=

say "an idle node, and one beside 30 pods"
pod() { # NAME NODE SECONDS : nothing but a process that sleeps
  echo "{apiVersion: v1, kind: Pod, metadata: {name: $1, labels: {app: idle}}, spec: {nodeName: $2, terminationGracePeriodSeconds: 0, containers: [{name: c, image: 'busybox:1.36', command: [sleep, '$3']}]}}"
  echo ---
}
ready() { "$ferry" kubectl wait --for=condition=Ready pod -l app=idle --timeout=120s >/dev/null; }
node=$(process fbench fbench-node-0)
sleep 20
line "node without pods" $(memory "$node")
processor "node without pods" "$node" 60
for number in $(seq 30); do pod "idle-$number" fbench-node-0 86400; done | "$ferry" kubectl apply -f - >/dev/null
ready; sleep 30
line "node beside 30 pods" $(memory "$node")
processor "node beside 30 pods" "$node" 60
delete fbench

say "what passes between pods of two nodes"
# rate FROM TO-NAMESPACE ADDRESS : gigabits per second, in namespaces by the number of a process in each.
rate() {
  nsenter -t "$2" -n iperf3 -s -1 -D -I "$work/iperf.pid" >/dev/null
  sleep 0.3
  nsenter -t "$1" -n iperf3 -c "$3" -t 4 -O 1 -J | python3 -c 'import json, sys; print("%.2f" % (json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"] / 1e9))'
}
sleeper() { pgrep -f "^sleep $1\$"; }
for mode in routes vxlan; do
  printf 'apiVersion: ferry.dev/v1alpha1\nkind: Cluster\nservers: [{}]\nnodes: [{}, {}]\nnetworking: {podNetwork: %s}\n' "$mode" >"$work/file.yaml"
  create "fb$mode" --config "$work/file.yaml"
  server=$("$ferry" cluster kubeconfig "fb$mode" --clusters-dir "$clusters" | sed -n 's|.*server: *.*//\(10\.[0-9.]*\):.*|\1|p')
  network=${server%.*} bridge="ferry-c$(echo "$server" | cut -d. -f3)" number=$((RANDOM + 100000))
  for side in 0 1; do pod "side-$side" "fb$mode-node-$side" "$number$side"; done | "$ferry" kubectl apply -f - >/dev/null
  ready
  pods=("$(sleeper "${number}0")" "$(sleeper "${number}1")")
  to=$("$ferry" kubectl get pod side-1 -o 'jsonpath={.status.podIP}')
  # Two namespaces of our own on the same bridge, each with one behind it: the same way without Ferry.
  plain=(); others=()
  for side in 0 1; do
    outer="ferry-plain-$side" inner="ferry-inner-$side"
    ip netns add "$outer"; ip netns add "$inner"; plain+=("$outer" "$inner")
    ip link add "fplain$side" type veth peer name eth0 netns "$outer"; ip link set "fplain$side" master "$bridge" up
    ip -n "$outer" link add pod0 type veth peer name eth0 netns "$inner"
    ip -n "$outer" addr add "$network.$((210 + side))/24" dev eth0; ip -n "$outer" addr add "172.31.$side.1/24" dev pod0
    ip -n "$inner" addr add "172.31.$side.2/24" dev eth0
    for name in lo eth0 pod0; do ip -n "$outer" link set "$name" up; done; for name in lo eth0; do ip -n "$inner" link set "$name" up; done
    ip -n "$outer" route add "172.31.$((1 - side)).0/24" via "$network.$((211 - side))"; ip -n "$inner" route add default via "172.31.$side.1"
    ip netns exec "$outer" sysctl -qw net.ipv4.ip_forward=1
    ip netns exec "$inner" sleep 100000 & others+=($!)
  done
  sleep 1
  rm -f "$work/rates"
  for round in 1 2 3 4 5; do echo "$(rate "${pods[0]}" "${pods[1]}" "$to") $(rate "${others[0]}" "${others[1]}" 172.31.1.2)" >>"$work/rates"; done
  middle() { awk -v f="$1" '{print $f}' "$work/rates" | sort -n | sed -n 3p; }
  line "between pods of two nodes, $mode" gigabits "$(middle 1)" plain_namespaces "$(middle 2)" percent "$(awk -v a="$(middle 1)" -v b="$(middle 2)" 'BEGIN {printf "%.0f", a / b * 100}')"
  end "${others[@]}"
  for name in "${plain[@]}"; do ip netns delete "$name"; done; plain=()
  delete "fb$mode"
done
