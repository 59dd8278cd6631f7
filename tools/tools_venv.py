"""The packages of the tools that work on numbers. The library needs none of them."""
import importlib.util
import os

import scratch_venv

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FOLDER = os.environ.get("SINTER_TOOLS_VENV", os.path.join(ROOT, "build", "tools-venv"))
PACKAGES = ["numpy==2.4.6", "matplotlib==3.11.2", "gguf==0.19.0", "safetensors==0.8.0"]


def enter(*modules):
    """Runs the calling script again inside the environment, unless it has these modules."""
    if not all(importlib.util.find_spec(module) for module in modules):
        scratch_venv.enter(FOLDER, PACKAGES)
