#!/usr/bin/env bash
# Checks the models of the fences with spin; README.md says what they are. The
# exact ones must have no counter-example in all of their states, and each
# negative control must have one. Works in a temporary directory.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

say() {
	echo "prove: $*" >&2
}

# as_root COMMAND... runs a command as root.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# need PROGRAM PACKAGE makes sure that a program is there.
need() {
	command -v "$1" >/dev/null && return
	if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
		say "installing $2"
		local install=(as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
			apt-get install -q -y --no-install-recommends --no-remove "$2")
		"${install[@]}" >&2 || { as_root apt-get update -q >&2 && "${install[@]}" >&2; } || true
		command -v "$1" >/dev/null && return
	fi
	say "no $1: install $2 (https://spinroot.com has spin), or run this as root on a Debian"
	exit 1
}

# search OPTIMISATION MODEL DEFINE... searches all states and prints spin's
# report. To compile takes longer than to find a counter-example.
search() {
	local optimisation=$1 model=$2
	shift 2
	rm -f pan* ./*.trail
	spin -a "${@/#/-D}" "$here/$model.pml" >spin.log 2>&1 && [ -s pan.c ] || { cat spin.log >&2; return 1; }
	gcc "$optimisation" -w -DSAFETY -DMEMLIM=4000 -o pan pan.c && ./pan -m100000 2>&1
}

failed=0

fail() {
	cat report >&2
	echo "prove $1: $2"
	failed=1
}

# exact MODEL NAME DEFINE... must have no counter-example, in a search that is
# complete and executes every statement of the model.
exact() {
	local run="$1 $2" model=$1
	shift 2
	search -O1 "$model" "$@" >report || { fail "$run" "the model does not run"; return; }
	if ! grep -q "errors: 0$" report; then
		fail "$run" "COUNTER-EXAMPLE FOUND"
	elif grep -qE "too small|not completed|out of memory|memory limit|reached -DMEMLIM" report; then
		fail "$run" "the search is not complete"
	elif grep -E "state [0-9]+," report | grep -vq -- '"-end-"'; then
		fail "$run" "a part of the model is never executed"
	else
		echo "prove $run: no counter-example in $(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' report) states"
	fi
}

# control MODEL NAME DEFINE... must have a counter-example.
control() {
	local run="$1 $2" model=$1
	shift 2
	search -O0 "$model" "$@" >report || { fail "$run" "the model does not run"; return; }
	if grep -q "assertion violated" report && grep -q "errors: 1$" report; then
		echo "prove $run: counter-example found, as it must"
	else
		fail "$run" "NO COUNTER-EXAMPLE, though there is one"
	fi
}

need spin spin
need gcc gcc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

exact postgres exact
exact postgres "three rows" PUBLISHES=3 LAST=4
exact postgres "two producers" PRODUCERS=2 PUBLISHES=1 LAST=4
control postgres delivers DELIVERS
control postgres plain PLAIN
control postgres margin MARGIN=2
control postgres nolock NO_LOCK
control postgres stampbeforelock STAMP_BEFORE_LOCK
control postgres onestatement ONE_SNAPSHOT
control postgres ties TIES
control postgres roundup ROUND_UP
control postgres rollbackreleasesall ROLLBACK_RELEASES_ALL
control postgres releasebeforevisible RELEASE_BEFORE_VISIBLE
control postgres clockback CLOCK_BACK

exact mysql exact
exact mysql "wide slots" WIDTH=2 LAST=8 PUBLISHES=1
control mysql delivers DELIVERS
control mysql plain PLAIN
control mysql margin MARGIN=2
control mysql nolock NO_LOCK
control mysql stampnow STAMP_NOW
control mysql sampleafter SAMPLE_AFTER
control mysql onesnapshot ONE_SNAPSHOT
control mysql ties TIES
control mysql currentleftout CURRENT_LEFT_OUT
control mysql startwithnow START_WITH_NOW
control mysql dirtyread DIRTY_READ
control mysql releasebeforevisible RELEASE_BEFORE_VISIBLE
control mysql clockback CLOCK_BACK

exit $failed
