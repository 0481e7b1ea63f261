#!/usr/bin/env bash
# `make up`: from a fresh clone to three web servers answering behind a Service.
. "$(dirname "$0")/common.sh"
need_root
registry_port=${FERRY_REGISTRY_PORT:-5055}
trap 'printf "\nferry: interrupted; run make up again to go on\n" >&2; exit 130' INT TERM

say "1 of 5: what is needed (Debian packages; nothing outside $cache and the packages is changed)"
"$top/hack/setup.sh"

ferry="$CARGO_TARGET_DIR/release/ferry"
if [ -x "$ferry" ]; then say "2 of 5: building what changed"
else say "2 of 5: building Ferry: ten to twenty minutes on two cores the first time, seconds after that"; fi
(cd "$top" && cargo build --release -p ferry) || fail "the build failed; what cargo says is above"

say "3 of 5: a registry on 127.0.0.1:$registry_port with the example's images (waits until it answers)"
"$top/hack/registry.sh" start "$registry_port"

say "4 of 5: the cluster (waits until its node is Ready; log in /var/lib/ferry/ferry.log)"
"$ferry" up --registry-mirror "docker.io=http://127.0.0.1:$registry_port" --registry-mirror "registry.k8s.io=http://127.0.0.1:$registry_port"
export KUBECONFIG=/var/lib/ferry/kubeconfig

say "5 of 5: examples/nginx-demo.yaml (waits until its three pods are ready)"
if [ -x "$cache/kubectl" ]; then kubectl=("$cache/kubectl"); else kubectl=("$ferry" kubectl); fi
"${kubectl[@]}" apply -f "$top/examples/nginx-demo.yaml"
"${kubectl[@]}" rollout status deployment/nginx-demo --timeout=120s || { "$ferry" why deployment/nginx-demo || true; fail "the example is not ready after two minutes; why is said above"; }
"${kubectl[@]}" get nodes,deployments,pods,services,endpointslices -o wide
address=$("${kubectl[@]}" get service nginx-demo -o jsonpath='{.spec.clusterIP}')
say "twelve requests from this host to http://$address/, by the pod that answered"
for _ in $(seq 12); do curl -sf --max-time 5 "http://$address/"; done | sort | uniq -c
say "and six by name from inside a pod"
"${kubectl[@]}" exec deployment/nginx-demo -- sh -c 'for i in 1 2 3 4 5 6; do wget -qO- http://nginx-demo/; done' | sort | uniq -c
say "done. Use it with: export KUBECONFIG=$KUBECONFIG    Stop it with: make down"
on_path kubectl >/dev/null || say "there is no kubectl on the PATH; Ferry is one too: ln -s $ferry /usr/local/bin/kubectl"
