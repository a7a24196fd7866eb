#!/bin/sh
# Puts MySQL's programs from Debian's packages, with the libraries they need,
# into a folder of their own, for machines without Docker whose system has no
# such package:
#
#	sudo ./mysql-programs.sh [suite]
#
# It is /var/cache/onward-test/mysql; package servers looks there last. Remove
# it to have a newer version.
set -eu
. "$(dirname "$0")/common.sh"

cache=/var/cache/onward-test
if [ -x "$cache/mysql/sbin/mysqld" ]; then
	echo "$cache/mysql is already there; remove it to build it again"
	exit 0
fi
install -d -m 755 "$cache"
bootstrap "${1:-sid}" mysql-server-core "$cache"
mkdir "$work/sbin"
cat >"$work/sbin/mysqld" <<'END'
#!/bin/sh
# Runs the server with the libraries it was built for, not this machine's.
set -eu
root=$(cd "$(dirname "$0")/../root" && pwd)
for loader in "$root"/usr/lib/*/ld-linux*.so.*; do
	exec "$loader" --library-path "${loader%/*}" "$root/usr/sbin/mysqld" "$@" --basedir="$root/usr"
done
END
chmod 755 "$work" "$work/sbin/mysqld"
# The name appears when all is there.
mv -T "$work" "$cache/mysql"
work=
echo "built $cache/mysql"
