#!/usr/bin/env bash
# `make bench`: figures of this machine, as JSON lines; nothing is asserted.
#   PART="gate node"   only these parts; all of hack/bench/*.sh in the order below when not given
#   KEEP=1             the folder with the logs stays
#   FERRY=path         this program instead of a release build of the clone, with the examples of EXAMPLES=folder
# docs/benchmarks.md has the figures of the last runs, with what was aimed at.
. "$(dirname "$0")/common.sh"
need_root
cd "$top"
parts=${PART:-store api quorum hand gate routes wires services dns fleet node controllers console scheduler}
for part in $parts; do [ -f "hack/bench/$part.sh" ] || fail "there is no part '$part' of the bench; there are: $(cd hack/bench && echo *.sh | sed 's/\.sh//g')"; done
"$top/hack/setup.sh" --test
export PATH="$cache/etcd/usr/bin:$PATH"
if [ -n "${FERRY:-}" ]; then
  ferry=$(realpath "$FERRY"); [ -x "$ferry" ] || fail "FERRY=$FERRY is no program"
else
  say "building"
  cargo build --release --quiet -p ferry -p ferry-bridge -p ferry-policy -p ferry-store --bin ferry --example load --example controllers --example attach --example policies --example puts
  ferry="$CARGO_TARGET_DIR/release/ferry"
fi
examples=${EXAMPLES:-$(dirname "$ferry")/examples}
kubectl="$cache/kubectl"
# Short: sockets lie below it.
work=$(mktemp -d /tmp/ferry-bench-XXXX)
trap '[ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
touch "$work/lines"
export PYTHONDONTWRITEBYTECODE=1

now() { date +%s%N; }
since() { echo $((($(now) - $1) / 1000000)); }
# line WHAT NAME FIGURE [NAME FIGURE]... : a line of JSON.
line() {
  local text="{\"what\":\"$1\""; shift
  while [ $# -gt 0 ]; do text="$text,\"$1\":$2"; shift 2; done
  echo "$text}" | tee -a "$work/lines"
}
# memory PID : for `line`; what is not anonymous is mostly the program itself, which all its processes share.
memory() { awk '/^VmRSS/ {printf "rss_mb %.1f ", $2 / 1024} /^RssAnon/ {printf "anonymous_mb %.1f", $2 / 1024}' "/proc/$1/status"; }
resident() { awk '/^VmRSS/ {printf "%.1f", $2 / 1024}' "/proc/$1/status"; }
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
# share TICKS SECONDS : in percent of a core.
share() { awk -v t="$1" -v s="$2" -v h="$(getconf CLK_TCK)" 'BEGIN {printf "%.2f", t / h / s * 100}'; }
# processor WHAT PID SECONDS : what a process uses in that time.
processor() { local before; before=$(ticks "$2"); sleep "$3"; line "$1" cpu_percent "$(share $(($(ticks "$2") - before)) "$3")"; }
# end PID... : and waits for those that this shell started.
end() { kill "$@" 2>/dev/null || true; wait "$@" 2>/dev/null || true; }
python() { python3 -u "$top/hack/bench/$1.py" "${@:2}"; }

# alone [WORD...] : an API server alone on port 18443, run by these words, for example in a namespace; sets $server and $alone, a kubeconfig.
alone() {
  local folder="$work/api$RANDOM"
  alone="$folder.kubeconfig"
  printf '%s\n' 'bench-token,admin,1,"system:masters"' >"$work/tokens"
  cat >"$alone" <<KUBECONFIG
{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
 "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:18443", "certificate-authority": "$folder/pki/ca.crt"}}],
 "users": [{"name": "u", "user": {"token": "bench-token"}}]}
KUBECONFIG
  "$@" "$ferry" apiserver --data-dir "$folder" --bind-address 127.0.0.1 --secure-port 18443 --token-auth-file "$work/tokens" \
    --disable-admission-plugins ServiceAccount >"$folder.log" 2>&1 &
  server=$!
  until "$@" curl -skf -o /dev/null https://127.0.0.1:18443/readyz; do
    kill -0 $server 2>/dev/null || { tail -n 5 "$folder.log" >&2; fail "the API server ended"; }
    sleep 0.005
  done
}

# A cluster on this machine that is in nobody's way; `cluster_flags` are those of `ferry up`.
registry_port=${FERRY_BENCH_REGISTRY_PORT:-5058}
mirrors=(--registry-mirror "docker.io=http://127.0.0.1:$registry_port" --registry-mirror "registry.k8s.io=http://127.0.0.1:$registry_port")
run=/run/ferry-bench
cluster_flags=(--data-dir "$work/cluster" --run-dir "$run" --secure-port 18444 --kubelet-port 28250 --dns-port 28053 --cluster-cidr 10.212.0.0/14
  --service-cluster-ip-range 10.210.0.0/16 --bridge ferrybench0 --cgroup-root /ferrybench "${mirrors[@]}")
cluster_down() { "$ferry" down --data-dir "$work/cluster" --run-dir "$run" --purge >/dev/null; }

for part in $parts; do
  # Each in a shell of its own: what it started ends with it.
  (. "$top/hack/bench/$part.sh")
done

# Upstream's figures were recorded earlier on another 2-core machine: kube-apiserver v1.37 with etcd, and the whole of its node.
say "beside upstream's, recorded earlier on another machine"
printf '%-40s %-12s %10s %10s\n' figure unit ferry upstream
while IFS='|' read -r what unit upstream; do
  value=$(sed -n "s/^{\"what\":\"$what\",.*\"$unit\":\([0-9.]*\).*/\1/p" "$work/lines" | tail -1)
  [ -z "$value" ] || printf '%-40s %-12s %10s %10s\n' "$what" "$unit" "$value" "$upstream"
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
start to node Ready, embedded|ms|3200
apply to three Ready, embedded|p50_ms|1100
cluster with three pods, embedded|ferry_rss_mb|686
TABLE
