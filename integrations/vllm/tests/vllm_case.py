"""What the tests of the plugin share: a Python that has vLLM, the plugin's entry point, errors."""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PLUGIN = os.path.dirname(HERE)
PYTHON = os.path.join(os.path.dirname(os.path.dirname(PLUGIN)), "python")
VARIABLE = "SINTER_VLLM_PYTHON"
SKIPPED = 77
METADATA = "Metadata-Version: 2.1\nName: sinter-vllm\nVersion: 0.1.0\n"


def _missing(python, module):
    """Why a Python cannot import a module; None if it can."""
    done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, text=True,
                          check=False)
    return (done.stderr.strip().splitlines() or ["no message"])[-1] if done.returncode else None


def enter(module="vllm"):
    """Runs the test again by the Python that SINTER_VLLM_PYTHON names, and finds the packages. The
    test is skipped where that Python, or this one without the variable, cannot import the module:
    nothing is installed, since vLLM and torch take gigabytes."""
    python = os.environ.get(VARIABLE, sys.executable)
    if os.path.abspath(python) != os.path.abspath(sys.executable):
        os.execv(python, [python, "-B", *sys.argv])
    if importlib.util.find_spec(module) is None:
        why = f"{sys.executable} has no {module}; {VARIABLE} names a Python that has it"
    else:
        why = _missing(python, module)
    if why:
        print("not tested:", why)
        sys.exit(SKIPPED)
    sys.path[:0] = [HERE, PLUGIN, PYTHON]


def entry_points():
    """A folder for PYTHONPATH with the entry points of pyproject.toml, as installing the plugin
    leaves them: a tempfile.TemporaryDirectory."""
    with open(os.path.join(PLUGIN, "pyproject.toml"), encoding="utf-8") as file:
        text = file.read()
    group, line = re.search(r'\[project\.entry-points\."(.*)"\]\n(.*)\n', text).groups()
    folder = tempfile.TemporaryDirectory()
    made = os.path.join(folder.name, "sinter_vllm-0.1.0.dist-info")
    os.mkdir(made)
    for name, content in (("METADATA", METADATA),
                          ("entry_points.txt", f"[{group}]\n{line.replace(chr(34), '')}\n")):
        with open(os.path.join(made, name), "w", encoding="utf-8") as file:
            file.write(content)
    return folder


def error_of(found, exact):
    """The largest difference, in parts of the largest exact number."""
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()
