# The network of a pod and its policies, in the process; a pod beside Debian's plug-in `bridge`.
install_packages containernetworking-plugins
. "$top/hack/bench/lib/wires.sh"
say "the network of a pod"
fresh; "${inside[@]}" "$examples/attach" "$folder/attach" 100 | tee -a "$work/lines"
ln -sf "$ferry" "$folder/ferry-cni"
printf '{"cniVersion":"1.0.0","name":"a","type":"ferry-cni","bridge":"pods0","ranges":["10.244.0.0/20"],"state":"%s","nft":"nft"}' "$folder/program" >"$folder/ferry.json"
printf '{"cniVersion":"1.0.0","name":"b","type":"bridge","bridge":"pods1","isGateway":true,"hairpinMode":true,"ipam":{"type":"host-local","subnet":"10.245.0.0/20","dataDir":"%s"}}' "$folder/host-local" >"$folder/bridge.json"
script attach "$folder/ferry-cni" "$folder/ferry.json" 50 | tee -a "$work/lines"
script attach /usr/lib/cni/bridge "$folder/bridge.json" 50 | tee -a "$work/lines"

say "10,000 policies, 10,000 pods"
for here in 110 10000; do
  fresh; ip -n "$net" link add br0 type bridge; ip -n "$net" link set br0 up
  "${inside[@]}" "$examples/policies" br0 "$here" | tee -a "$work/lines"
done
