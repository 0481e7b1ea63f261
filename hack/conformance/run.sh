# Runs tests of the ladder and writes down what became of them. Sourced by conformance.sh.
# $results/outcomes.tsv has a line for each test that ended: outcome, seconds, rung, name. The last line of a name counts.

# tests_to_run RUNG NODES : names of a rung that need so many nodes (1, 2 or '1|2'), are in the focus, and have not passed yet.
tests_to_run() {
  awk -F '\t' -v rung="$1" -v nodes="$2" '!ladder {passed[$4] = $1 == "passed"; next} $1 == rung && $2 ~ "^(" nodes ")$" && !passed[$3] {print $3}' \
    "$results/outcomes.tsv" ladder=1 "$results/ladder.tsv"
}

# read_outcomes RUNG COUNT : reads what ginkgo prints, writes a line per test that ended, and shows it.
# A test that ended is "• [1.5 seconds]", "• [FAILED] [1.5 seconds]" or "S [SKIPPED] [0.1 seconds]", and its name with its labels in the next line.
read_outcomes() {
  awk -v rung="$1" -v count="$2" -v file="$results/outcomes.tsv" '
    heading {
      name = $0; sub(/ \[[^][]*\]$/, "", name)
      # Where a test failed is said inside its name.
      gsub(/ \[(It|(Just)?(Before|After)(Each|All)|DeferCleanup[^]]*)\]/, "", name)
      printf "%s\t%s\t%s\t%s\n", outcome, seconds, rung, name >>file; fflush(file)
      printf "%3d of %d  %-7s %6.1f s  %s\n", ++seen, count, outcome, seconds, name; fflush()
      heading = 0; next
    }
    /^(•|S|!) .*\[[0-9.]+ seconds\]$/ {
      # The nodes around the tests (suite set-up, reports) have headings too; how an interrupted test ended says nothing.
      if (/BeforeSuite|AfterSuite|INTERRUPTED|ABORTED/) next
      seconds = $0; sub(/.*\[/, "", seconds); sub(/ seconds\]$/, "", seconds)
      outcome = "passed"
      if (/SKIPPED/) outcome = "skipped"; else if (/FAILED|PANICKED|TIMEDOUT/) outcome = "failed"
      heading = 1
    }'
}

# run_tests RUNG NODES : one run of ginkgo. Tests that are marked Serial it runs after the others, one by one.
run_tests() {
  local rung=$1 part names count focus processes=$procs
  names=$(tests_to_run "$rung" "$2"); [ -n "$names" ] || return 0
  # With one process ginkgo prints the name before the outcome, and much before it.
  count=$(wc -l <<<"$names"); [ "$count" -ge "$procs" ] || processes=$count; [ "$processes" -ge 2 ] || processes=2
  part="$rung-$(date +%H%M%S)"
  say "rung $rung: $count tests, $processes at once; log in $results/$part.log"
  focus=$(sed 's/[][\\.*^$+?(){}|]/\\&/g; s/$/$/' <<<"$names" | paste -sd '|')
  mkdir -p "$results/junit/$part"; : >"$results/$part.log"
  began="$rung $SECONDS"
  # In the background, so that a signal to this script is heard at once.
  HOME="$temporary" TMPDIR="$temporary" KUBECONFIG="$kubeconfig" KUBE_TEST_REPO_LIST="$results/repo-list.yaml" \
    "$suite/bin/ginkgo" --procs="$processes" --no-color -v --timeout=24h --focus="$focus" "$suite/bin/e2e.test" -- \
    --provider=skeleton --num-nodes="$nodes" --kubeconfig="$kubeconfig" --kubectl-path="$kubectl" --disable-log-dump --dump-logs-on-failure=false \
    --report-dir="$results/junit/$part" --e2e-output-dir="$temporary" >"$results/$part.log" 2>&1 9>&- &
  echo $! >"$ginkgo_pid"
  { tail -n +1 -f --pid="$!" "$results/$part.log" | read_outcomes "$rung" "$count"; } 9>&- &
  reader=$!
  wait "$reader"
  run_ended
}

# The run that is under way: its rung and its begin, who reads its outcomes, and ginkgo's process, in a file: a run that was killed left it behind.
began=
reader=
ginkgo_pid="$cache/conformance/ginkgo.pid"

run_ended() {
  [ -z "$began" ] || printf '%s\t%s\n' "${began% *}" "$((SECONDS - ${began#* }))" >>"$results/seconds.tsv"
  began=
  rm -f "$ginkgo_pid"
}

# stop_tests : ends a run, this one's or one that was left behind. Asked once ginkgo ends the tests; asked again it leaves out their cleaning up,
# which nobody needs: the cluster goes too.
stop_tests() {
  local pid try
  pid=$(cat "$ginkgo_pid" 2>/dev/null) || return 0
  [ -z "$reader" ] || kill "$reader" 2>/dev/null || true
  for try in 1 2 3 4; do
    # Is the number still ginkgo's?
    { tr '\0' '\n' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qxF "$suite/bin/ginkgo" || break
    if [ "$try" = 4 ]; then kill -KILL $(pgrep -P "$pid") "$pid" 2>/dev/null || true; break; fi
    kill -INT "$pid" $(pgrep -P "$pid") 2>/dev/null || true
    timeout 5 tail -f --pid="$pid" /dev/null || true
  done
  run_ended
}
