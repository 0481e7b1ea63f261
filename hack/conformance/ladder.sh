# Which tests are run, in which parts. Sourced by conformance.sh.
# $suite/chosen.tsv is like testdata/conformance-ladder.tsv: part, nodes, name. The parts are $rungs, in their order.

list_tests() { "$suite/bin/e2e.test" -list-tests | sed -n 's/^ *[^ ]*\.go:[0-9]*: //p' >"$suite/tests"; }

choose_tests() {
  choose_"$tests"
  awk -F '\t' -v rungs=" $rungs " 'FNR == 1 || (index(rungs, " " $1 " ") && $3 ~ ENVIRON["FOCUS"])' "$suite/ladder.tsv" >"$suite/chosen.tsv"
  [ "$(wc -l <"$suite/chosen.tsv")" -gt 1 ] || fail "no test of$rungs matches '${FOCUS:-}'"
}

# Every conformance test of this version is in the ladder, and everything in the ladder is in the suite.
choose_conformance() {
  local wrong rung wanted
  wrong=$(awk -F '\t' 'FNR == NR {suite[$0]; next} FNR > 1 {ladder[$3]; if (!($3 in suite)) print "not in the suite: " $3}
    END {for (name in suite) if (name ~ /\[Conformance\]/ && !(name in ladder)) print "not in the ladder: " name}' "$suite/tests" "$top/testdata/conformance-ladder.tsv")
  [ -z "$wrong" ] || fail "testdata/conformance-ladder.tsv is not of $suite_version: $wrong"
  cp "$top/testdata/conformance-ladder.tsv" "$suite/ladder.tsv"
  rungs=
  for rung in 1 2 3 4a 4b 5 6 7; do
    for wanted in ${RUNG:-1 2 3 4 5 6 7}; do case $rung in "$wanted" | "$wanted"[ab]) rungs="$rungs $rung" ;; esac; done
  done
  [ -n "$rungs" ] || fail "there is no rung '$RUNG'; they are 1 2 3 4a 4b 5 6 7"
}

# What upstream runs before every merge, less the conformance tests; or the tests of one feature, the slow and serial ones left out as well.
choose_e2e() {
  local sig known
  awk -v feature="${FEATURE:-}" 'BEGIN {print "rung\tnodes\ttest"}
    /\[(Slow|Serial|Disruptive|Flaky|Conformance)\]/ {next}
    feature == "" && /\[Feature:/ {next}
    feature != "" && !index($0, "[Feature:" feature "]") {next}
    match($0, /^\[sig-[a-z-]*\]/) {print substr($0, 6, RLENGTH - 6) "\t1\t" $0}' "$suite/tests" >"$suite/ladder.tsv"
  known=$(awk -F '\t' 'FNR > 1 {print $1}' "$suite/ladder.tsv" | sort -u)
  [ -n "$known" ] || fail "the suite has no test of the feature '${FEATURE:-}'"
  rungs=
  for sig in ${SIG:-$known}; do
    grep -qxF "${sig#sig-}" <<<"$known" || fail "no test is of the interest group '$sig'; there are: $(paste -sd ' ' <<<"$known")"
    rungs="$rungs ${sig#sig-}"
  done
}
