"""What must be installed, looked for before anything is imported that needs it."""

from importlib.util import find_spec

PACKAGES = ("torch", "torchvision", "gradio", "PIL", "matplotlib", "numpy", "requests")
PACKAGES += ("safetensors", "torchinfo")


def missing() -> str:
    """A sentence that says what to do when this Python lacks a package, "" when it has all."""
    if all(find_spec(name) for name in PACKAGES):
        return ""
    return (
        "What requirements.txt lists is not installed for this Python; use .venv/bin/python, or "
        "pip install -r requirements.txt."
    )
