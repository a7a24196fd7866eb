#!/bin/sh
# Entry point of the image that mysql.sh builds. It understands the part of the
# official image's interface that the tests use: MYSQL_ALLOW_EMPTY_PASSWORD,
# MYSQL_ROOT_HOST, and "mysqld --name=value ..." as arguments.
set -eu

case "${1:--}" in
-*) set -- mysqld "$@" ;;
esac

if [ "$1" != mysqld ]; then
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
	if [ -z "${MYSQL_ALLOW_EMPTY_PASSWORD:-}" ]; then
		echo "set MYSQL_ALLOW_EMPTY_PASSWORD, since this image knows no passwords" >&2
		exit 1
	fi
	root="'root'@'${MYSQL_ROOT_HOST:-%}'"
	accounts=$(mktemp)
	cat >"$accounts" <<-END
		CREATE USER IF NOT EXISTS $root;
		GRANT ALL PRIVILEGES ON *.* TO $root WITH GRANT OPTION;
	END
	"$@" --datadir="$data" --initialize-insecure --init-file="$accounts"
	rm -f "$accounts"
fi

exec "$@" --datadir="$data"
