#!/bin/sh
# Install the system packages that a build needs and that are missing (Debian 12, 13 and what is like them). Quick when nothing is.
#   scripts/setup.sh          to build, test and show
#   scripts/setup.sh lint     also what `make lint` and .ci/run need
#   scripts/setup.sh deep     also what `make deep` needs
#   scripts/setup.sh soak     also what `make soak` needs
set -eu

packages="g++ gcc gfortran cmake ninja-build pkg-config make python3 python3-venv
  libopenmpi-dev openmpi-bin libmpich-dev mpich libnetcdf-dev libnetcdff-dev libnetcdf-mpi-dev libpnetcdf-dev libhdf5-dev
  liblapack-dev libisal-dev libdeflate-dev libzstd-dev liblz4-dev libblosc-dev libaec-dev libxxhash-dev libucx-dev libudunits2-0
  libyaml-cpp-dev nlohmann-json3-dev libgtest-dev libgmock-dev
  bindfs iproute2 netcdf-bin hdf5-tools hdf5-filter-plugin hdf5-filter-plugin-blosc-serial nco cdo libeccodes0"
if [ "${1:-}" = lint ]; then
  packages="$packages clang-format ccache chromium"
elif [ "${1:-}" = deep ]; then
  packages="$packages clang-tidy ccache python3-cmor"
elif [ "${1:-}" = soak ]; then
  packages="$packages clang libclang-rt-14-dev"
fi

if ! command -v dpkg-query >/dev/null; then
  echo "setup: not a Debian system; what is needed, by its Debian names:" $packages >&2
  exit 0
fi

missing=""
# One call for all: a call for each takes longer than the rest of a build that has nothing to do.
present=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $packages 2>/dev/null | sed -n 's/ installed$//p' || true)
for package in $packages; do
  printf '%s\n' "$present" | grep -qxF "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "setup: installing$missing"
if [ "$(id -u)" = 0 ]; then
  as_root=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root="sudo"
elif command -v sudo >/dev/null && [ -t 0 ]; then
  as_root="sudo"
else
  echo "setup: these packages are missing and this user cannot install them; as root:" >&2
  echo "  apt-get install -y --no-install-recommends$missing" >&2
  exit 1
fi
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
