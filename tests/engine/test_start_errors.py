"""Words for the container runtime's reasons not to start a program."""

import pytest

from controller.engine.docker.start_errors import in_words

_CREATE = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
)
_EXEC = "OCI runtime exec failed: exec failed: unable to start container process: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'{_EXEC}exec: "foo": executable file not found in $PATH: unknown',
            'executable "foo" is not in the image a:1;',
        ),
        (f'{_CREATE}exec: "/x/y": stat /x/y: no such file or directory: unknown', 'executable "/x/y" is not in'),
        ("OCI runtime exec failed: crun: executable file `foo` not found in $PATH", 'executable "foo" is not in'),
        (f'{_EXEC}exec: "/etc": permission denied: unknown', '"/etc" can\'t be executed in the image a:1: permission'),
        (
            f'{_EXEC}chdir to cwd ("/nope") set in config.json failed: no such file or directory: unknown',
            'working folder "/nope" can\'t be entered in the image a:1; name one',
        ),
        (f"{_EXEC}exec format error: unknown", "exec format error"),
        ("network x not found", "network x not found"),
    ],
)
def test_reasons_are_said_in_words(text: str, message: str) -> None:
    assert in_words(text, "a:1").startswith(message)
    assert "OCI runtime" not in in_words(text, "a:1")


def test_an_image_by_id_is_not_named() -> None:
    assert "is not in its image;" in in_words(f'{_EXEC}exec: "foo": executable file not found in $PATH', "sha256:00")
