#!/usr/bin/env bash
# Writes what the clean room saw into docs/getting-started.md: hack/transcript.sh FOLDER TIMES COMMIT
. "$(dirname "$0")/common.sh"
room=$1 times=$2 commit=$3 page="$top/docs/getting-started.md"
machine="$(nproc) cores, $(free -g | awk '/^Mem:/ {print $2}') GB of memory, Linux $(uname -r | cut -d- -f1)"
# Cargo's hundreds of lines and the colours tell a reader nothing.
shown() { sed -e 's/\x1b\[[0-9;]*m//g' -e 's/\r//g' "$1" | grep -vE '^ *(Compiling|Downloaded|Downloading|Locking|Adding|Updating) ' | sed 's/  *$//'; }
{
  sed '/<!-- transcript -->/q' "$page"
  printf '\nMade by `make clean-room` on %s at commit %s (%s).\n\n' "$(date -u +%F)" "$commit" "$machine"
  printf '| stage | seconds |\n|---|---|\n'
  awk -F'\t' '{printf "| %s | %s |\n", $1, $2}' "$times"
  printf '\n```\n# make up\n'; shown "$room/make-up.txt"
  printf '```\n'
  if [ -e "$room/make-test.txt" ]; then printf '\nThe end of `make test`:\n\n```\n'; shown "$room/make-test.txt" | tail -n 12; printf '```\n'
  else printf '\n`make test` was not part of this run (`hack/clean-room.sh --up`).\n'; fi
} >"$page.new"
mv "$page.new" "$page"
