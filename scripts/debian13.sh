#!/usr/bin/env bash
# Run a command in a Debian 13 of its own, in this checkout: gcc 14, netCDF 4.9.3, HDF5 1.14.5, PnetCDF 1.14, Open MPI 5.
#   scripts/debian13.sh make build
#   scripts/debian13.sh               a shell there
# The first call makes the system in build/debian13 (DEBIAN13= says where else), from the mirror that apt uses here. The
# system keeps its own build/, .venv/ and ccache, and each call its own /dev/shm; all other files of the checkout are the
# same files here and there. Needs root and debootstrap. The mounts are the command's own: `rm -rf build/debian13` removes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
checkout=$PWD
system=$(realpath -m "${DEBIAN13:-build/debian13}")

fail() {
  echo "debian13: $*" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail "only root can make and enter another system; as root: scripts/debian13.sh $*"
unshare --mount true || fail "this machine does not let root mount anything (a container?): run it where that is possible"

# What apt, pip and others need to reach their servers from here.
copy_network() {
  local path
  cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
  for path in /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/pip.conf /etc/ssl/certs \
    /usr/local/share/ca-certificates; do
    [ ! -e "$path" ] || cp -rL --parents --remove-destination "$path" "$system" 2>/dev/null || true
  done
}

make_system() {
  local sources mirror security
  command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap ||
    fail "debootstrap is missing: apt-get install debootstrap"
  sources=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian')
  mirror=$(awk '$2 !~ /-/ {print $1; exit}' <<<"$sources")
  security=$(awk '$2 ~ /-security$/ {print $1; exit}' <<<"$sources")
  [ -n "$mirror" ] || fail "apt has no mirror of Debian in /etc/apt/sources.list.d: name one there, and apt-get update"
  echo "debian13: making $system from $mirror"
  rm -rf "$system.new"
  mkdir -p "$(dirname "$system")"
  debootstrap --variant=minbase trixie "$system.new" "$mirror" || fail "debootstrap failed: see $system.new/debootstrap"
  {
    echo "deb $mirror trixie main"
    echo "deb $mirror trixie-updates main"
    [ -z "$security" ] || echo "deb $security trixie-security main"
  } >"$system.new/etc/apt/sources.list"
  mkdir -p "$system.new"/advectio "$system.new"/own/{build,venv,ccache}
  mv "$system.new" "$system"
}

[ -e "$system/own" ] || make_system
copy_network

# The mounts are seen by this command only, and end with it.
mkdir -p build .venv
# Real model output, which tests take from there.
shared=$(realpath -e "${ADVECTIO_SHARED:-../shared}" 2>/dev/null) || shared=
unset ADVECTIO_SHARED
export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=/own/ccache
unset TMPDIR PYTHONPATH PIP_FIND_LINKS
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
exec unshare --mount --propagation private bash -euc '
  system=$1 checkout=$2 shared=$3
  shift 3
  mount --bind "$system" "$system"
  mount --bind "$checkout" "$system/advectio"
  mount --bind "$system/own/build" "$system/advectio/build"
  mount --bind "$system/own/venv" "$system/advectio/.venv"
  [ -z "$shared" ] || { mkdir -p "$system/shared" && mount --bind -o ro "$shared" "$system/shared"; }
  mount --rbind /dev "$system/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$system/dev/shm"  # runs here and there do not meet
  mount --rbind /proc "$system/proc"
  mount --rbind /sys "$system/sys"
  # Not chroot: what tests start on a second host by nsenter begins at the root of these mounts.
  cd "$system" && mkdir -p own/outside && pivot_root . own/outside && umount -l own/outside
  sh -c "command -v make >/dev/null && command -v ccache >/dev/null || {
    apt-get update -qq && apt-get install -y -qq --no-install-recommends make ccache ca-certificates >/dev/null; }"
  exec sh -c "cd /advectio && exec \"\$@\"" sh "${@:-bash}"
' bash "$system" "$checkout" "$shared" "$@"
