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
"$ferry" kubectl --kubeconfig "$alone" create -f - <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bench"}}' >/dev/null
"$ferry" kubectl --kubeconfig "$alone" patch node bench --subresource status --type merge -p "{\"status\": {\"addresses\": [{\"type\": \"InternalIP\", \"address\": \"$address\"}]}}" >/dev/null
# At once, as Ferry does; it waits a second when not told otherwise.
services kube-proxy "$suite/bin/kube-proxy" --kubeconfig "$alone" --proxy-mode nftables --hostname-override bench --cluster-cidr 10.244.0.0/16 \
  --nftables-min-sync-period 0s --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s
