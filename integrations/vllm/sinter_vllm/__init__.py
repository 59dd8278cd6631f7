"""A plugin that runs parts of vLLM's CPU build on Sinter. README.md says which, and how."""


def register():
    """vLLM calls this in each of its processes (entry point vllm.general_plugins)."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from . import options

    parts = options.parts()
    if "linear" in parts:
        from .linear_kernels import register as register_linear
        register_linear()
        from .expert_kernels import register as register_experts
        register_experts()
    if "attention" in parts:
        from .attention_backend import register as register_attention
        register_attention()
