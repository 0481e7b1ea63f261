#!/usr/bin/env bash
# `make mirror UPSTREAM=path`: the same requests to a kube-apiserver and to Ferry, and where their answers differ.
#   SEED=1   other requests      N=200   so many objects are walked      KIND=Pod,Service   of these kinds only
#   FERRY=path   this program instead of a release build of the clone
. "$(dirname "$0")/common.sh"
cd "$top"
upstream=$(realpath "${UPSTREAM:?is the path of a kube-apiserver of v1.37}") && [ -x "$upstream" ] || fail "UPSTREAM=$UPSTREAM is no program"
if [ -n "${FERRY:-}" ]; then ferry=$(realpath "$FERRY"); [ -x "$ferry" ] || fail "FERRY=$FERRY is no program"
else cargo build --release -p ferry; ferry="$CARGO_TARGET_DIR/release/ferry"; fi
export PATH="$cache/etcd/usr/bin:$PATH"
on_path etcd >/dev/null || unpack_packages "$cache/etcd" etcd-server

work=$(mktemp -d "$cache/mirror-XXXXXX"); children=()
# Nothing of theirs is kept, so that nobody waits for them to come to an end.
trap 'kill -KILL "${children[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
umask 077
token=$(head -c 16 /dev/urandom | base64 | tr -d '/+=')
printf '%s,admin,admin,"system:masters"\n' "$token" >"$work/tokens.csv"
openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
openssl rsa -in "$work/accounts.key" -pubout -out "$work/accounts.pub" 2>/dev/null
theirs=${UPSTREAM_PORT:-17443} ours=${FERRY_PORT:-17444} client=17379 peer=17380
both=(--bind-address 127.0.0.1 --advertise-address 127.0.0.1 --service-cluster-ip-range 10.96.0.0/16 --token-auth-file "$work/tokens.csv")

say "starting etcd, kube-apiserver and ferry apiserver"
etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
  --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
  --initial-cluster "default=http://127.0.0.1:$peer" >"$cache/mirror-etcd.log" 2>&1 &
children+=($!)
"$upstream" "${both[@]}" --secure-port "$theirs" --etcd-servers "http://127.0.0.1:$client" --cert-dir "$work/upstream" \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$work/accounts.pub" \
  --service-account-signing-key-file "$work/accounts.key" --authorization-mode Node,RBAC --allow-privileged \
  --endpoint-reconciler-type none >"$cache/mirror-upstream.log" 2>&1 &
children+=($!)
"$ferry" apiserver "${both[@]}" --secure-port "$ours" --data-dir "$work/ferry" >"$cache/mirror-ferry.log" 2>&1 &
children+=($!)
TOKEN=$token PYTHONDONTWRITEBYTECODE=1 python3 hack/mirror/mirror.py "$theirs" "$ours" --seed "${SEED:-1}" --objects "${N:-200}" --kinds "${KIND:-}"
