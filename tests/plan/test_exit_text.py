"""Exit codes as conditions say them."""

from controller.plan.sandbox.deaths import exit_text


def test_a_missing_program_is_said_in_words() -> None:
    assert exit_text(1) == "exit code 1"
    assert exit_text(127) == "exit code 127 (its program, or one that it calls, is not in its image)"
    assert exit_text(126).endswith("can't be executed)")
