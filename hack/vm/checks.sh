# What is checked on the machines. Sourced by vm-test.sh.

# check NAME COMMAND... : runs it and notes what became of it. The name says what holds.
check() {
  local name=$1 begin=$SECONDS outcome=passed; shift
  if [ -n "${CHECK:-}" ] && ! grep -qE "$CHECK" <<<"$name" && [ "$1" != prepare ]; then return 0; fi
  [ "$1" != prepare ] || shift
  # Not as a condition: what fails in the middle would be overlooked.
  set +e; ( set -e; "$@" ) >"$work/check.log" 2>&1; [ $? = 0 ] || outcome=failed; set -e
  printf '%s\t%s\t%s\n' "$outcome" $((SECONDS - begin)) "$name" >>"$results"
  say "$outcome ($((SECONDS - begin)) s): $name"
  [ "$outcome" = passed ] || sed 's/^/    /' "$work/check.log"
}

# absent COMMAND... : it must fail. A plain `!` would be overlooked in the middle of a check.
absent() { if "$@"; then return 1; fi; }

# eventually COMMAND... : until it succeeds; emulated machines are slow.
eventually() {
  local begin=$SECONDS
  until "$@"; do [ $((SECONDS - begin)) -lt 300 ] || return 1; sleep 2; done
}

kubectl() { inside 1 "KUBECONFIG=/var/lib/ferry/kubeconfig ferry kubectl $*"; }
node_ready() { kubectl wait --for=condition=Ready "node/m$1" --timeout=200s; }
running() { kubectl wait --for=condition=Ready "pod/$1" --timeout=240s; }
# asks POD URL : what a pod gets there. Debian's busybox does not survive `wget -T`.
asks() { kubectl exec "$1" -- timeout 20 wget -q -O- "$2"; }

web_pod() { # NAME NODE
  kubectl "run $1 --image=nginx:1.25 --port=80 --overrides='{\"spec\":{\"nodeName\":\"$2\",\"terminationGracePeriodSeconds\":1}}'"
  running "$1"
}

a_stock_machine() {
  inside 1 'test "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs'
  inside 1 'test "$(cat /sys/module/apparmor/parameters/enabled)" = Y'
  inside 1 'test "$(ps -o comm= 1)" = systemd'
  inside 1 'grep -q 127.0.0.53 /etc/resolv.conf'
}

the_server_is_a_unit() {
  local mirror="http://10.0.2.2:$port"
  inside 1 "echo 'FERRY_FLAGS=\"--container-runtime-endpoint embedded --node-ip $(address 1) --pod-network ${POD_NETWORK:-wireguard} --registry-mirror docker.io=$mirror --registry-mirror registry.k8s.io=$mirror\"' >/etc/default/ferry"
  inside 1 systemctl enable --now ferry
  eventually node_ready 1
}

a_machine_joins_and_is_a_unit() {
  local number=$1 line mirror="http://10.0.2.2:$port"
  line=$(inside 1 ferry token create --kubeconfig /var/lib/ferry/kubeconfig | tail -n 1)
  inside "$number" "$line --container-runtime-endpoint embedded --node-ip $(address "$number") --registry-mirror docker.io=$mirror --registry-mirror registry.k8s.io=$mirror"
  node_ready "$number"
  inside "$number" ferry down
  inside "$number" "echo 'FERRY_NODE_FLAGS=\"--container-runtime-endpoint embedded --node-ip $(address "$number") --registry-mirror docker.io=$mirror --registry-mirror registry.k8s.io=$mirror\"' >/etc/default/ferry"
  inside "$number" systemctl enable --now ferry-node
  eventually node_ready "$number"
}

pods_run_on_every_machine() {
  local number
  for number in $(seq "$machines"); do web_pod "web$number" "m$number"; done
  kubectl expose pod "web$machines" --name=web --port=80
}

pods_reach_each_other() {
  local number
  for number in $(seq "$machines"); do test "$(asks web1 "http://$(kubectl get pod "web$number" -o 'jsonpath={.status.podIP}')/")" = "web$number"; done
  eventually asks web1 http://web.default.svc.cluster.local/
}

wireguard_is_the_kernels() { inside 1 'ip -d link show type wireguard | grep -q wireguard'; inside 1 'lsmod | grep -q ^wireguard'; }

pods_do_not_get_the_stub_resolver() {
  kubectl exec web1 -- cat /etc/resolv.conf >"$work/resolv.conf"
  absent grep -E '127\.0\.0\.53|^search \.$' "$work/resolv.conf"
}

rules_come_back_after_a_flush() {
  inside 1 systemctl restart nftables
  eventually asks web1 http://web/
}

a_policy_of_drop_cuts_nobody_off() {
  local number
  for number in $(seq "$machines"); do inside "$number" 'iptables -P FORWARD DROP; iptables -P INPUT ACCEPT'; done
  eventually asks web1 http://web/
  for number in $(seq "$machines"); do inside "$number" 'iptables -P FORWARD ACCEPT'; done
}

a_restart_keeps_containers() {
  local before after
  before=$(kubectl get pod web1 -o 'jsonpath={.status.containerStatuses[0].containerID}')
  inside 1 systemctl restart ferry
  eventually node_ready 1
  eventually asks web1 http://127.0.0.1/
  after=$(kubectl get pod web1 -o 'jsonpath={.status.containerStatuses[0].containerID}')
  test "$before" = "$after"
}

everything_is_back_after_a_reboot() {
  reboot 1
  eventually node_ready 1
  eventually asks web1 http://127.0.0.1/
  pods_reach_each_other
}

# limits SLICE : what the kernel holds a burstable pod and its containers to.
limits() {
  local file files=""
  for file in cpu.max cpu.weight memory.max memory.min memory.low memory.high memory.swap.max pids.max 'hugetlb.*.max' cpuset.cpus; do files+=" --include='$file'"; done
  inside 1 "cd /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/$1 && grep -rs . . $files | sort"
}
# The scope of a pod's container.
scope_of() { echo "ferry-$(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].containerID}' | sed 's|.*//||').scope"; }

systemd_makes_control_groups() {
  local scope slice before file=/etc/ferry-kubelet.yaml
  inside 1 "printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n' >$file; cp /etc/default/ferry /etc/default/ferry.before; sed -i 's|\"\$| --kubelet-config $file\"|' /etc/default/ferry"
  # Pods run in the groups of the other driver.
  inside 1 systemctl restart ferry
  eventually inside 1 'journalctl -u ferry --since -5min | grep "before cgroupDriver is changed"'
  inside 1 ferry down
  inside 1 systemctl start ferry
  eventually node_ready 1
  kubectl "run sliced --image=nginx:1.25 --overrides='{\"spec\":{\"nodeName\":\"m1\",\"terminationGracePeriodSeconds\":1,\"containers\":[{\"name\":\"sliced\",\"image\":\"nginx:1.25\",\"resources\":{\"requests\":{\"cpu\":\"100m\",\"memory\":\"32Mi\"},\"limits\":{\"cpu\":\"255m\",\"memory\":\"64Mi\"}}}]}}'"
  running sliced
  scope=$(scope_of sliced)
  slice="kubepods-burstable-pod$(kubectl get pod sliced -o 'jsonpath={.metadata.uid}' | tr - _).slice"
  inside 1 "systemctl show -p Slice -p Delegate -p MemoryMax -p CPUQuotaPerSecUSec $scope" >"$work/scope"
  grep -qx "Slice=$slice" "$work/scope"; grep -qx Delegate=yes "$work/scope"
  grep -qx MemoryMax=67108864 "$work/scope"; grep -qx CPUQuotaPerSecUSec=260ms "$work/scope"
  inside 1 "systemctl show -p MemoryMax --value $slice" | grep -qx 67108864
  before=$(limits "$slice"); grep -q "$scope/cpu.max:26000 100000" <<<"$before"; grep -q "$scope/memory.max:67108864" <<<"$before"
  inside 1 systemctl daemon-reload
  diff <(echo "$before") <(limits "$slice")
  # A resize reaches systemd too.
  kubectl "patch pod sliced --subresource resize -p '{\"spec\":{\"containers\":[{\"name\":\"sliced\",\"resources\":{\"limits\":{\"cpu\":\"300m\"}}}]}}'"
  eventually inside 1 "systemctl show -p CPUQuotaPerSecUSec --value $scope | grep -qx 300ms && systemctl daemon-reload && grep -qx '30000 100000' /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/$slice/$scope/cpu.max"
  # The unit's restart leaves containers alone.
  inside 1 systemctl restart ferry
  eventually node_ready 1
  test "$(scope_of sliced)" = "$scope"
  inside 1 systemctl is-active "$scope"
  # Who stops a scope stops a container, which the kubelet starts again.
  inside 1 systemctl stop "$scope"
  eventually another_scope sliced "$scope"
  running sliced
  kubectl delete pod sliced --wait=true
  eventually inside 1 "! systemctl list-units --all --plain --no-legend | grep -F $slice"
  absent inside 1 'systemctl list-units --all --failed --plain --no-legend | grep -E "kubepods|ferry-"'
  inside 1 'ferry down; mv /etc/default/ferry.before /etc/default/ferry; test ! -e /sys/fs/cgroup/kubepods.slice && systemctl start ferry'
  eventually node_ready 1
}
another_scope() { test "$(scope_of "$1")" != "$2"; }

# Objects are created one after the other, each acknowledged to the host, until the power is cut.
nothing_acknowledged_is_lost_by_a_power_cut() {
  local writer said="$work/acknowledged"
  inside 1 'n=0; while n=$((n + 1)); do ferry kubectl --kubeconfig /var/lib/ferry/kubeconfig create configmap power-$n; done' >"$said" 2>/dev/null &
  writer=$!
  sleep 25
  power_off 1; wait "$writer" || true
  test "$(wc -l <"$said")" -gt 0
  boot 1; reachable 1
  eventually node_ready 1
  kubectl get configmaps -o name >"$work/there"
  local missing; missing=$(sed -n 's/^\(configmap\/[^ ]*\) created$/\1/p' "$said" | grep -vxF -f "$work/there" || true)
  echo "$(wc -l <"$said") were acknowledged; missing: $missing" | tee -a "$work/notes"
  test -z "$missing"
  eventually asks web1 http://127.0.0.1/
}

leaving_leaves_nothing() {
  local number=$1
  inside "$number" "ferry leave --force --delete-emptydir-data --kubeconfig /dev/null" || inside "$number" 'ferry leave --force'
  absent kubectl get node "m$number"
  absent inside "$number" 'ip link | grep -E "ferry|wg"'
  absent inside "$number" 'nft list tables | grep ferry'
  absent inside "$number" 'grep -E "/var/lib/ferry|/run/ferry" /proc/mounts'
  absent inside "$number" 'ls -d /sys/fs/cgroup/ferry'
}

down_is_not_undone_and_leaves_nothing() {
  inside 1 ferry down --purge
  inside 1 'sleep 5; ! systemctl is-active ferry'
  absent inside 1 'ip link | grep ferry'
  absent inside 1 'nft list tables | grep ferry'
  absent inside 1 'grep -E "/var/lib/ferry|/run/ferry" /proc/mounts'
  absent inside 1 'ls -d /sys/fs/cgroup/ferry'
}

run_checks() {
  local number
  check "control groups v2 alone, AppArmor, systemd, systemd-resolved" a_stock_machine
  check "a server runs as a unit of systemd" prepare the_server_is_a_unit
  for number in $(seq 2 "$machines"); do check "machine $number joins, and goes on as a unit of systemd" prepare a_machine_joins_and_is_a_unit "$number"; done
  check "pods run on every machine" prepare pods_run_on_every_machine
  check "pods reach each other by address and by the Service's name" pods_reach_each_other
  [ "$machines" = 1 ] || check "WireGuard is the kernel's" wireguard_is_the_kernels
  check "pods do not get systemd-resolved's address" pods_do_not_get_the_stub_resolver
  check "rules come back when nftables is restarted" rules_come_back_after_a_flush
  check "a FORWARD policy of DROP cuts no pod off" a_policy_of_drop_cuts_nobody_off
  check "a restart of the unit keeps containers" a_restart_keeps_containers
  check "systemd makes the control groups, and knows their limits" systemd_makes_control_groups
  check "everything is back after a reboot" everything_is_back_after_a_reboot
  check "nothing acknowledged is lost by a power cut" nothing_acknowledged_is_lost_by_a_power_cut
  [ "$machines" = 1 ] || check "a node that leaves leaves nothing" leaving_leaves_nothing "$machines"
  check "ferry down is not undone and leaves nothing" down_is_not_undone_and_leaves_nothing
}
