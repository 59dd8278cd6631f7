"""What users choose, by variables of the environment. vLLM hands these on to its workers."""
import os


def _word(name, default, allowed):
    value = os.environ.get(name, default)
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
    return value


def fpmath():
    """How far products with compressed weights may depart from f32. f16: activations keep 16 bits,
    as vLLM's own kernels have it. int8: they get 8 bits for each group of the weight."""
    return _word("SINTER_VLLM_FPMATH", "f16", ("strict", "bf16", "f16", "int8"))


def parts():
    """Which parts of vLLM are Sinter's: a list of linear and attention, with commas."""
    words = [word for word in os.environ.get("SINTER_VLLM", "linear").split(",") if word]
    for word in words:
        if word not in ("linear", "attention"):
            raise ValueError(f"SINTER_VLLM has linear and attention, not {word!r}")
    return words
