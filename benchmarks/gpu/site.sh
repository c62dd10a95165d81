#!/usr/bin/env bash
# Pack what images for PyTorch lack, for a machine without network: bash benchmarks/gpu/site.sh OUT.tar.xz [PYTHON_VERSION]
# There: mkdir -p site && tar -C site -xJf OUT.tar.xz && export PYTHONPATH=$PWD/site
set -euo pipefail
out=$(realpath -m "$1"); version=${2:-3.12}; cd "$(dirname "$0")/../.."
site=$(mktemp -d); trap 'rm -rf "$site"' EXIT
python3 -m pip install -q --target "$site" --no-compile --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 -c constraints.txt \
  av pydantic pydantic-core annotated-types typing-inspection platformdirs simplejpeg isal pillow-heif pycocotools nvidia-ml-py \
  ray jsonschema jsonschema-specifications referencing rpds-py
rm -rf "$site"/ray/{jars,rllib,llm,serve} "$site"/ray/dashboard/client "$site"/bin
find "$site" \( -name '*.so*' -o -name raylet -o -name gcs_server \) -type f -exec strip --strip-unneeded {} +
mkdir -p "$(dirname "$out")" && tar -C "$site" -c . | xz -9e >"$out"
ls -l "$out"
