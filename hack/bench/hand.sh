# kubectl: Ferry's beside upstream's of the same version, or that of KUBECTL=path, against an API server alone.
upstream=${KUBECTL:-$cache/kubectl-$kubectl_version}
build_kubectl "$upstream" || fail "there is no upstream kubectl to compare with; see $cache/kubectl.log"
say "kubectl beside upstream's: $("$upstream" version --client | head -n 1)"
alone
trap 'end $server' EXIT
export KUBECONFIG="$alone" HOME="$work/home"; mkdir -p "$HOME"
both() { # WHAT ROUNDS WORD... ; @ in a word is `ferry` or `upstream`
  local what=$1 rounds=$2 words; shift 2
  words=("${@//@/ferry}"); python timed "$what, ferry" "$rounds" "$ferry" kubectl "${words[@]}" | tee -a "$work/lines"
  words=("${@//@/upstream}"); python timed "$what, upstream" "$rounds" "$upstream" "${words[@]}" | tee -a "$work/lines"
}
python objects pods 10 "$alone" few
# Discovery is on the disk from here on, as it is for users.
"$ferry" kubectl get pods >/dev/null; "$upstream" get pods >/dev/null
both "get pods" 20 get pods
both "version --client" 20 version --client
for count in 1 1000; do
  for who in ferry upstream; do python objects manifest "$count" "$who" >"$work/$who-$count.yaml"; done
done
both "apply of 1,000 new ConfigMaps" 1 apply -f "$work/@-1000.yaml"
both "apply of one that is there" 10 apply -f "$work/@-1.yaml"
say "50,000 pods"
python objects pods 50000 "$alone" many
line "API server with 50,000 pods" $(memory $server)
both "get pods -A, 50,000 pods" 1 get pods -A
both "get pods -A -o json, 50,000 pods" 1 get pods -A -o json
say "1,000 ConfigMaps again: upstream's takes minutes"
both "server-side apply of the 1,000" 1 apply --server-side --force-conflicts -f "$work/@-1000.yaml"
both "apply of the same 1,000 again" 1 apply -f "$work/@-1000.yaml"
