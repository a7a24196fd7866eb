# Functions of the scripts that build from Debian's packages. They are sourced.

here=$(cd "$(dirname "$0")" && pwd)
work=
child=

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# needs_docker IMAGE ends the script if the image is there, or cannot be.
needs_docker() {
	docker version >/dev/null 2>&1 || fail "no Docker daemon answers"
	if docker image inspect "$1" >/dev/null 2>&1; then
		echo "$1 is already there; 'docker rmi $1' to build it again"
		exit 0
	fi
}

# bootstrap SUITE PACKAGES [DIRECTORY] makes a Debian system with the packages,
# a list with commas, and sets $root to its path. It goes when the script ends.
bootstrap() {
	[ "$(id -u)" = 0 ] || fail "debootstrap needs root: sudo $0"
	if ! command -v debootstrap >/dev/null 2>&1; then
		command -v apt-get >/dev/null 2>&1 || fail "install debootstrap first"
		apt-get update -q
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap ||
			fail "installing debootstrap failed"
	fi
	trap cleanup EXIT
	trap 'exit 1' HUP INT TERM
	work=$(mktemp -d "${3:-${TMPDIR:-/var/tmp}}/onward-image.XXXXXX")
	root=$work/root

	# Namespaces of its own: what the packages mount or start while they are
	# being installed ends with this command, and never shows on this machine.
	# The shell waits for it in a way that signals interrupt.
	unshare --mount --pid --fork --kill-child --mount-proc \
		debootstrap --variant=minbase --include="$2" "$1" "$root" &
	child=$!
	if ! wait "$child"; then
		child=
		tail -n 20 "$root/debootstrap/debootstrap.log" 2>/dev/null || true
		fail "debootstrap failed: are $2 in Debian $1, and can they be fetched?"
	fi
	child=
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
		"$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale
}

cleanup() {
	if [ -n "$child" ]; then
		# Its child, the first process of the namespace, goes with it.
		kill -KILL "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	if [ -n "$work" ]; then
		# What was just killed may still write.
		rm -rf "$work" 2>/dev/null || { sleep 1 && rm -rf "$work"; }
	fi
}

# import_image IMAGE ENTRYPOINT OPTION... makes the image from $root, with that
# script as its entry point and the options for docker import.
import_image() {
	image=$1
	install -m 755 "$here/$2" "$root/usr/local/bin/docker-entrypoint.sh"
	shift 2
	# A file, since a pipe would hide that tar failed.
	tar -C "$root" -cf "$work/image.tar" . || fail "no room for $image"
	docker import \
		--change 'ENTRYPOINT ["docker-entrypoint.sh"]' \
		--change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
		--change 'ENV LANG=C.UTF-8' \
		"$@" "$work/image.tar" "$image" >/dev/null || fail "docker import failed"
	echo "built $image"
}
