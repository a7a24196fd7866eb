#!/bin/sh
# Builds a MySQL image from Debian's packages, for machines whose Docker daemon
# cannot pull the official one. The image stays for the next run:
#
#	sudo ./mysql.sh [suite]
#
# It is called onward-test-mysql; package servers looks for that name after the
# official image, and runs this script itself where it may.
set -eu
. "$(dirname "$0")/common.sh"

needs_docker onward-test-mysql
bootstrap "${1:-sid}" mysql-server-core,mysql-client-core
chroot "$root" useradd --system --home-dir /var/lib/mysql --shell /usr/sbin/nologin mysql
import_image onward-test-mysql mysql-entrypoint.sh \
	--change 'CMD ["mysqld"]' \
	--change 'VOLUME /var/lib/mysql' \
	--change 'EXPOSE 3306'
