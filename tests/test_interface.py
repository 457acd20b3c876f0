"""The public interface is the one of ``interface.txt``."""

from tests import interface


def report(stored: dict[str, str], present: dict[str, str]) -> str:
    """Return which names were added, removed or changed and what to do; empty if none was."""
    texts = []
    for name, line in stored.items():
        if name not in present:
            texts.append(f"removed: {line}")
        elif present[name] != line:
            texts.append(f"changed: {line}\n     to: {present[name]}")
    if texts:
        texts.append(
            "What was removed or changed breaks programs of users: deprecate it first (CONTRIBUTING.md, Versions)."
        )
    added = [f"added: {line}" for name, line in present.items() if name not in stored]
    if texts or added:
        added.append("If this is meant, write the file anew: python -m tests.interface")
    return "\n".join([*texts, *added])


def test_the_public_interface_is_the_stored_one():
    message = report(interface.stored(), interface.lines())
    assert not message, message


def test_added_removed_and_changed_names_are_reported_with_what_to_do():
    stored = {"kbo.a": "kbo.a(x)", "kbo.b": "kbo.b(x, y=1)"}
    assert report(stored, stored) == ""
    message = report(stored, {"kbo.b": "kbo.b(x, *, y=1)", "kbo.c": "kbo.c"})
    assert "removed: kbo.a(x)" in message
    assert "changed: kbo.b(x, y=1)\n     to: kbo.b(x, *, y=1)" in message
    assert "added: kbo.c" in message
    assert "deprecate it first" in message
    assert "deprecate" not in report({}, stored)
