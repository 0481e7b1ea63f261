#!/usr/bin/env bash
# What people do with kubectl all day. Every line must succeed, and say what is expected.
set -euo pipefail
export KUBE_EDITOR='sed -i s/replicas:.2/replicas:\ 4/' EDITOR=sed
expect() { # expect WANT COMMAND...: the output holds WANT
  local want=$1 got; shift
  got=$("$@" 2>&1) || { echo "failed: $*"; echo "$got"; exit 1; }
  case $got in *"$want"*) ;; *) echo "wanted '$want' from: $*"; echo "$got"; exit 1 ;; esac
}
cat >"$WORK/web.yaml" <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "nginx:1", ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: "1"}
YAML
expect 'deployment.apps/web created' kubectl apply -f "$WORK/web.yaml"
expect 'deployment.apps/web unchanged' kubectl apply -f "$WORK/web.yaml"
sed -i 's/replicas: 1/replicas: 2/; s/nginx:1/nginx:2/' "$WORK/web.yaml"
# diff ends with 1 when there is a difference.
expect '+  replicas: 2' bash -c 'kubectl diff -f "$WORK/web.yaml" || [ $? = 1 ]'
expect 'deployment.apps/web configured' kubectl apply -f "$WORK/web.yaml"
expect 'web' kubectl get deployments
expect 'nginx:2' kubectl get deployments -o wide
expect 'image: nginx:2' kubectl get deployment web -o yaml
expect 'nginx:2' kubectl get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image}'
expect 'IMAGE' kubectl get deployment web -o custom-columns=NAME:.metadata.name,IMAGE:.spec.template.spec.containers[0].image
expect 'deployment.apps/web' kubectl get deployments,configmaps -l app=web -o name
expect 'StrategyType' kubectl describe deployment web
expect 'maxSurge' kubectl explain deployment.spec --recursive
expect 'Number of desired pods' kubectl explain deployment.spec.replicas
expect 'edited' kubectl edit deployment web
expect '4' kubectl get deployment web -o 'jsonpath={.spec.replicas}'
expect 'labeled' kubectl label deployment web tier=front
expect 'unlabeled' kubectl label deployment web tier-
expect 'annotated' kubectl annotate deployment web note=hello
expect 'patched' kubectl patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"b"}]}]}}}}'
expect 'patched' kubectl patch deployment web --type merge -p '{"spec":{"minReadySeconds":3}}'
expect 'patched' kubectl patch deployment web --type json -p '[{"op":"replace","path":"/spec/minReadySeconds","value":4}]'
expect 'patched' kubectl patch deployment web --subresource status --type merge -p '{"status":{"observedGeneration":1}}'
expect 'scaled' kubectl scale deployment web --replicas 3
expect 'serverside-applied' kubectl apply --server-side --force-conflicts -f "$WORK/web.yaml"
expect 'condition met' kubectl wait --for=jsonpath='{.spec.replicas}'=2 deployment/web --timeout=10s
expect 'created' kubectl create configmap more --from-literal=k=v
expect 'replaced' bash -c 'kubectl create configmap more --from-literal=k=w --dry-run=client -o yaml | kubectl replace -f -'
expect 'created (server dry run)' kubectl create configmap never --dry-run=server
expect 'deployments' kubectl api-resources --api-group=apps
expect 'apps/v1' kubectl api-versions
expect 'yes' kubectl auth can-i create pods
expect 'no' bash -c '[ "$(kubectl --context bob auth can-i create pods)" = no ] && echo no'
expect 'admin' kubectl auth whoami
expect 'ADDED' bash -c "kubectl get configmap settings -o json --watch --output-watch-events --request-timeout=1s || true"
# No controller runs here, so that there are no revisions.
expect 'no rollout history found' bash -c '! kubectl rollout undo deployment/web'
expect 'Server Version' kubectl version
expect 'deleted' kubectl delete -f "$WORK/web.yaml" --wait=false
expect 'created' kubectl create namespace other
expect 'created' kubectl -n other create serviceaccount robot
expect 'created' kubectl -n other create role reader --verb=get,list --resource=pods
expect 'created' kubectl -n other create rolebinding read --role=reader --serviceaccount=other:robot
expect 'yes' kubectl auth can-i list pods -n other --as system:serviceaccount:other:robot
expect 'ey' kubectl -n other create token robot
