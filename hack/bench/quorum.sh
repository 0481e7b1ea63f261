# Three servers on three etcd members, beside etcd itself and, with UPSTREAM=path of a kube-apiserver, beside three of those on the same members.
peers= ; for member in 0 1 2; do peers="$peers${peers:+,}m$member=http://127.0.0.1:1848$member"; done
endpoints=http://127.0.0.1:18490,http://127.0.0.1:18491,http://127.0.0.1:18492
members=() servers=()
# The members first: waiting for no server in particular is waiting for all that this shell started.
trap 'kill -9 "${members[@]}" "${servers[@]}" 2>/dev/null || true; wait' EXIT
member() { # NUMBER : starts it, anew or again
  local client="http://127.0.0.1:1849$1" peer="http://127.0.0.1:1848$1"
  etcd --name "m$1" --data-dir "$work/etcd-$1" --listen-client-urls "$client" --advertise-client-urls "$client" --listen-peer-urls "$peer" \
    --initial-advertise-peer-urls "$peer" --initial-cluster "$peers" --quota-backend-bytes 8000000000 >"$work/etcd-$1.log" 2>&1 &
  members[$1]=$!
}
say "three etcd members, each with a folder of its own on the same disk: $(etcd --version | head -n 1)"
for number in 0 1 2; do member $number; done
healthy() { curl -sf "http://127.0.0.1:1849$1/health" | grep -q true; }
for number in 0 1 2; do until healthy $number; do sleep 0.1; done; done
# The number of the member that leads, by what each says of itself.
leader() {
  local number
  for number in 0 1 2; do
    if curl -sf -X POST -d '{}' "http://127.0.0.1:1849$number/v3/maintenance/status" |
      python3 -c 'import json, sys; s = json.load(sys.stdin); sys.exit(s["header"]["member_id"] != s.get("leader"))' 2>/dev/null; then echo $number; return; fi
  done
}
printf '%s\n' 'bench-token,admin,1,"system:masters"' >"$work/tokens"
openssl genrsa -out "$work/sa.key" 2048 2>/dev/null; openssl rsa -in "$work/sa.key" -pubout -out "$work/sa.pub" 2>/dev/null

# Each starts a server on the port and leaves its process in `servers`.
ferry_server() {
  "$ferry" apiserver --data-dir "$work/server-$1" --etcd-servers "$endpoints" --bind-address 127.0.0.1 --secure-port "$1" \
    --token-auth-file "$work/tokens" --disable-admission-plugins ServiceAccount >"$work/server-$1.log" 2>&1 &
  servers+=($!)
}
upstream_server() {
  "$UPSTREAM" --etcd-servers "$endpoints" --etcd-prefix /upstream --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port "$1" \
    --cert-dir "$work/upstream-$1" --token-auth-file "$work/tokens" --authorization-mode RBAC --service-cluster-ip-range 10.96.0.0/16 \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$work/sa.pub" --service-account-signing-key-file "$work/sa.key" \
    --endpoint-reconciler-type none --disable-admission-plugins ServiceAccount >"$work/upstream-$1.log" 2>&1 &
  servers+=($!)
}
# three NAME STARTER PORT : three servers on the port and the two after it, started one after the other, then the load, then a failover.
three() {
  local name=$1 starter=$2 first=$3 number port addresses= share=()
  servers=()
  for number in 0 1 2; do
    port=$((first + number)); addresses="$addresses${addresses:+,}127.0.0.1:$port"
    local begin; begin=$(now)
    "$starter" $port
    until curl -skf -o /dev/null -H 'Authorization: Bearer bench-token' "https://127.0.0.1:$port/readyz"; do
      kill -0 "${servers[$number]}" 2>/dev/null || { tail -n 5 "$work"/*"-$port.log" >&2; fail "a server ended"; }
      sleep 0.02
    done
    line "$name: server $((number + 1)) of 3, start to ready" ms "$(since "$begin")"
  done
  "$examples/load" --server "$addresses" --token bench-token --connections 32 --count 5000 | sed "s/\"what\":\"/&$name: /" | tee -a "$work/lines"
  for number in 0 1 2; do line "$name: server $((number + 1)) of 3, after the load" $(memory "${servers[$number]}"); done
  share=("127.0.0.1:$first" "127.0.0.1:$((first + 1))" "127.0.0.1:$((first + 2))")
  # The member that leads is killed in the middle; a bystander reads from each server all the time, each time anew.
  lost=$(leader)
  python bystander "$name: a bystander's read while etcd's leader is killed" 12 "${members[$lost]}" "${share[@]}" | tee -a "$work/lines"
  member "$lost"; until healthy "$lost"; do sleep 0.1; done
  end "${servers[@]}"; servers=()
}
# In turn, twice: a disk's mood changes within a run.
for round in 1 2; do
  say "etcd itself, round $round"
  "$examples/puts" "$endpoints" 32 5000 | tee -a "$work/lines"
  say "three of Ferry's servers"
  three "ferry on etcd" ferry_server $((18500 + round * 10))
  if [ -n "${UPSTREAM:-}" ]; then
    say "three of upstream's"
    three "upstream on etcd" upstream_server $((18600 + round * 10))
  fi
done
[ -n "${UPSTREAM:-}" ] || say "no kube-apiserver beside them: UPSTREAM=path of one"
