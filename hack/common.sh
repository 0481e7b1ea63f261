# Shared by the scripts of this folder: where things are kept, and Debian packages by name.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${FERRY_CACHE:-$HOME/.cache/ferry}
mkdir -p "$cache"

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
fail() { printf 'ferry: %s\n' "$*" >&2; exit 1; }

need_root() { [ "$(id -u)" = 0 ] || fail "this needs root for packages, namespaces and packet rules; run it with sudo"; }

apt_updated=
apt_update() {
  [ -n "$apt_updated" ] && return
  apt-get update -qq || fail "apt-get update failed; is the package mirror reachable?"
  apt_updated=yes
}

# install_packages NAME... : installs what is not installed yet.
install_packages() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing+=("$name")
  done
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

# start_apiserver PORT : an API server alone, in $work/data, with the tokens of admin and bob; ends with the script.
start_apiserver() {
  cargo build --quiet -p ferry
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
