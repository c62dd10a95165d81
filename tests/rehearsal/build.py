"""Build the libraries of a GPU that computes nothing, to rehearse runs on GPUs without one.

    python tests/rehearsal/build.py OUT --python CUDA_ENVIRONMENT/bin/python
    source OUT/environment.sh
    CUDA_ENVIRONMENT/bin/python -m framekiln run --profile high-throughput ...

docs/hardware/rehearsing.md explains the limits of a rehearsal. It needs gcc, g++ and nm, and an environment with
torch's build for CUDA 13. All other functions of NVIDIA's libraries return 0 and do nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
STRUCTS = ("cudaDeviceProp", "cudaFuncAttributes", "cudaPointerAttributes")
LIBRARIES = {  # sources by the library that they replace
    "libcudart.so.13": "runtime.cpp",
    "libcublasLt.so.13": "products_lt.c",
    "libcublas.so.13": "products.c",
    "libcufft.so.12": "transforms.c",
}
ALONE = {"libcuda.so.1": "driver.c", "libnvidia-ml.so.1": "management.c"}  # the driver's, which no package brings
FLAGS = ("-O1", "-w", "-shared", "-fPIC")

ENVIRONMENT = """# source this; docs/hardware/rehearsing.md lists the variables that describe the GPU
export LD_LIBRARY_PATH="{out}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export LD_PRELOAD="{preload}"
export PYTHONPATH="{out}/site${{PYTHONPATH:+:$PYTHONPATH}}"
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build all libraries, and print the next command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", required=True, type=Path, help="of an environment with torch for CUDA 13")
    options = parser.parse_args(arguments)
    out: Path = options.out.absolute()
    nvidia = Path(_output(str(options.python), "-c", "import nvidia; print(list(nvidia.__path__)[0])").strip()) / "cu13"
    (out / "site").mkdir(parents=True, exist_ok=True)
    (out / "site" / "sitecustomize.py").write_text((HERE / "without_cudnn.py").read_text())
    (out / "types.h").write_text(types((nvidia / "include" / "driver_types.h").read_text()))
    for name, source in LIBRARIES.items():
        build(out, name, HERE / source, exported(nvidia / "lib" / name))
    torch = Path(_output(str(options.python), "-c", "import torch; print(torch.__path__[0])").strip())
    triton = (torch.parent / "triton/backends/nvidia/driver.c").read_text()
    for name, source in ALONE.items():
        names = needed(torch / "lib" / "libcaffe2_nvrtc.so") | set(re.findall(r"\bcu[A-Z]\w+(?=\()", triton))
        build(out, name, HERE / source, names if source == "driver.c" else set())
    preload = " ".join(str(out / name) for name in LIBRARIES)
    (out / "environment.sh").write_text(ENVIRONMENT.format(out=out, preload=preload))
    print(f"source {out}/environment.sh")


def build(out: Path, name: str, source: Path, wanted: set[str]) -> None:
    """Build one library from its source, with a function that returns 0 for every other wanted name."""
    compiler = "g++" if source.suffix == ".cpp" else "gcc"
    trial, rest = out / "trial.so", out / f"rest_{source.stem}.c"
    _output(compiler, *FLAGS, f"-I{out}", "-o", str(trial), str(source))
    missing = sorted(wanted - exported(trial))
    rest.write_text("".join(f"int {function}(void) {{ return 0; }}\n" for function in missing))
    versions = out / f"{name}.map"
    versions.write_text(f"{name} {{ global: *; }};\n")  # the dynamic loader checks the versions of NVIDIA's symbols
    rest_object = out / f"rest_{source.stem}.o"
    _output("gcc", "-w", "-fPIC", "-c", "-o", str(rest_object), str(rest))
    named = [f"-Wl,-soname,{name}", *([f"-Wl,--version-script={versions}"] if name in LIBRARIES else [])]
    _output(compiler, *FLAGS, f"-I{out}", *named, "-o", str(out / name), str(source), str(rest_object), "-lm")
    trial.unlink()


def types(header: str) -> str:
    """Return the structures that the runtime fills in, with the layout of this CUDA."""
    bare = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    matches = (re.search(rf"struct __device_builtin__ {name}\s*\{{.*?\n\}};", bare, re.DOTALL) for name in STRUCTS)
    text = "\n".join(match[0].replace("__device_builtin__ ", "") for match in matches if match)
    return "typedef struct { char bytes[16]; } cudaUUID_t;\n" + text.replace("enum cudaMemoryType type", "int type")


def exported(library: Path) -> set[str]:
    """Return the names of a library's functions."""
    lines = (line.split() for line in _output("nm", "-D", "--defined-only", str(library)).splitlines())
    return {name.split("@")[0] for _, kind, name in lines if kind in "TWi"}


def needed(library: Path) -> set[str]:
    """Return the names that a library takes from the driver."""
    names = (
        line.split()[-1].split("@")[0] for line in _output("nm", "-D", "--undefined-only", str(library)).splitlines()
    )
    return {name for name in names if re.match(r"cu[A-Z]", name)}


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
