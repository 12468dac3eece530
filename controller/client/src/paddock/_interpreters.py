"""Interpreters of `run_code`, each reading its program from stdin."""

_BY_LANGUAGE = {
    "python": ("python3", "-"),
    "node": ("node", "-"),
    "bash": ("bash", "-s", "--"),
    "sh": ("sh", "-s", "--"),
    "ruby": ("ruby", "-"),
    "perl": ("perl", "-"),
}
_OTHER_NAMES = {"python3": "python", "py": "python", "javascript": "node", "js": "node", "shell": "sh", "rb": "ruby"}


def language_of(name: str) -> str:
    """Return the language of a name or an alias."""
    name = name.lower()
    return _OTHER_NAMES.get(name, name)


def interpreter(language: str) -> tuple[str, ...]:
    """Return the command of a language. Raises ValueError for an unknown one."""
    command = _BY_LANGUAGE.get(language_of(language))
    if command is None:
        languages = ", ".join(_BY_LANGUAGE)
        raise ValueError(
            f"run_code: unknown language {language!r}; use one of {languages}, or `exec` with its interpreter"
        )
    return command
