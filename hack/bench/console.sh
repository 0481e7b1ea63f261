# The console in Chromium: first paint, tables of many rows, a pod's change on the screen, and what an open page costs.
command -v chromium >/dev/null || fail "there is no Chromium; it is in Debian's package chromium"
say "the console, tables of 10,000 and 100,000 rows"
alone
trap 'end $server' EXIT
python objects pods 10000 "$alone" first
python console https://127.0.0.1:18443 "$alone" bench-token 10000 $server | tee -a "$work/lines"
python objects pods 90000 "$alone" more
python console https://127.0.0.1:18443 "$alone" bench-token 100000 $server | tee -a "$work/lines"
