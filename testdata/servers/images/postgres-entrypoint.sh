#!/bin/sh
# Entry point of the image that postgres.sh builds. It understands the part of
# the official image's interface that the tests use: POSTGRES_USER,
# POSTGRES_PASSWORD, POSTGRES_DB, POSTGRES_HOST_AUTH_METHOD,
# POSTGRES_INITDB_ARGS, PGDATA, and "postgres -c name=value ..." as arguments.
set -eu

for bin in /usr/lib/postgresql/*/bin; do
	PATH=$bin:$PATH
done
export PATH PGDATA="${PGDATA:-/var/lib/postgresql/data}"

case "${1:--}" in
-*) set -- postgres "$@" ;;
esac

if [ "$1" != postgres ]; then
	exec "$@"
fi

# The server refuses to run as root.
if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA" /var/run/postgresql
	chown postgres:postgres "$PGDATA" /var/run/postgresql
	chmod 700 "$PGDATA"
	exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	if [ -z "${POSTGRES_PASSWORD:-}" ] && [ "$method" != trust ]; then
		echo "set POSTGRES_PASSWORD, or POSTGRES_HOST_AUTH_METHOD=trust" >&2
		exit 1
	fi
	secret=$(mktemp)
	printf '%s\n' "${POSTGRES_PASSWORD:-unused}" >"$secret"
	# The collation is a linguistic one, as in the official image, so that a
	# test notices where bytewise order was only hoped for.
	# POSTGRES_INITDB_ARGS is a list of words on purpose.
	# shellcheck disable=SC2086
	initdb --username="$user" --pwfile="$secret" --encoding=UTF8 \
		--locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US \
		${POSTGRES_INITDB_ARGS:-}
	rm -f "$secret"
	echo "host all all all $method" >>"$PGDATA/pg_hba.conf"
	echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
	if [ "$database" != postgres ]; then
		echo "CREATE DATABASE \"$database\"" | postgres --single -D "$PGDATA" postgres
	fi
fi

exec "$@"
