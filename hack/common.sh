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
