#!/bin/sh
# Makes sure that the test servers can start on this machine:
#
#	install.sh postgres pgbouncer ...
#
# A server that the environment names, that has its programs here, or for which
# Docker has an image or can pull one, is left as it is. Otherwise the Debian
# package is installed, where that is possible, without a database cluster or a
# running service of its own.
set -eu

say() {
	echo "install.sh: $*" >&2
}

# as_root COMMAND... runs a command as root.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

can_install() {
	command -v apt-get >/dev/null 2>&1 || return 1
	[ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null
}

# apt_install PACKAGE... installs, with fresh package lists if need be.
apt_install() {
	for try in 1 2; do
		if as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
			apt-get install -q -y --no-install-recommends "$@" >&2; then
			return 0
		fi
		[ "$try" = 2 ] || as_root apt-get update -q >&2
	done
	return 1
}

# has_image CHOSEN PUBLIC LOCAL succeeds if Docker has or can get an image. The
# one chosen by the user counts alone.
has_image() {
	docker version >/dev/null 2>&1 || return 1
	if [ -n "$1" ]; then
		set -- "$1" "$1"
	else
		shift
	fi
	for image in "$@"; do
		docker image inspect "$image" >/dev/null 2>&1 && return 0
	done
	# The first is the one that a registry may have.
	timeout 60 docker pull -q "$1" >/dev/null 2>&1
}

has_postgres() {
	command -v postgres >/dev/null 2>&1 && return 0
	for program in /usr/lib/postgresql/*/bin/postgres; do
		[ -x "$program" ] && return 0
	done
	return 1
}

# The package creates and starts a cluster on port 5432, unless this file says
# otherwise while it is being installed.
install_postgres() {
	etc=/etc/postgresql-common
	drop=$etc/createcluster.d
	made=
	for dir in "$etc" "$drop"; do
		[ -d "$dir" ] || made="$dir $made"
	done
	as_root mkdir -p "$drop"
	trap remove_drop EXIT
	trap 'exit 1' HUP INT TERM
	echo "create_main_cluster = off" | as_root tee "$drop/zz-onward-test.conf" >/dev/null
	apt_install postgresql
}

remove_drop() {
	as_root rm -f "$drop/zz-onward-test.conf"
	for dir in $made; do
		as_root rmdir "$dir" 2>/dev/null || true
	done
}

has_pgbouncer() {
	command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ]
}

# The package starts a service on port 6432, unless this file says otherwise
# while it is being installed. A file that is already there stays and decides;
# what it lets start is stopped. In both cases the service is not started at
# boot either.
policy=/usr/sbin/policy-rc.d
mark="Temporary, from the installation of a test's pgbouncer."

install_pgbouncer() {
	trap remove_policy EXIT
	trap 'exit 1' HUP INT TERM
	# "set -C" creates the file or fails.
	if as_root sh -c 'set -C; cat >"$1"' sh "$policy" 2>/dev/null <<-END; then
		#!/bin/sh
		# $mark
		case " \$* " in
		*" pgbouncer "* | *" pgbouncer."*) exit 101 ;;
		esac
		exit 0
	END
		as_root chmod 755 "$policy" || return 1
		apt_install pgbouncer || return 1
	else
		apt_install pgbouncer || return 1
		as_root service pgbouncer stop >/dev/null 2>&1 || true
	fi
	as_root update-rc.d pgbouncer disable >&2
}

# Only the file that bears the mark is ours, whenever an interrupt comes.
remove_policy() {
	if grep -qF "$mark" "$policy" 2>/dev/null; then
		as_root rm -f "$policy"
	fi
}

# ensure NAME PACKAGE DSN CHOSEN PUBLIC LOCAL
ensure() {
	name=$1 package=$2 dsn=$3
	shift 3
	if [ -n "$dsn" ] || "has_$name" || has_image "$@"; then
		return 0
	fi
	install "$name" "$package" ", or name a server in the environment"
}

# install NAME PACKAGE ALTERNATIVE
install() {
	name=$1 package=$2
	if ! can_install; then
		say "no $name: run 'apt-get install $package' as root$3"
		return 1
	fi
	say "installing $package"
	# A subshell, so that each server's trap runs at once.
	("install_$name") || {
		say "installing $package failed"
		return 1
	}
}

[ $# -gt 0 ] || {
	say "usage: install.sh postgres pgbouncer ..."
	exit 2
}
failed=0
for server in "$@"; do
	case $server in
	postgres)
		ensure postgres postgresql "${OUTBOX_TEST_POSTGRES_DSN:-}" \
			"${OUTBOX_TEST_POSTGRES_IMAGE:-}" postgres:18 onward-test-postgres:18 ||
			failed=1
		;;
	pgbouncer)
		# A pooler in front of any of those servers; it always runs locally.
		has_pgbouncer || install pgbouncer pgbouncer "" || failed=1
		;;
	*)
		say "unknown server: $server"
		exit 2
		;;
	esac
done
exit $failed
