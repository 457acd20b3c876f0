"""Rules about the code itself: methods have docstrings, which name what exists, and hand-made faults a place."""

import ast
import re
from pathlib import Path

from tests import mutations

ROOT = Path(__file__).parent.parent


def test_every_public_method_has_a_docstring_of_its_own_or_of_what_it_overrides():
    """Of a base class, or of a protocol: by its name. Properties are attributes, which the class may document."""
    documented = set()
    bare = {}
    for path in [*(ROOT / "kbo").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]:
        tree = ast.parse(path.read_text("utf-8"))
        kinds = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]
        for method in (n for kind in kinds for n in kind.body if isinstance(n, ast.FunctionDef)):
            decorators = " ".join(map(ast.unparse, method.decorator_list))
            if ast.get_docstring(method):
                documented.add(method.name)
            elif method.name[0] != "_" and "property" not in decorators:
                bare[method.name] = path
    assert {name: path for name, path in bare.items() if name not in documented} == {}


def _members(kind):
    """Return the names of methods and of assigned attributes in the definition of a class."""
    names = []
    for node in ast.walk(kind):
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.append(ast.unparse(node.target).removeprefix("self."))
        elif isinstance(node, ast.Assign):
            names += [ast.unparse(target).removeprefix("self.") for target in node.targets]
    return names


def test_every_member_of_a_class_that_a_docstring_names_is_in_it():
    """Of classes of kbo, as ``Class.member``: a method or an attribute of the class or of one of its bases."""
    texts = {path: path.read_text("utf-8") for path in (ROOT / "kbo").rglob("*.py")}
    members = {}
    bases = {}
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                members.setdefault(node.name, set()).update(_members(node))
                own_bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
                bases.setdefault(node.name, set()).update(own_bases)

    def has(name, member):
        if name not in members:
            return name not in ("ABC", "NamedTuple", "Protocol")  # a class of another library
        return member in members[name] or any(has(base, member) for base in bases[name])

    stale = set()
    for path, text in texts.items():
        for name, member in re.findall(r"``(?:[a-z]\w*\.)*([A-Z]\w*)\.(\w+)", text):
            if not has(name, member):
                stale.add((path.name, f"{name}.{member}"))
    assert stale == set()


def test_every_file_that_the_docstring_of_a_module_names_exists():
    """In its folder (there also ``folder/``), in the folder above, or by its path in kbo or in the repository."""
    named = set()
    missing = set()
    for path in [*(ROOT / "kbo").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]:
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        bases = [path.parent, path.parent.parent, ROOT / "kbo", ROOT]
        if path.name == "__init__.py":
            bases = [path.parent, ROOT]
        for name in re.findall(r"(?<![\w/.<*])[\w/]+\.py\b|``[\w/]+/``", docstring):
            name = name.strip("`")
            named.add(name)
            if not any((base / name).exists() for base in bases):
                missing.add((str(path.relative_to(ROOT)), name))
    assert len(named) > 150
    assert missing == set()


def test_every_file_and_folder_of_the_map_exists():
    """Of the map in CONTRIBUTING.md: the entries of a line by its indentation, files in its text in its folder."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    map_text = text.partition("## The map\n")[2].partition("\nImports go")[0]
    folders = {}  # by the indentation of their line
    missing = []
    n_names = 0
    for line in filter(None, map_text.splitlines()):
        indentation = len(line) - len(line.lstrip())
        folders = {level: folder for level, folder in folders.items() if level < indentation}
        parent = [ROOT, *folders.values()][-1]
        entries, _, description = line.strip().partition("   ")
        names = re.findall(r"\w+(?:\.py|/)", entries)
        folders[indentation] = parent / names[0]
        paths = [parent / name for name in names]
        in_text = re.findall(r"\w+(?:\.py|/)(?!\w)", description)
        paths += [parent / names[0] / name for name in in_text]
        n_names += len(paths)
        missing += [str(path) for path in paths if not path.exists()]
    assert n_names > 40
    assert missing == []


def test_bounds_and_acquisition_functions_know_posteriors_by_their_interface_alone():
    concrete = r"^from kbo\.regression\.(exact|sketch|views)|^from kbo\.regression import .*\b(Kernel|Nystrom)Ridge\b"
    for package in ("confidence", "acquisition"):
        for path in (ROOT / "kbo" / package).rglob("*.py"):
            assert not re.search(concrete, path.read_text("utf-8"), re.MULTILINE), path


def test_every_hand_made_fault_has_one_place_in_the_code():
    faults = mutations.load((ROOT / "tests" / "mutations.txt").read_text("utf-8"))
    assert len(faults) > 150
    for fault in faults:
        assert len(mutations.places(fault, (ROOT / fault.file).read_text("utf-8"))) == 1, fault
