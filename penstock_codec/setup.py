"""The C module of `penstock-codec`, against Python's limited API: one build fits Python 3.11 and every later one.

It is optional: without a compiler or Python's headers, the distribution installs without it, and plain Python code of
the callers does the work. `python -m penstock_codec` says which one runs, and what is missing.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(str(path.relative_to(Path(__file__).parent)) for path in Path(__file__).parent.glob("src/*.c"))
FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-fvisibility=hidden"]

setup(
    ext_modules=[
        Extension(
            "penstock_codec._native",
            sources=SOURCES,
            depends=sorted(
                str(path.relative_to(Path(__file__).parent)) for path in Path(__file__).parent.glob("src/*.h")
            ),
            extra_compile_args=[*FLAGS, *os.environ.get("PENSTOCK_CODEC_FLAGS", "").split()],
            extra_link_args=os.environ.get("PENSTOCK_CODEC_FLAGS", "").split(),
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
