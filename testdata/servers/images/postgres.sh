#!/bin/sh
# Builds a PostgreSQL image from Debian's packages, for machines whose Docker
# daemon cannot pull the official one. The image stays for the next run:
#
#	sudo ./postgres.sh [version [suite]]
#
# It is called onward-test-postgres:VERSION; package servers looks for that
# name after the official image.
set -eu

version=${1:-18}
suite=${2:-sid}
image=onward-test-postgres:$version
here=$(cd "$(dirname "$0")" && pwd)

fail() {
	echo "postgres.sh: $*" >&2
	exit 1
}

if docker image inspect "$image" >/dev/null 2>&1; then
	echo "$image is already there; 'docker rmi $image' to build it again"
	exit 0
fi
docker version >/dev/null 2>&1 || fail "no Docker daemon answers"
[ "$(id -u)" = 0 ] || fail "debootstrap needs root: sudo $0"
if ! command -v debootstrap >/dev/null 2>&1; then
	command -v apt-get >/dev/null 2>&1 || fail "install debootstrap first"
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap
fi

work=$(mktemp -d "${TMPDIR:-/var/tmp}/onward-image.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
root=$work/root

# Namespaces of its own: what the packages mount or start while they are being
# installed ends with this command, and never shows on this machine.
unshare --mount --pid --fork --kill-child --mount-proc \
	debootstrap --variant=minbase --include="postgresql-$version" "$suite" "$root" ||
	fail "debootstrap failed; is postgresql-$version in Debian $suite?"

# The cluster that the package creates is not used; the entry point makes one.
rm -rf "$root"/var/lib/postgresql/* "$root"/etc/postgresql/* \
	"$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
install -m 755 "$here/postgres-entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"

tar -C "$root" -c . | docker import \
	--change 'ENTRYPOINT ["docker-entrypoint.sh"]' \
	--change 'CMD ["postgres"]' \
	--change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
	--change 'ENV LANG=C.UTF-8' \
	--change 'VOLUME /var/lib/postgresql' \
	--change 'EXPOSE 5432' \
	- "$image" >/dev/null
echo "built $image"
