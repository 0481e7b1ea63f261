# The service proxy beside upstream's kube-proxy.
. "$top/hack/bench/lib/wires.sh"
build_upstream kube-proxy
say "10,000 Services with 10 endpoints each"
fresh
alone "${inside[@]}"
script objects services 10000 10 "$alone"
services() { # NAME COMMAND... : a proxy that is started, measured and stopped
  local name=$1; shift
  "${inside[@]}" "$@" >"$folder/$name.log" 2>&1 &
  proxy=$!
  script endpoint "$name" "$proxy" "$alone" | tee -a "$work/lines"
  line "service proxy with 10,000 Services, $name" $(memory $proxy)
  end $proxy; proxy=
  "${inside[@]}" nft flush ruleset
}
services ferry "$ferry" proxy --kubeconfig "$alone" --hostname-override bench
"${inside[@]}" "$ferry" kubectl --kubeconfig "$alone" create -f - <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bench"}}' >/dev/null
"${inside[@]}" "$ferry" kubectl --kubeconfig "$alone" patch node bench --subresource status --type merge -p "{\"status\": {\"addresses\": [{\"type\": \"InternalIP\", \"address\": \"$address\"}]}}" >/dev/null
# At once, as Ferry does: it waits a second when not told otherwise.
cat >"$folder/kube-proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.244.0.0/16
hostnameOverride: bench
clientConnection: {kubeconfig: $alone}
nftables: {minSyncPeriod: 0s}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
YAML
services kube-proxy "$suite/bin/kube-proxy" --config "$folder/kube-proxy.yaml"
