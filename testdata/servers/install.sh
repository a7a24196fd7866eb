#!/bin/sh
# Makes sure that the test servers can start on this machine:
#
#	install.sh postgres postgres15 mysql mariadb pgbouncer ...
#
# A server that the environment names, that has its programs here, or for which
# Docker has an image or can pull one, is left as it is. Otherwise an image is
# built where Docker answers; if not, the Debian package is installed, where
# that is possible, without a database cluster or a running service of its own.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=/var/cache/onward-test

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

# apt_install PACKAGE... installs, with fresh package lists if need be. MySQL
# and MariaDB exclude each other, and the one that is there stays.
apt_install() {
	for try in 1 2; do
		if as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
			apt-get install -q -y --no-install-recommends --no-remove "$@" >&2; then
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

# build_image NAME SCRIPT [ARGUMENT...] builds an image, with the lock that the
# tests take when they do so themselves.
build_image() {
	docker version >/dev/null 2>&1 || return 1
	[ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || return 1
	lock=$cache/$1.lock script=$2
	shift 2
	say "building an image, which takes a minute or two"
	as_root mkdir -p "$cache" &&
		as_root env DOCKER_HOST="${DOCKER_HOST:-}" flock "$lock" "$here/images/$script" "$@" >&2
}

has_postgres() {
	command -v postgres >/dev/null 2>&1 && return 0
	for program in /usr/lib/postgresql/*/bin/postgres; do
		[ -x "$program" ] && return 0
	done
	return 1
}

has_postgres15() {
	[ -x /usr/lib/postgresql/15/bin/postgres ]
}

has_mysql() {
	for program in mysqld /usr/sbin/mysqld "$cache/mysql/sbin/mysqld"; do
		# MariaDB's server also goes by this name.
		case $("$program" --version 2>/dev/null || true) in
		"" | *MariaDB*) ;;
		*) return 0 ;;
		esac
	done
	return 1
}

has_mariadb() {
	command -v mariadb-install-db >/dev/null 2>&1 && command -v my_print_defaults >/dev/null 2>&1 || return 1
	command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ]
}

# Both packages are programs only, without a service.
install_mariadb() {
	# A list of words on purpose.
	# shellcheck disable=SC2086
	apt_install $package
}

# A stable Debian has no MySQL.
install_mysql() {
	apt_install "$package" || {
		say "building $cache/mysql from a later Debian, which takes a minute or two"
		as_root "$here/images/mysql-programs.sh" >&2
	}
}

install_postgres15() {
	install_postgres
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
	apt_install "$package"
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

# ensure NAME PACKAGE DSN CHOSEN PUBLIC LOCAL SCRIPT [ARGUMENT...]
ensure() {
	name=$1 package=$2 dsn=$3 chosen=$4 public=$5 built=$6
	shift 6
	if [ -n "$dsn" ] || "has_$name" || has_image "$chosen" "$public" "$built"; then
		return 0
	fi
	if [ -z "$chosen" ] && build_image "$name" "$@"; then
		return 0
	fi
	install "$name" "$package" ", or name a server in the environment"
}

# install NAME PACKAGE ALTERNATIVE
install() {
	name=$1 package=$2
	if ! can_install; then
		say "no $name: install $package, or run this as root on a Debian that has apt-get$3"
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
	say "usage: install.sh postgres postgres15 mysql mariadb pgbouncer ..."
	exit 2
}
failed=0
for server in "$@"; do
	case $server in
	postgres)
		ensure postgres postgresql "${OUTBOX_TEST_POSTGRES_DSN:-}" \
			"${OUTBOX_TEST_POSTGRES_IMAGE:-}" postgres:18 onward-test-postgres:18 \
			postgres.sh 18 sid || failed=1
		;;
	postgres15)
		ensure postgres15 postgresql-15 "${OUTBOX_TEST_POSTGRES15_DSN:-}" \
			"${OUTBOX_TEST_POSTGRES15_IMAGE:-}" postgres:15 onward-test-postgres:15 \
			postgres.sh 15 bookworm || failed=1
		;;
	mysql)
		ensure mysql mysql-server-core "${OUTBOX_TEST_MYSQL_DSN:-}" \
			"${OUTBOX_TEST_MYSQL_IMAGE:-}" mysql:8.4 onward-test-mysql \
			mysql.sh || failed=1
		;;
	mariadb)
		ensure mariadb "mariadb-server-core mariadb-client-core" "${OUTBOX_TEST_MARIADB_DSN:-}" \
			"${OUTBOX_TEST_MARIADB_IMAGE:-}" mariadb:10.11 onward-test-mariadb \
			mariadb.sh || failed=1
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
