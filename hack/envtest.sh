#!/usr/bin/env bash
# `make envtest`: the test suite of controller-runtime, from the Go module proxy, with Ferry in the place of kube-apiserver and etcd.
#   PACKAGES="./pkg/client/..."   these packages only      FERRY=path   this program instead of a release build of the clone
. "$(dirname "$0")/common.sh"
module=sigs.k8s.io/controller-runtime version=v0.25.2
cd "$top"
ensure_go || fail "there is no Go and none could be fetched; see $cache/go.venv.log"
if [ -n "${FERRY:-}" ]; then ferry=$(realpath "$FERRY"); [ -x "$ferry" ] || fail "FERRY=$FERRY is no program"
else cargo build --release -p ferry; ferry="$CARGO_TARGET_DIR/release/ferry"; fi

say "fetching $module $version"
source=$(go mod download -json "$module@$version" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
[ -d "$source" ] || fail "could not fetch $module@$version; check the network, then try again"
work=$(mktemp -d "$cache/envtest-XXXXXX"); trap 'rm -rf "$work"' EXIT
cp -r "$source" "$work/suite"; chmod -R u+w "$work/suite"
KUBEBUILDER_ASSETS=$("$ferry" envtest "$work/assets"); export KUBEBUILDER_ASSETS

say "running its tests (the first time builds them: minutes)"
status=0
(cd "$work/suite" && go test -p 1 -timeout 30m -json ${PACKAGES:-./pkg/...}) >"$cache/envtest.json" 2>"$cache/envtest.log" || status=$?
python3 - "$cache/envtest.json" <<'PY'
import collections, json, re, sys
specs, ended = collections.Counter(), {}
for line in open(sys.argv[1]):
    event = json.loads(line)
    found = re.search(r"-- .*?(\d+) Passed.*?(\d+) Failed", event.get("Output", "")) if event["Action"] == "output" else None
    if found: specs["passed"] += int(found[1]); specs["failed"] += int(found[2])
    if event["Action"] in ("pass", "fail") and "Test" not in event: ended[event["Package"]] = event["Action"]
for package, end in sorted(ended.items()):
    if end == "fail": print("failed:", package)
print(f"{specs['passed']} passed, {specs['failed']} failed")
PY
[ $status = 0 ] || say "what failed is in $cache/envtest.json"
exit $status
