#!/bin/sh
# Builds a PostgreSQL image from Debian's packages, for machines whose Docker
# daemon cannot pull the official one. The image stays for the next run:
#
#	sudo ./postgres.sh [version [suite]]
#
# It is called onward-test-postgres:VERSION; package servers looks for that
# name after the official image, and runs this script itself where it may.
set -eu
. "$(dirname "$0")/common.sh"

version=${1:-18}
suite=${2:-sid}

needs_docker "onward-test-postgres:$version"
bootstrap "$suite" "postgresql-$version"
# The cluster that the package creates is not used; the entry point makes one.
rm -rf "$root"/var/lib/postgresql/* "$root"/etc/postgresql/*
import_image "onward-test-postgres:$version" postgres-entrypoint.sh \
	--change 'CMD ["postgres"]' \
	--change 'VOLUME /var/lib/postgresql' \
	--change 'EXPOSE 5432'
