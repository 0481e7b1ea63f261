#!/usr/bin/env bash
# Checks what is needed, all of it at once, and installs what is missing from Debian's packages; what is there stays as it is.
#   hack/setup.sh          what `make up` needs
#   hack/setup.sh --test   and what the tests need
#   hack/setup.sh --check  only says what is missing
. "$(dirname "$0")/common.sh"
mode=${1:-}

# A node: packet rules and the network of its pods. A build: a C compiler and make, which the allocator and the cryptography library want.
packages=(nftables iproute2 curl ca-certificates)
on_path cc gcc clang >/dev/null || packages+=(gcc)
[ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
on_path make >/dev/null || packages+=(make)
[ "$mode" = --test ] && packages+=(containerd runc python3 python3-venv iputils-ping containernetworking-plugins iptables libfaketime procps chromium)

rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml")
rust_problem() {
  on_path cargo >/dev/null || { echo "there is no Rust toolchain on the PATH; install Rust $rust_needed or newer (rustup.rs)"; return; }
  local have; have=$(cd "$top" && rustc --version 2>/dev/null | cut -d' ' -f2)
  printf '%s\n%s\n' "$rust_needed" "${have:-0}" | sort -C -V || echo "Rust ${have:-of an unknown version} is too old; Ferry needs $rust_needed or newer (rustup update)"
}
# A release build takes 3 GB, the tests' build 12 GB.
room_problem() {
  local wanted=6 profile=release free
  if [ "$mode" = --test ]; then wanted=16 profile=debug; fi
  # Most of it is there after the first time.
  if [ -d "$CARGO_TARGET_DIR/$profile" ]; then wanted=2; fi
  free=$(df -BG --output=avail "$cache" | tail -n 1 | tr -dc 0-9)
  [ "$free" -ge "$wanted" ] || echo "$cache has $free GB of free disk, and this takes $wanted GB; free some, or set FERRY_CACHE to a folder elsewhere"
}
missing=(); for name in "${packages[@]}"; do is_installed "$name" || missing+=("$name"); done
problems=()
problem=$(rust_problem); [ -z "$problem" ] || problems+=("$problem")
problem=$(room_problem); [ -z "$problem" ] || problems+=("$problem")
if [ ${#missing[@]} -gt 0 ]; then
  command="apt-get install --no-install-recommends ${missing[*]}"
  if [ "$mode" = --check ]; then problems+=("these packages are missing: ${missing[*]}; install them with: $command")
  elif ! on_path apt-get >/dev/null; then problems+=("these programs are missing, and this is no Debian that they could be installed on: ${missing[*]}")
  elif [ "$(id -u)" != 0 ]; then problems+=("these packages are missing, and only root can install them: ${missing[*]}; run this with sudo, or as root: $command"); fi
fi
if [ ${#problems[@]} -gt 0 ]; then printf 'ferry: %s\n' "${problems[@]}" >&2; exit 1; fi
[ "$mode" = --check ] && exit 0

install_packages "${packages[@]}"

# kubectl: the one on the PATH if it is recent enough, else one built from the Go module proxy. `make up` makes do with Ferry's own.
kubectl_minor() { "$1" version --client -o json 2>/dev/null | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p' | head -n 1; }
ensure_kubectl() {
  local have; have=$(on_path kubectl || true)
  if [ -n "$have" ] && [ "$(kubectl_minor "$have")" -ge 32 ] 2>/dev/null; then ln -sfn "$have" "$cache/kubectl"; return; fi
  [ -x "$cache/kubectl" ] && [ ! -L "$cache/kubectl" ] && return
  rm -f "$cache/kubectl"
  if [ "$mode" != --test ] && ! on_path go >/dev/null; then return; fi
  build_kubectl "$cache/kubectl" || say "tests that need kubectl are skipped"
}
ensure_kubectl

unpack_packages "$cache/registry" docker-registry
unpack_packages "$cache/busybox" busybox-static
unpack_packages "$cache/base" busybox libc6 libcrypt1
unpack_packages "$cache/nginx" nginx nginx-common libpcre2-8-0 libssl3 zlib1g
if [ "$mode" = --test ]; then
  unpack_packages "$cache/etcd" etcd-server
  # Other people's clients, from where their package managers find them. Without them their part of the test is skipped.
  mkdir -p "$cache/clients"
  if [ ! -x "$cache/clients/python/bin/python" ]; then
    say "installing the Python client"
    python_venv "$cache/clients/python" kubernetes || say "no Python client; see $cache/clients/python.log"
  fi
  if [ ! -d "$cache/clients/node/node_modules" ] && on_path npm >/dev/null; then
    say "installing the client for Node"
    mkdir -p "$cache/clients/node"
    # Its second major version needs a Node of 22 or newer.
    wanted=@kubernetes/client-node; [ "$(node -p 'parseInt(process.versions.node)')" -ge 22 ] || wanted=$wanted@1
    (cd "$cache/clients/node" && npm install --no-fund --no-audit --silent "$wanted") >"$cache/clients/node.log" 2>&1 \
      || say "no client for Node; see $cache/clients/node.log"
  fi
fi
