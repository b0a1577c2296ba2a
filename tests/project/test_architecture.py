"""The table of rooms in docs/architecture.md is true, and the files keep to the house rules that can be counted."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    name: ROOT.joinpath(*name.split(".")[1:])
    for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
}
MODULES = {
    ".".join([package, *([] if file.stem == "__init__" else [file.stem])]): file
    for package, folder in PACKAGES.items()
    for file in sorted(folder.glob("*.py"))
}
ROOMS = {package.split(".")[1] for package in PACKAGES if package != "ccheck"}
LINES = 500


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def room(module: str) -> str:
    """`search` of `ccheck.search.local.store`; of the package itself, which is the face of `core`, that."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "core"


def may_call() -> dict[str, set[str]]:
    """The table's last column, as a set of rooms."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    return {name: ROOMS if said == "all rooms" else set(said.split(", ")) - {"–"} for name, said in rows}


def source_of(node: ast.ImportFrom, file: Path, module: str) -> str:
    """The full name of the module that a statement imports from."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def imports(file: Path, module: str) -> Iterator[tuple[str, int]]:
    """The modules that a file imports when it runs, here or in a function; not those for types alone."""
    todo: list[ast.AST] = [tree(file)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        todo.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = source_of(node, file, module)
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield inner if inner in MODULES else source, node.lineno


@functools.cache
def calls() -> list[tuple[str, str, str]]:
    """(where, the importing module, the imported module), of those in the package.

    But for the package's face, which hands on names: `import ccheck` and `python -m ccheck`.
    """
    return [
        (f"{file.relative_to(ROOT)}:{line}", module, imported)
        for module, file in MODULES.items()
        if module not in ("ccheck", "ccheck.__main__")
        for imported, line in imports(file, module)
        if imported.split(".")[0] == "ccheck"
    ]


def pictures() -> dict[str, tuple[dict[str, str], list[tuple[str, str]]]]:
    """The mermaid pictures of the page by their heading: the module of each box, and the arrows between boxes."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = {}
    for heading, picture in re.findall(
        r"^## ([^\n]+)\n\n```mermaid\nflowchart TD\n(.*?)```", text, re.MULTILINE | re.DOTALL
    ):
        boxes, arrows = {}, []
        for line in picture.splitlines():
            if box := re.fullmatch(r'  (\w+)\["(\S+)\.py"\]', line):
                boxes[box[1]] = box[2].replace("/", ".")
            elif arrow := re.fullmatch(r"  (\w+) -->(?:\|[^|]+\|)? (\w+)", line):
                arrows.append((arrow[1], arrow[2]))
            else:
                raise AssertionError(f"not a box or an arrow: {line}")
        found[heading] = ({name: f"ccheck.{module}" for name, module in boxes.items()}, arrows)
    return found


PICTURES = pictures()


def names_from(module: str) -> Iterator[str]:
    """The modules that a module imports from, also for types: it calls what it is handed. Of a package's name, the
    module that has it."""
    file = MODULES[module]
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield from handed_on(source_of(node, file, module), alias.name)


def handed_on(source: str, name: str) -> Iterator[str]:
    if f"{source}.{name}" in MODULES:
        yield f"{source}.{name}"
        return
    yield source
    file = MODULES.get(source)
    if file is None or file.name != "__init__.py":
        return
    for node in tree(file).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and name in {alias.name for alias in node.names}:
            yield from handed_on(f"{source}.{node.module}", name)


@pytest.mark.parametrize("heading", PICTURES)
def test_every_box_is_a_module_and_every_arrow_an_import_that_runs_down(heading):
    """Down in the picture, and to a room that may be called."""
    boxes, arrows = PICTURES[heading]
    assert [module for module in boxes.values() if module not in MODULES] == []
    assert {name for arrow in arrows for name in arrow} == set(boxes)
    assert [arrow for arrow in arrows if boxes[arrow[1]] not in set(names_from(boxes[arrow[0]]))] == []
    order = {name: at for at, name in enumerate(boxes)}
    allowed = may_call()
    for start, end in arrows:
        assert room(boxes[end]) in {room(boxes[start])} | allowed[room(boxes[start])]
        assert order[start] < order[end], f"{end} is drawn above {start}"


def test_the_table_has_every_room_and_no_circle_and_rooms_call_only_whom_they_may():
    assert set(may_call()) == ROOMS
    TopologicalSorter({name: others - {name} for name, others in may_call().items()}).prepare()
    allowed = may_call()
    wrong = [
        f"{where}: {room(module)} calls {room(imported)}"
        for where, module, imported in calls()
        if room(imported) not in {room(module)} | allowed[room(module)]
    ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others_and_the_product_never_the_laboratory():
    order: TopologicalSorter[str] = TopologicalSorter()
    for _, module, imported in calls():
        if imported != module:
            order.add(module, imported)
    order.prepare()  # its error names the circle
    # The product never imports the laboratory, not even for types: only the laboratory's own commands do.
    wrong = [
        f"{module} imports {name}"
        for module in MODULES
        if not module.startswith(("ccheck.lab", "ccheck.cli.lab"))
        for name in names_from(module)
        if name.startswith("ccheck.lab")
    ]
    assert wrong == []


def test_imports_inside_are_relative_and_no_test_module_imports_another():
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in MODULES.values()
        for node in ast.walk(tree(file))
        if (isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "ccheck")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "ccheck" for alias in node.names))
    ]
    assert wrong == []
    # pytest imports each by itself, so that the other would be run twice; shared things lie in helpers beside them.
    imported = re.compile(r"^\s*(?:from|import) (test_\w+)", re.MULTILINE)  # also in programs that a test starts
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for name in imported.findall(file.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_no_file_is_too_long():
    files = [*MODULES.values(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {name: length for name, length in lengths.items() if length > LINES} == {}
