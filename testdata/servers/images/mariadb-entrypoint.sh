#!/bin/sh
# Entry point of the image that mariadb.sh builds. It understands the part of
# the official image's interface that the tests use:
# MARIADB_ALLOW_EMPTY_ROOT_PASSWORD, MARIADB_ROOT_HOST, and
# "mariadbd --name=value ..." as arguments.
set -eu

case "${1:--}" in
-*) set -- mariadbd "$@" ;;
esac

if [ "$1" != mariadbd ]; then
	exec "$@"
fi

data=/var/lib/mysql

# The server refuses to run as root.
if [ "$(id -u)" = 0 ]; then
	mkdir -p "$data" /var/run/mysqld
	chown mysql:mysql "$data" /var/run/mysqld
	exec setpriv --reuid=mysql --regid=mysql --init-groups "$0" "$@"
fi

if [ ! -d "$data/mysql" ]; then
	if [ -z "${MARIADB_ALLOW_EMPTY_ROOT_PASSWORD:-}" ]; then
		echo "set MARIADB_ALLOW_EMPTY_ROOT_PASSWORD, since this image knows no passwords" >&2
		exit 1
	fi
	root="'root'@'${MARIADB_ROOT_HOST:-%}'"
	accounts=$(mktemp)
	# Accounts can be changed once they have been read.
	cat >"$accounts" <<-END
		FLUSH PRIVILEGES;
		CREATE USER IF NOT EXISTS $root;
		GRANT ALL PRIVILEGES ON *.* TO $root WITH GRANT OPTION;
	END
	# "force" does not ask for the host's name, which may have no address.
	mariadb-install-db --datadir="$data" --auth-root-authentication-method=normal \
		--skip-test-db --force --extra-file="$accounts"
	rm -f "$accounts"
fi

exec "$@" --datadir="$data"
