# What a run came to: the table, the list of failures, and the page that keeps the last whole table. Sourced by conformance.sh.

describe_rung() {
  case $1 in
    1) echo 'the API server alone: definitions, policies, discovery, OpenAPI, authentication, kubectl' ;;
    2) echo '+ controllers: quota, namespaces, garbage collection, service accounts, endpoints' ;;
    3) echo '+ scheduler' ;;
    4a) echo '+ kubelet and runtime: containers, logs, exec, security contexts, resizing, Jobs' ;;
    4b) echo '+ volumes' ;;
    5) echo '+ pod network: probes, hooks, host ports, proxy through the API server, StatefulSets' ;;
    6) echo '+ Services and DNS' ;;
    7) echo '+ from the API server to pods: webhooks, conversion, aggregation' ;;
    *) echo "interest group $1" ;;
  esac
}

# last_outcomes : outcome, tries, rung and name of every test of this run's ladder; the last outcome counts.
last_outcomes() {
  awk -F '\t' '!ladder {outcome[$4] = $1; tries[$4]++; next} FNR > 1 {print ($3 in outcome ? outcome[$3] : "not run") "\t" tries[$3] + 0 "\t" $1 "\t" $3}' \
    "$results/outcomes.tsv" ladder=1 "$results/ladder.tsv"
}

# table : Markdown. Seconds are those of all runs of a rung, so that what was tried again shows.
table() {
  local rung
  echo '| rung | tests | passed | failed | skipped | not run | passed after a failure | seconds | needs |'
  echo '|---|---|---|---|---|---|---|---|---|'
  { for rung in $rungs; do printf 'needs\t%s\t%s\n' "$rung" "$(describe_rung "$rung")"; done
    sed 's/^/time\t/' "$results/seconds.tsv"
    last_outcomes | sed 's/^/test\t/'
  } | awk -F '\t' '
    $1 == "needs" {order[++n] = $2; needs[$2] = $3}
    $1 == "time" {time[$2] += $3}
    $1 == "test" {all[$4]++; is[$4, $2]++; if ($2 == "passed" && $3 > 1) again[$4]++}
    function row(name, r, text) {
      printf "| %s | %d | %d | %d | %d | %d | %d | %d | %s |\n", name, all[r], is[r, "passed"], is[r, "failed"], is[r, "skipped"], is[r, "not run"], again[r], time[r], text
    }
    END {
      for (i = 1; i <= n; i++) {
        r = order[i]; if (!all[r]) continue
        row(r, r, needs[r]); all["sum"] += all[r]; time["sum"] += time[r]; again["sum"] += again[r]
        split("passed,failed,skipped,not run", kinds, ","); for (k in kinds) is["sum", kinds[k]] += is[r, kinds[k]]
      }
      row("all", "sum", "")
    }'
}

machine() {
  printf '%s cores (%s), %s of memory, Linux %s, %s' "$(nproc)" "$(sed -n 's/^model name[ \t]*: //p' /proc/cpuinfo | head -n 1)" \
    "$(awk '/^MemTotal/ {printf "%.0f GB", $2 / 1048576}' /proc/meminfo)" "$(uname -r)" "$(. /etc/os-release; echo "$PRETTY_NAME")"
}

describe_nodes() {
  case $nodes-$servers in 1-*) echo 'one real node' ;; *-1) echo "$nodes real nodes" ;; *) echo "$nodes real nodes of which $servers are servers${kill_every:+, one of them killed every $kill_every s}" ;; esac
}

report() {
  {
    printf 'Suite %s, %s, commit %s, runtime %s, %s, on %s.\n\n' "$suite_version" "$(date -u +%F)" "$commit" "$runtime" "$(describe_nodes)" "$(machine)"
    table
  } >"$results/table.md"
  last_outcomes | awk -F '\t' '$1 != "passed" {print $1 "\t" $3 "\t" $4}' >"$results/failures.tsv"
  echo; cat "$results/table.md"
  if [ -s "$results/failures.tsv" ]; then say "did not pass ($results/failures.tsv)"; cat "$results/failures.tsv"; fi
  say "table, junit files and logs: $results"
}

# keep_table : docs/conformance.md gets the table of a run that had everything in it, of a build of this very commit.
keep_table() {
  local page="$top/docs/conformance.md" new="$results/page.md"
  [ -z "$chosen" ] && [ -z "$given" ] && grep -q "<!-- $kind -->" "$page" || return 0
  case $commit in *-dirty) say "docs/conformance.md stays as it is: there are changes that are not committed"; return ;; esac
  if grep -q '^not run' "$results/failures.tsv"; then say "docs/conformance.md stays as it is: not every test was run; go on with RESUME=1"; return; fi
  {
    sed '/<!-- '"$kind"' -->/q' "$page"
    cat "$results/table.md"
    if [ -s "$results/failures.tsv" ]; then echo; echo 'Did not pass:'; awk -F '\t' '{print "- " $3 " (" $1 ")"}' "$results/failures.tsv"; fi
    sed -n '/<!-- end of '"$kind"' -->/,$p' "$page"
  } >"$new"
  cp "$new" "$page"
  say "kept in docs/conformance.md"
}
