#!/usr/bin/env bash
# Installs what a node needs from Debian's packages; what is there stays as it is.
#   hack/setup.sh          what `make up` needs
#   hack/setup.sh --test   and what the tests need
. "$(dirname "$0")/common.sh"

install_packages containerd runc containernetworking-plugins nftables iproute2 iptables curl ca-certificates
command -v cargo >/dev/null || fail "no Rust toolchain: install one from rustup.rs, 1.95 or newer"
command -v cc >/dev/null || install_packages gcc libc6-dev
command -v cmake >/dev/null || install_packages cmake

# Debian's kubectl is too old for most of what kubectl does today.
kubectl_minor() { "$1" version --client -o json 2>/dev/null | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p' | head -n 1; }
ensure_kubectl() {
  local have; have=$(command -v kubectl || true)
  if [ -n "$have" ] && [ "$(kubectl_minor "$have")" -ge 32 ] 2>/dev/null; then ln -sfn "$have" "$cache/kubectl"; return; fi
  [ -x "$cache/kubectl" ] && [ ! -L "$cache/kubectl" ] && return
  command -v go >/dev/null || fail "no kubectl of 1.32 or newer on the PATH, and no Go toolchain to build one; put a kubectl on the PATH"
  say "building kubectl"
  local work; work=$(mktemp -d)
  cat >"$work/main.go" <<'GO'
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
GO
  (cd "$work" && go mod init kubectl && go get k8s.io/kubectl@latest && go mod tidy && go build -o "$cache/kubectl.new" .) >"$cache/kubectl.log" 2>&1 \
    || fail "could not build kubectl; see $cache/kubectl.log"
  rm -f "$cache/kubectl"; mv "$cache/kubectl.new" "$cache/kubectl"; rm -rf "$work"
}
ensure_kubectl

unpack_packages "$cache/registry" docker-registry
unpack_packages "$cache/busybox" busybox-static
unpack_packages "$cache/base" busybox libc6 libcrypt1
unpack_packages "$cache/nginx" nginx nginx-common libpcre2-8-0 libssl3 zlib1g
if [ "${1:-}" = --test ]; then
  unpack_packages "$cache/etcd" etcd-server
  # Other people's clients, from where their package managers find them. Without them their part of the test is skipped.
  if [ ! -x "$cache/clients/python/bin/python" ] && command -v python3 >/dev/null; then
    say "installing the Python client"
    { python3 -m venv "$cache/clients/python.new" && "$cache/clients/python.new/bin/pip" install --quiet --disable-pip-version-check kubernetes; } \
      >"$cache/clients-python.log" 2>&1 && mv "$cache/clients/python.new" "$cache/clients/python" || say "no Python client; see $cache/clients-python.log"
  fi
  if [ ! -d "$cache/clients/node/node_modules" ] && command -v npm >/dev/null; then
    say "installing the client for Node"
    mkdir -p "$cache/clients/node"
    # Its second major version needs a Node of 22 or newer.
    wanted=@kubernetes/client-node; [ "$(node -p 'parseInt(process.versions.node)')" -ge 22 ] || wanted=$wanted@1
    (cd "$cache/clients/node" && npm install --no-fund --no-audit --silent "$wanted") >"$cache/clients-node.log" 2>&1 \
      || say "no client for Node; see $cache/clients-node.log"
  fi
fi
