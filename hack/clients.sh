#!/usr/bin/env bash
# Other people's clients against `ferry apiserver` alone: kubectl, the Python client and the one for Node.
#   hack/clients.sh            all of them
#   hack/clients.sh kubectl    one of them: kubectl, python or node
. "$(dirname "$0")/common.sh"
export PATH="$cache:$PATH"
cd "$top"
clients=$cache/clients
port=${FERRY_CLIENTS_PORT:-17444}
start_apiserver "$port"
cat >"$work/config" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: ferry, cluster: {server: "https://127.0.0.1:$port", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admintoken}}, {name: bob, user: {token: bobtoken}}]
contexts: [{name: admin, context: {cluster: ferry, user: admin}}, {name: bob, context: {cluster: ferry, user: bob}}]
current-context: admin
YAML
export KUBECONFIG=$work/config WORK=$work
run() {
  case $1 in
    kubectl) bash "$top/hack/clients/kubectl.sh" ;;
    python) if [ -x "$clients/python/bin/python" ]; then "$clients/python/bin/python" "$top/hack/clients/python.py"; else say "skipped: no Python client"; return; fi ;;
    node) if [ -d "$clients/node/node_modules" ]; then cp "$top/hack/clients/node.mjs" "$clients/node/run.mjs"; node "$clients/node/run.mjs"; else say "skipped: no client for Node"; return; fi ;;
    *) fail "no such client: $1" ;;
  esac || { tail -n 20 "$work/log"; fail "$1 found something wrong"; }
  say "$1: fine"
}
for client in ${1:-kubectl python node}; do run "$client"; done
