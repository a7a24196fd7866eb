#!/bin/sh
# Builds a MariaDB image from Debian's packages, for machines whose Docker
# daemon cannot pull the official one. The image stays for the next run:
#
#	sudo ./mariadb.sh [suite]
#
# It is called onward-test-mariadb; package servers looks for that name after
# the official image, and runs this script itself where it may.
set -eu
. "$(dirname "$0")/common.sh"

needs_docker onward-test-mariadb
# A program that mariadb-install-db calls is in the client's package.
bootstrap "${1:-bookworm}" mariadb-server-core,mariadb-client-core
chroot "$root" useradd --system --home-dir /var/lib/mysql --shell /usr/sbin/nologin mysql
import_image onward-test-mariadb mariadb-entrypoint.sh \
	--change 'CMD ["mariadbd"]' \
	--change 'VOLUME /var/lib/mysql' \
	--change 'EXPOSE 3306'
