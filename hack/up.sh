#!/usr/bin/env bash
# `make up`: from a fresh clone to three web servers answering behind a Service.
. "$(dirname "$0")/common.sh"
need_root
port=${FERRY_REGISTRY_PORT:-5055}
"$top/hack/setup.sh"
say "building ferry"
cargo build --release --quiet -p ferry
ferry="$CARGO_TARGET_DIR/release/ferry"
"$top/hack/registry.sh" start "$port"
say "starting the cluster"
"$ferry" up --registry-mirror "docker.io=http://127.0.0.1:$port" --registry-mirror "registry.k8s.io=http://127.0.0.1:$port"
export KUBECONFIG=/var/lib/ferry/kubeconfig
kubectl="$cache/kubectl"
say "deploying examples/nginx-demo.yaml"
"$kubectl" apply -f "$top/examples/nginx-demo.yaml"
"$kubectl" rollout status deployment/nginx-demo --timeout=120s
"$kubectl" get nodes,deployments,pods,services,endpointslices -o wide
address=$("$kubectl" get service nginx-demo -o jsonpath='{.spec.clusterIP}')
say "twelve requests from this host to http://$address/, by the pod that answered"
for _ in $(seq 12); do curl -sf --max-time 5 "http://$address/"; done | sort | uniq -c
say "and by name from inside a pod"
"$kubectl" exec deployment/nginx-demo -- sh -c 'for i in 1 2 3 4 5 6; do wget -qO- http://nginx-demo/; done' | sort | uniq -c
say "done. Use it with: export KUBECONFIG=$KUBECONFIG    Stop it with: make down"
