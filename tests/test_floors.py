"""The rules that keep the package orderly, read off the imports and calls of every file of the package.

A file imports its own room or rooms below it; rooms on one floor do not import each other. Deciders do not touch the
world. File names have a meaning, and no function is longer than a screen. Nothing from the web is ever
executed or unpickled.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

GROUND = {
    "causes",
    "clock",
    "connections",
    "errors",
    "install_hints",
    "limits",
    "sniffing",
    "structured_fields",
    "uses",
    "local_hours",
}
SECOND = {"kernels"} | GROUND
ARCHIVE = {"storage", "url", "journey"} | SECOND
GETTING = {"url", "robots", "journey"} | SECOND
FRONTIER = {"storage"} | GETTING
ENGINE = {"frontier"} | FRONTIER
CATALOG = {"archive", "robots"} | ARCHIVE
BELOW_CRAWL = {"chart", "identity", "engine", "fetch", "page", "archive", "catalog"} | ENGINE
BELOW_SIM = {"crawl", "cluster", "integrations"} | BELOW_CRAWL
EVERYTHING = {"service", "sim", "cli", "__init__"} | BELOW_SIM

MAY_IMPORT = {
    "chart": GROUND,
    "causes": GROUND,
    "clock": GROUND,
    "connections": GROUND,
    "errors": GROUND,
    "install_hints": GROUND,
    "structured_fields": GROUND,
    "limits": GROUND,
    "sniffing": GROUND,
    "local_hours": GROUND,
    "uses": GROUND,
    "kernels": GROUND | {"_native"},
    "url": SECOND,
    "storage": SECOND,
    "robots": SECOND,
    "journey": SECOND,
    "identity": SECOND,
    "frontier": FRONTIER,
    # The fetch kernel holds sockets and a clock: it is none of the deciders' kernels.
    "fetch": {"identity", "_native"} | GETTING,
    "page": GETTING,
    "archive": {"identity"} | ARCHIVE,
    "catalog": CATALOG,
    "engine": ENGINE,
    "crawl": {"cluster"} | BELOW_CRAWL,
    "cluster": {"engine"} | ENGINE,
    "integrations": BELOW_CRAWL,
    "service": {"crawl", "cluster", "_native"} | BELOW_CRAWL,  # the wire kernel holds sockets
    "sim": BELOW_SIM | {"__init__"},
    "cli": EVERYTHING,
    # The front: what users import, and `python -m outrider`.
    "__init__": EVERYTHING,
    "__main__": EVERYTHING,
}
"""For each room, the other rooms it may import: the table of the architecture."""

FUNCTION_LINES_MAX = 70
DECIDERS = {"frontier", "url", "robots", "journey", "kernels"}
WORLD = {
    *("asyncio", "concurrent", "datetime", "glob", "http", "mmap", "multiprocessing", "os", "pathlib", "random"),
    *("sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile"),
    *("threading", "time", "urllib.request", "uuid", "numpy.random"),
}
"""Modules that bring a clock, chance, a thread, a path or a connection."""
WORLD_ALLOWED = {("kernels/__init__.py", "os")}
"""The one look at the world: OUTRIDER_KERNELS chooses the kernels."""

ACTS_ALLOWED = {
    (place, "imports what a value names")
    for place in ("__init__.py", "crawl/__init__.py", "crawl/run/hooks.py", "crawl/run/reader_process.py")
}
"""The two fronts look their names up at first use, in tables of their own. Hooks are named by users, and
the process that reads loads the readers among them."""
CLOCK_WORDS = {"Instant", "ClockFunction", "instant", "seconds", "rfc3339"}
"""What a decider may import from the clock's room: names and arithmetic of time, nothing that reads it."""

VAGUE = {"utils", "util", "common", "helpers", "helper", "core", "base", "manager", "managers", "misc"}
VAGUE_ENDINGS = ("Manager", "Helper", "Helpers", "Utils")
OUTSIDE_NAMES = ("RequestManager",)  # Crawlee's name for such a class
DANGEROUS = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


@cache
def tree_of(file: Path) -> ast.Module:
    """The parsed file: most tests here read every file of the project."""
    return ast.parse(file.read_text("utf-8"), str(file))


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file."""
    return tuple(ast.walk(tree_of(file)))


def problems(package: Path) -> list[str]:
    """Everything in a package that breaks a rule, as 'file:line: what'."""
    return sorted(problem for file in sorted(package.rglob("*.py")) for problem in problems_of(file, package))


def problems_of(file: Path, package: Path) -> Iterator[str]:
    path = file.relative_to(package).as_posix()
    room = path.split("/")[0].removesuffix(".py")
    for part in Path(path).with_suffix("").parts:
        if VAGUE & set(part.split("_")):
            yield f"{path}:1: {part!r} says nothing of what is in it"
    if room not in MAY_IMPORT:
        yield f"{path}:1: the room {room!r} has no floor"
        return
    for node in nodes_of(file):
        for what in (*imports_of(node, path), *acts_of(node)):
            kind, name = what
            line = f"{path}:{getattr(node, 'lineno', 1)}"
            top = name.split(".")[0]
            if kind == "room":
                if name != room and name not in MAY_IMPORT[room]:
                    yield f"{line}: {room} may not import {name}"
                if name == "clock" and room in DECIDERS and not takes_words_only(node):
                    yield f"{line}: a decider holds no world, and imports the clock"
            elif kind == "module":
                if top in DANGEROUS:
                    yield f"{line}: {top} executes what it reads"
                if room in DECIDERS and {top, name} & WORLD and (path, top) not in WORLD_ALLOWED:
                    yield f"{line}: a decider holds no world, and imports {name}"
            elif kind == "world":
                if room in DECIDERS:
                    yield f"{line}: a decider holds no world, and calls {name}"
            elif (path, name) not in ACTS_ALLOWED:
                yield f"{line}: {name}"


def takes_words_only(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.ImportFrom)
        and (node.module or "").endswith("clock")
        and {alias.name for alias in node.names} <= CLOCK_WORDS
    )


def imports_of(node: ast.AST, path: str) -> Iterator[tuple[str, str]]:
    """('room', name) for Outrider's own modules, ('module', dotted name) for all other modules."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield of_module(alias.name)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            # Dots climb from the file's own package.
            package = ["outrider", *path.split("/")[:-1]]
            climbed = package[: len(package) - node.level + 1]
            module = ".".join([*climbed, *([module] if module else [])])
        if module == "outrider":
            for alias in node.names:
                yield "room", alias.name if alias.name in MAY_IMPORT or alias.name == "_native" else "__init__"
        elif module.split(".")[0] == "outrider":
            yield of_module(module)
        else:
            yield "module", module
            for alias in node.names:
                yield "module", f"{module}.{alias.name}"
    elif isinstance(node, ast.Call) and called(node) in ("importlib.import_module", "import_module", "__import__"):
        name = node.args[0] if node.args else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield of_module(name.value)
        else:
            yield "act", "imports what a value names"


def of_module(name: str) -> tuple[str, str]:
    parts = name.split(".")
    if parts[0] != "outrider":
        return "module", name
    return "room", parts[1] if len(parts) > 1 else "__init__"


def acts_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """('act', text) for an act that no file may do, ('world', name) for one that a decider may not do."""
    if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE_ENDINGS) and node.name not in OUTSIDE_NAMES:
        yield "act", f"the class name {node.name} says nothing of what it does"
    if isinstance(node, ast.Attribute) and node.attr == "random" and ast.unparse(node.value) in ("np", "numpy"):
        yield "world", "numpy.random"
    if isinstance(node, ast.Call):
        name = called(node)
        if name in ("eval", "exec", "builtins.eval", "builtins.exec"):
            yield "act", f"{name} executes what it is given"
        if name in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"):
            yield "act", f"{name} builds objects that the text names"
        if name in ("open", "input", "breakpoint"):
            yield "world", name


def called(node: ast.Call) -> str:
    """Returns the dotted name of the called function, or '' when it is not a plain name."""
    parts = []
    target = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return ""
    return ".".join([target.id, *reversed(parts)])


def test_the_house_keeps_its_rules(project):
    assert [] == problems(project / "src" / "outrider")


FRONTIER_FLOORS = ("format", "stores", "policy", "state", "schedule", "verbs", "machine")
"""The folders of the frontier from the lowest up. A file imports its own folder or lower ones; `priority.py` counts as
policy, and is outside because callers import it by that name."""


def imports_in_frontier(folder: Path, *, typing: bool) -> dict[str, set[str]]:
    """The modules of the frontier that each of its modules imports, as "folder.module"; typing: those that only the
    type checker reads, too."""
    modules = {file.relative_to(folder).with_suffix("").as_posix().replace("/", ".") for file in folder.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for module in modules:
        tree = tree_of(folder / f"{module.replace('.', '/')}.py")
        only_typing = {
            node
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
        }
        found[module] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("outrider.frontier"):
                continue
            if node in only_typing and not typing:
                continue
            base = ".".join((node.module or "").split(".")[2:])
            names = {f"{base}.{alias.name}".lstrip(".") for alias in node.names} | {base}
            found[module] |= names & modules
    return found


def floor_of(module: str) -> int:
    top = module.split(".", maxsplit=1)[0]
    return FRONTIER_FLOORS.index("policy" if top == "priority" else top)


def test_the_folders_of_the_frontier_import_downwards(project):
    imports = imports_in_frontier(project / "src" / "outrider" / "frontier", typing=True)
    del imports["__init__"]
    wrong = [f"{a} imports {b}" for a, named in imports.items() for b in named if floor_of(b) > floor_of(a)]
    assert ([], True) == (sorted(wrong), len(imports) > len(FRONTIER_FLOORS))


def test_no_module_of_the_frontier_imports_itself_through_other_modules(project):
    left = imports_in_frontier(project / "src" / "outrider" / "frontier", typing=False)
    while free := [module for module, named in left.items() if not named & left.keys()]:
        for module in free:
            del left[module]
    assert [] == sorted(left)


def test_only_one_file_of_the_tests_reads_the_inside_of_a_frontier(project):
    files = [file for file in (project / "tests").rglob("*.py") if "._" + "machine" in file.read_text("utf-8")]
    assert [project / "tests" / "model" / "inside.py"] == files


def test_the_verbs_of_a_frontier_are_parts_of_one_core_and_no_ancestors_of_each_other(project):
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for file in (project / "src" / "outrider" / "frontier" / "verbs").rglob("*.py")
        for node in nodes_of(file)
        if isinstance(node, ast.ClassDef)
    }
    parts = [name for name, of in bases.items() if of == ["Part"]]
    assert [] == [name for name, of in bases.items() if set(of) & bases.keys() - {"Part"}]
    assert len(parts) > 8


LINES_MAX, ATTRIBUTES_MAX, METHODS_MAX = 70, 25, 40
"""Of a function; of a class of the frontier: attributes that its methods set, public methods."""


def too_large(tree: ast.AST) -> Iterator[str]:
    """Functions and classes that are larger than a reader keeps in mind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > LINES_MAX:
                yield f"{node.name} has {lines} lines"
        elif isinstance(node, ast.ClassDef):
            named = {
                one.attr
                for one in ast.walk(node)
                if isinstance(one, ast.Attribute)
                and isinstance(one.ctx, ast.Store)
                and ast.unparse(one.value) == "self"
            }
            methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef) and one.name[0] != "_"]
            if len(named) > ATTRIBUTES_MAX:
                yield f"{node.name} has {len(named)} attributes"
            if len(methods) > METHODS_MAX:
                yield f"{node.name} has {len(methods)} public methods"


def test_no_part_of_the_frontier_is_too_large(project):
    files = sorted((project / "src" / "outrider" / "frontier").rglob("*.py"))
    found = [f"{file.name}: {what}" for file in files for what in too_large(tree_of(file))]
    assert ([], True) == (found, len(files) > 40)


def test_files_and_functions_that_are_too_large_are_found():
    long = "def f():\n" + "    x = 1\n" * LINES_MAX
    wide = "class C:\n    def __init__(self):\n" + "".join(f"        self.a{n} = 1\n" for n in range(26))
    busy = "class D:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(41))
    found = list(too_large(ast.parse(long + wide + busy)))
    assert ["f has 71 lines", "C has 26 attributes", "D has 41 public methods"] == found


def test_every_room_of_the_house_was_looked_at(project):
    """The rules would be true for an empty folder too."""
    rooms = {path.relative_to(project / "src" / "outrider").parts[0] for path in (project / "src").rglob("*.py")}
    assert {"kernels", "url", "storage", "frontier", "errors.py"} <= rooms


@pytest.mark.parametrize(
    ("path", "code", "expected"),
    [
        ("url/spelling.py", "import outrider.frontier", "url/spelling.py:1: url may not import frontier"),
        ("url/spelling.py", "from outrider.frontier.machine import Machine", "url may not import frontier"),
        ("url/spelling.py", "from outrider import robots", "url may not import robots"),
        ("url/spelling.py", "from .. import storage", "url may not import storage"),
        ("url/spelling.py", "from ..storage.log import Log", "url may not import storage"),
        ("url/spelling.py", "import outrider", "url may not import __init__"),
        ("url/spelling.py", "from outrider import Frontier", "url may not import __init__"),
        ("url/spelling.py", "import importlib\nimportlib.import_module('outrider.cli')", ":2: url may not import cli"),
        ("url/spelling.py", "def f(name):\n    return __import__(name)", ":2: imports what a value names"),
        ("url/spelling.py", "if False:\n    from outrider.page import read", ":2: url may not import page"),
        ("fetch/client.py", "import outrider.page", "fetch may not import page"),
        ("archive/warc.py", "import outrider.robots", "archive may not import robots"),
        ("frontier/machine.py", "import outrider.fetch", "frontier may not import fetch"),
        ("engine/owner.py", "import outrider.fetch", "engine may not import fetch"),
        ("crawl/run/loop.py", "import outrider.cli", "crawl may not import cli"),
        ("cluster/node.py", "import outrider.crawl", "cluster may not import crawl"),
        ("sim/web.py", "import outrider.cli", "sim may not import cli"),
        ("errors.py", "import outrider.kernels", "errors may not import kernels"),
        ("frontier/machine.py", "import time", "a decider holds no world, and imports time"),
        ("frontier/machine.py", "from time import monotonic", "a decider holds no world, and imports time"),
        ("robots/rules.py", "import os.path", "a decider holds no world, and imports os.path"),
        ("frontier/machine.py", "from outrider.clock import wall", "holds no world, and imports the clock"),
        ("frontier/machine.py", "from outrider import clock", "holds no world, and imports the clock"),
        ("frontier/machine.py", "import outrider.clock", "holds no world, and imports the clock"),
        ("journey.py", "from pathlib import Path", "a decider holds no world, and imports pathlib"),
        ("url/keys.py", "import random", "a decider holds no world, and imports random"),
        ("url/keys.py", "from urllib import request", "a decider holds no world, and imports urllib.request"),
        ("url/keys.py", "import numpy as np\nx = np.random", ":2: a decider holds no world, and calls numpy.random"),
        ("kernels/framing.py", "import os", "a decider holds no world, and imports os"),
        ("frontier/seen.py", "open('x')", "a decider holds no world, and calls open"),
        ("frontier/utils.py", "", "'utils' says nothing"),
        ("core/log.py", "", "'core' says nothing"),
        ("crawl/host_manager.py", "", "'host_manager' says nothing"),
        ("crawl/run/loop.py", "class HostManager: ...", "the class name HostManager says nothing"),
        ("cli/main.py", "import pickle", "pickle executes what it reads"),
        ("cli/main.py", "from pickle import loads", "pickle executes what it reads"),
        ("cli/main.py", "eval('1')", "eval executes what it is given"),
        ("cli/main.py", "exec('1')", "exec executes what it is given"),
        ("cli/main.py", "import yaml\nyaml.load('1')", ":2: yaml.load builds objects"),
        ("gadgets/main.py", "", "the room 'gadgets' has no floor"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, path, code, expected):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code, "utf-8")
    found = problems(tmp_path)
    assert found
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("cli/main.py", "import outrider.crawl, outrider.frontier, time, os"),
        ("frontier/machine.py", "from . import seen\nfrom ..url import keys\nimport outrider.journey"),
        ("frontier/machine.py", "from outrider.clock import Instant, instant\nfrom ..clock import seconds"),
        ("kernels/__init__.py", "import os\nimport outrider._native"),
        ("storage/files.py", "import os\nopen('x')"),
        ("page/links.py", "import re\nre.compile('a')\nfrom urllib.parse import urljoin"),
        ("sim/demo.py", "import outrider\nfrom outrider import Frontier"),
        ("crawl/run/loop.py", "from outrider.url import scope\nfrom outrider.page import read"),
    ],
)
def test_allowed_code_is_not_reported(tmp_path, path, code):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(code, "utf-8")
    assert [] == problems(tmp_path)


def test_the_architecture_or_its_folder_names_every_module(project):
    pages = [project / "ARCHITECTURE.md", *(project / "src" / "outrider").rglob("__init__.py")]
    told = {name for page in pages for name in re.findall(r"[a-z_]+\.py", page.read_text("utf-8"))}
    modules = {path.name for path in (project / "src" / "outrider").rglob("*.py")} - {"__init__.py"}
    assert [] == sorted(modules - told)


CRAWL_FLOORS = ("setup", "output", "run", "questions", "orders")
"""The rooms of a crawl from the lowest up. A file imports its own room or lower ones; the files directly in `crawl/`
use all of them."""


def test_the_rooms_of_a_crawl_import_downwards(project):
    folder = project / "src" / "outrider" / "crawl"
    wrong, seen = [], set()
    for file in sorted(folder.rglob("*.py")):
        room = file.relative_to(folder).parts[0]
        if room not in CRAWL_FLOORS:
            continue
        seen.add(room)
        for node in nodes_of(file):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("outrider.crawl"):
                names = (node.module or "").split(".")[2:3] or [alias.name for alias in node.names]
                floors = [CRAWL_FLOORS.index(name) if name in CRAWL_FLOORS else len(CRAWL_FLOORS) for name in names]
                if max(floors) > CRAWL_FLOORS.index(room):
                    wrong.append(f"{file.relative_to(folder)} imports {node.module}")
    assert ([], set(CRAWL_FLOORS)) == (wrong, seen)


FILES_TWICE = {"warc.py"}
"""File names that are in two rooms: the twin of a kernel, which has the name of its Rust file, and the room that the
format belongs to."""
RIDDLES = {
    *("accounts", "alike", "apart", "aside", "asking", "beside", "carried", "given", "handing", "homes"),
    *("kept_output", "kin", "left_out", "looking", "looks", "mending", "noting", "odd", "pace", "places", "put_back"),
    *("served", "shared", "taken_in", "unwelcome", "walls", "welcome", "whereabouts", "wording"),
}
"""Names of files that say nothing of what is in them."""
RIDDLE_CLASSES = {
    *("Accounts", "Asking", "Beside", "Carrying", "Coming", "Desk", "Fate", "Given", "Hand", "Handed", "Homes"),
    *("Kept", "Kin", "LeftOut", "Looking", "Looks", "Named", "Noting", "Said", "Sending", "Standing", "Told", "Walls"),
    *("Whereabouts", "Whose", "Wish", "Worked"),
}
RIDDLE_NAMES = {"told", "given", "some", "strain", "usual", "unwelcome"}
"""Not for functions and fields. A loop may use them."""


def classes_of(project: Path) -> Iterator[tuple[str, str]]:
    """(name, file) of each class of the package."""
    folder = project / "src" / "outrider"
    for file in sorted(folder.rglob("*.py")):
        for node in nodes_of(file):
            if isinstance(node, ast.ClassDef):
                yield node.name, file.relative_to(folder).as_posix()


def test_a_node_of_a_cluster_has_one_decoder_for_each_type(project):
    """Two of its threads that decode a type for the first time can crash the interpreter (msgspec 0.22)."""
    found = [
        f"{file.name}:{node.lineno}"
        for file in sorted((project / "src" / "outrider" / "cluster").glob("*.py"))
        for node in nodes_of(file)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith("msgspec.")
        and any(keyword.arg == "type" for keyword in node.keywords)
    ]
    assert [] == found


def test_no_two_classes_have_one_name(project):
    where: dict[str, list[str]] = {}
    for name, file in classes_of(project):
        where.setdefault(name, []).append(file)
    assert {} == {name: files for name, files in where.items() if len(files) > 1}


def test_a_file_name_is_in_one_room(project):
    where: dict[str, list[str]] = {}
    for file in sorted((project / "src" / "outrider").rglob("*.py")):
        where.setdefault(file.name, []).append(file.parent.name)
    del where["__init__.py"]
    assert sorted(FILES_TWICE) == sorted(name for name, rooms in where.items() if len(rooms) > 1)


def test_no_name_is_a_riddle(project):
    files = [path.stem for path in (project / "src" / "outrider").rglob("*.py")]
    assert [] == sorted(RIDDLES & set(files))
    assert [] == sorted(name for name, _ in classes_of(project) if name.lstrip("_") in RIDDLE_CLASSES)
    odd = []
    for file in sorted((project / "src" / "outrider").rglob("*.py")):
        for node in nodes_of(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.strip("_") in RIDDLE_NAMES:
                odd.append(f"{file.name}:{node.lineno} {node.name}")
            elif isinstance(node, ast.ClassDef):
                odd += [
                    f"{file.name}:{one.lineno} {one.target.id}"
                    for one in node.body
                    if isinstance(one, ast.AnnAssign)
                    and isinstance(one.target, ast.Name)
                    and one.target.id in RIDDLE_NAMES
                    and (file.name, one.target.id) != ("parts.py", "given")  # a public field of `outrider.url.Url`
                ]
    assert [] == odd


def test_no_function_is_longer_than_a_screen(project: Path) -> None:
    long = [
        f"{path.name}:{node.lineno} {node.name}: {length} lines"
        for path in sorted((project / "src" / "outrider").rglob("*.py"))
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert [] == long


def groups_repeated_possessively(tree: ast.AST) -> Iterator[str]:
    """The patterns of a file in which a group is repeated possessively."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node).startswith("re."))
    for node in (part for call in calls for part in ast.walk(call)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            outside_classes = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", text)
            if re.search(r"\)(?:[*+?]|\{[0-9,]+\})\+", outside_classes):
                yield text


def test_no_group_is_repeated_possessively(project: Path) -> None:
    """CPython before 3.11.5 then matches other texts (python/cpython#106052), and Debian 12 has 3.11.2."""
    assert [] == [
        (file.name, text)
        for file in sorted((project / "src" / "outrider").rglob("*.py"))
        for text in groups_repeated_possessively(tree_of(file))
    ]
    assert ["(?:a|b)*+c"] == list(groups_repeated_possessively(ast.parse("re.compile(rb'(?:a|b)*+c')")))
    assert [] == list(groups_repeated_possessively(ast.parse("re.compile(rb'(?:a|b)*c++')")))
